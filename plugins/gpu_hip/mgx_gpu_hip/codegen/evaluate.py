"""Evaluates a loop body: emits statements that compute the values of its members."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Final

from mgx_core import Instruction
from mgx_core.ops.activation import GeluErf, Relu
from mgx_core.ops.convert import SATURATING, Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.pointwise import Add, Clip, Div, Mul, Nearbyint, Sub
from mgx_core.types.dtype import DType, bfloat16, float16, float32, int8, uint8

from .bodies import Access, Body, Source
from .coarse import Coarse, gelu, gelu_byte
from .expressions import Lines, Value, pointwise_value, store_value
from .primitives import constant, nearest_product, nearest_quotient
from .source import Tensor, compute_type, storage_type, to_compute

__all__ = ["Evaluator", "body_function"]

BYTES: Final = (int8, uint8)
HALVES: Final = (float16, bfloat16)
MAX_ZERO_POINT: Final = 2.0**19  # bound of zero points: the sum of a number and 1.5 * 2^23 has integer resolution


class Evaluator:
    """Emits statements to `lines`; `leaf` returns values that are computed elsewhere (None: compute it here).

    coarse: whether all results have 8 bits, which hides small errors: members are not rounded to 16-bit floats, and GELU is
    approximated; finite: returns True for reads of finite values: integers, and constants, which are taken to be finite.
    """

    def __init__(
        self,
        body: Body,
        lines: Lines,
        leaf: Callable[[Source], Value | None],
        coarse: Coarse = Coarse.NO,
        finite: Callable[[Access], bool] = lambda read: False,
    ) -> None:
        self.body = body
        self.lines = lines
        self.leaf = leaf
        self.coarse = coarse
        self.finite = finite
        self.approximate = False  # an approximation was emitted
        self.known: dict[Instruction, Value] = {}

    def value(self, source: Source) -> Value:
        if isinstance(source, Value):
            return source
        if isinstance(source, Instruction) and source in self.known:
            return self.known[source]
        given = self.leaf(source)
        if given is not None:
            return given
        assert isinstance(source, Instruction) and isinstance(source.op, Pointwise), source
        made = self._rounded(source) or self._saturated(source) or self._approximated(source)
        if made is None:
            operands = [self.value(s) for s in self.body.operands[source]]
            made = pointwise_value(source.op, operands, source.shape.dtype, self.lines)
        self.known[source] = made
        return made

    def _saturated(self, ins: Instruction) -> Value | None:
        """Returns a number clipped to the range of an 8-bit float and converted to it, as one conversion; None for others."""
        if not isinstance(ins.op, Convert) or not ins.op.saturate or ins.op.target_type.name not in SATURATING:
            return None
        to, at = ins.op.target_type, self.body.operands[ins][0]
        clip = self._member(at, Clip)
        if clip is not None:
            low, high = (s.number if isinstance(s, Value) else None for s in self.body.operands[clip][1:])
            if low is not None and high is not None and low <= to.lowest and high >= to.highest:
                at = self.body.operands[clip][0]
        quotient = self._member(at, Div)
        if quotient is not None and self._inexact(quotient):
            left, right = (self.value(s) for s in self.body.operands[quotient])
            assert right.number is not None
            x = Value(f"{left.code} * {constant(1 / float(right.number), 'float')}", "float")
        else:
            x = self.value(at)
        if x.ctype != "float" or x.number is not None:
            return None
        kind, bounds = storage_type(to), [constant(float(n), "float") for n in (to.lowest, to.highest)]
        wide = self.lines.let("float", x.code)
        packed = self.lines.let(kind, f"saturated<{kind}>({', '.join([wide, *bounds])})")
        return Value(self.lines.let("float", f"to_f({packed})"), "float", packed, to, wide=wide)

    def _inexact(self, quotient: Instruction) -> bool:
        """Returns True if a quotient by a constant is that of an approximation, and need not be exact."""
        left, right = (self.value(s) for s in self.body.operands[quotient])
        number = right.number
        return self.approximate and left.number is None and number is not None and 1e-30 < abs(float(number)) < 1e30

    def _approximated(self, ins: Instruction) -> Value | None:
        """Returns the value of a member of which 8-bit results need not be exact; None for others."""
        if self.coarse is Coarse.NO:
            return None
        if isinstance(ins.op, Convert) and ins.op.target_type in HALVES:
            x = self.value(self.body.operands[ins][0])
            if x.ctype != "float" or x.number is not None:
                return None
            self.approximate = True
            return Value(x.code, x.ctype)
        if isinstance(ins.op, GeluErf):
            x = self.value(self.body.operands[ins][0])
            if x.ctype == "float" and x.number is None:
                self.approximate = True
                return Value(self.lines.let("float", gelu(self.lines, x.code, self.coarse)), "float")
        return None

    def _rounded(self, ins: Instruction) -> Value | None:
        """Returns a rounded value (or quotient) clipped to an integer range, as one conversion; None for anything else."""
        if not isinstance(ins.op, Convert) or ins.op.target_type not in BYTES:
            return None
        clip = self._member(self.body.operands[ins][0], Clip)
        if clip is None:
            return None
        at, low, high = self.body.operands[clip]
        bounds = [self._whole(s) for s in (low, high)]
        added = self._member(at, Add)
        zero: float | None = 0.0
        if added is not None:
            at, point = self.body.operands[added]
            zero = self._whole(point)
        near = self._member(at, Nearbyint)
        to = ins.op.target_type
        if near is None or zero is None or any(b is None or not to.lowest <= b <= to.highest for b in bounds):
            return None
        if abs(zero) > MAX_ZERO_POINT:
            return None
        held = [constant(b - zero, "float") for b in bounds if b is not None]
        held += [str(-int(zero))] if zero else []  # the value for NaN, chosen so that the final result is 0
        x = self.body.operands[near][0]
        parts = self._member(x, Div)
        made = ""
        if parts is not None:
            byte = self._gelu_byte(parts, to, [b - zero for b in bounds if b is not None], int(zero))
            if byte is not None:
                return byte
            made = self._rounded_product(parts, [b - zero for b in bounds if b is not None], int(zero))
        if parts is not None and not made:
            left, right = (self.value(s) for s in self.body.operands[parts])
            if left.number is None and right.number is not None:
                made = nearest_quotient(left.code, float(right.number), held)
        if not made:
            value = self.value(x)
            if value.number is not None:
                return None
            made = f"m::nearest({', '.join([value.code, *held])})"
        kind = compute_type(to)
        return Value(self.lines.let(kind, f"({kind})({made}{f' + {int(zero)}' if zero else ''})"), kind)

    def _rounded_product(self, quotient: Instruction, bounds: list[float], zero: int) -> str:
        """Returns the integer nearest to a quotient that need not be exact, by a multiplication, within bounds; else nothing.

        A ReLU before it becomes its lower bound.
        """
        if self.coarse is not Coarse.BYTES and not self.approximate:
            return ""
        x, step = self.body.operands[quotient]
        member = self._unconverted(x)
        if isinstance(member, Instruction) and isinstance(member.op, Relu) and bounds[0] <= 0 <= bounds[1]:
            x, bounds = self.body.operands[member][0], [0.0, bounds[1]]
        value = self.value(x)
        number = step.number if isinstance(step, Value) else None
        if not self.approximate or value.ctype != "float" or value.number is not None or number is None:
            return ""
        return nearest_product(value.code, float(number), bounds, None if self._is_finite(x) else -zero)

    def _is_finite(self, source: Source) -> bool:
        """Returns True for sums of products of finite reads and numbers."""
        if isinstance(source, Access):
            return self.finite(source)
        if isinstance(source, Value):
            return source.number is not None and isfinite(source.number)
        return isinstance(source.op, (Add, Convert, Mul, Relu, Sub)) and all(
            map(self._is_finite, self.body.operands[source])
        )

    def _gelu_byte(self, quotient: Instruction, to: DType, bounds: list[float], zero: int) -> Value | None:
        """Returns the rounded quotient of a GELU and a constant, clipped, plus an even zero point; None for others.

        A constant factor may follow the GELU: smoothing divides each column by a number of its own.
        """
        at, step = self.body.operands[quotient]
        number = step.number if isinstance(step, Value) else None
        if self.coarse is not Coarse.BYTES or zero % 2 or number is None or not 1e-30 < number < 1e30:
            return None
        found = self._scaled_gelu(at)
        if found is None:
            return None
        gelu, scale = found
        factor = None if scale is None else self.value(scale)
        if factor is not None and (factor.ctype != "float" or factor.number is not None):
            return None
        x = self.value(self.body.operands[gelu][0])
        if x.ctype != "float" or x.number is not None:
            return None
        kind, name = compute_type(to), self.lines.let("float", x.code)
        code = gelu_byte(self.lines, name, float(number), bounds, zero, "" if factor is None else factor.code)
        return Value(self.lines.let(kind, f"({kind}){code}"), kind)

    def _unconverted(self, source: Source) -> Access | Instruction | None:
        """Returns the read or member before conversions between floats; None for a constant, or if a member was computed."""
        while isinstance(source, Instruction) and source not in self.known and self.leaf(source) is None:
            if not isinstance(source.op, Convert) or source.shape.dtype not in (*HALVES, float32):
                return source
            source = self.body.operands[source][0]
        return source if isinstance(source, Access) else None

    def _scaled_gelu(self, source: Source) -> tuple[Instruction, Source | None] | None:
        """Returns a GELU and the finite read that it is multiplied by, if any; None for other sources."""
        member = self._unconverted(source)
        if not isinstance(member, Instruction):
            return None
        if isinstance(member.op, GeluErf):
            return member, None
        if not isinstance(member.op, Mul):
            return None
        left, right = self.body.operands[member]
        for scale, at in ((left, right), (right, left)):
            gelu, read = self._unconverted(at), self._unconverted(scale)
            if isinstance(gelu, Instruction) and isinstance(gelu.op, GeluErf) and isinstance(read, Access):
                return (gelu, scale) if self.finite(read) else None
        return None

    def _member(self, source: Source, cls: type[Pointwise]) -> Instruction | None:
        """Returns a member that is a float32 op of this class and not yet computed."""
        if not isinstance(source, Instruction) or source in self.known or not isinstance(source.op, cls):
            return None
        return source if source.shape.dtype is float32 and self.leaf(source) is None else None

    def _whole(self, source: Source) -> float | None:
        """Returns the value of a constant source, if it is an integer."""
        number = source.number if isinstance(source, Value) else None
        return float(number) if number is not None and float(number).is_integer() else None


def body_function(name: str, body: Body, inputs: list[Tensor], outputs: list[Tensor]) -> tuple[str, list[Access]]:
    """Returns a device function ``name(x.., y&..)`` of one element, from stored inputs to stored outputs, and its reads."""
    reads = body.accesses
    types = [inputs[r.index].dtype for r in reads]
    lines = Lines()

    def leaf(source: Source) -> Value | None:
        if isinstance(source, Access):
            of = types[reads.index(source)]
            code = f"x{reads.index(source)}"
            value = to_compute(code, of)
            if value == code:
                return Value(code, compute_type(of))
            return Value(lines.let("float", value), "float", code, of)
        return None

    evaluator = Evaluator(body, lines, leaf)
    stores = [f"y{i} = {store_value(evaluator.value(s), outputs[i].dtype)};" for i, s in enumerate(body.outputs)]
    parameters = [f"{storage_type(of)} x{i}" for i, of in enumerate(types)]
    parameters += [f"{storage_type(o.dtype)}& y{i}" for i, o in enumerate(outputs)]
    text = f"DEV void {name}({', '.join(parameters)}) {{\n"
    return text + "".join(f"  {line}\n" for line in (*lines.lines, *stores)) + "}\n", reads
