"""Values known at parse time: constants, and small integer vectors as (symbolic) extents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter
from ..ops.broadcast import Broadcast, Multibroadcast, Scalar
from ..ops.compare import Equal, Greater, Less
from ..ops.concat import Concat
from ..ops.control import GetTupleElem
from ..ops.convert import Convert
from ..ops.fill import DimensionsOf
from ..ops.index import Gather
from ..ops.movement import Contiguous, Reverse, Transpose
from ..ops.operation import Operation
from ..ops.pointwise import Add, Ceil, Div, Floor, Identity, Max, Min, Mod, Mul, Neg, Sub, Where
from ..ops.reduce import ReduceProd
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice, Split, Step
from ..records import dataclass
from ..types.argument import Array
from ..types.dim import Dim, Sym, ceil_div, compare, maximum, minimum, trunc_div
from ..types.dtype import DType
from ..types.shape import Shape

__all__ = ["Known"]

SMALL: Final = 1 << 12  # elements of a value that is worth knowing as extents
LEAST: Final = 1 << 10  # of which a fraction that extents are multiplied by may be a part
MOVES: Final = (
    Gather, Slice, Concat, Reshape, Squeeze, Unsqueeze, Transpose, Multibroadcast, Identity, Contiguous,
    Flatten, Step, Reverse, Broadcast, Scalar, GetTupleElem, Split,
)  # fmt: skip


def _each(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    made: Callable[..., Any] = np.frompyfunc(function, count, 1)
    return made


def _relation(relation: str) -> Callable[[Any, Any], bool]:
    def decide(a: Any, b: Any) -> bool:
        answer = compare(a, relation, b)
        if answer is None:
            raise LookupError(f"{a} {relation} {b} is open")
        return answer

    return decide


ARITHMETIC: Final[dict[type[Operation], Callable[..., Any]]] = {
    Add: _each(lambda a, b: a + b, 2),
    Sub: _each(lambda a, b: a - b, 2),
    Mul: _each(lambda a, b: a * b, 2),
    Div: _each(trunc_div, 2),
    Neg: _each(lambda a: -a, 1),
    Mod: _each(lambda a, b: a % b, 2),
    Min: _each(minimum, 2),
    Max: _each(maximum, 2),
    Equal: _each(_relation("=="), 2),
    Less: _each(_relation("<"), 2),
    Greater: _each(_relation(">"), 2),
    Where: _each(lambda c, a, b: a if c else b, 3),
}


class Known:
    """Looks values up, evaluating what depends on constants or on extents of inputs alone; each is evaluated once."""

    def __init__(self) -> None:
        self._constants: dict[Instruction, Array | None] = {}
        self._extents: dict[Instruction, Array | None] = {}

    def constant(self, ins: Instruction) -> Array | None:
        """Returns the value of an instruction that depends on literals and static extents alone."""
        if ins.literal is not None:
            value = ins.literal.value
            return value if isinstance(value, np.ndarray) else None
        if ins not in self._constants:
            _resolve(ins, self._constants, _foldable_inputs, self._find_constant)
        return self._constants[ins]

    def _find_constant(self, ins: Instruction) -> Array | None:
        found = self._evaluate(ins)
        if found is None and isinstance(ins.result, Shape) and ins.result.dtype.is_integer:
            extents = self.extents(ins)
            if extents is not None and not any(isinstance(d, Sym) for d in extents.reshape(-1)):
                try:
                    found = extents.astype(ins.result.dtype.numpy)
                except (OverflowError, TypeError, ValueError):
                    return None
        return found

    def _evaluate(self, ins: Instruction) -> Array | None:
        if not _foldable(ins):
            return None
        args: list[Array | None] = []
        for i in ins.inputs:
            if i.is_absent:
                args.append(None)
                continue
            value = self.constant(i)
            if value is None:
                return None
            args.append(value)
        try:
            value = Interpreter.settle(ins.op.evaluate(args))
        except MgxError:
            return None
        return value if isinstance(value, np.ndarray) else None

    def extents(self, ins: Instruction) -> Array | None:
        """Returns the value of a small integer instruction as an object array of extents (or booleans, inside conditions)."""
        return None if isinstance(ins.result, Shape) and ins.result.dtype.kind == "f" else self._exact(ins)

    def count(self, start: Instruction, limit: Instruction, delta: Instruction) -> Dim | None:
        """Returns the number of elements of a range, as far as extents tell; of floats, where these are quotients of extents."""
        values = [self._exact(i) for i in (start, limit, delta)]
        if any(v is None or v.size != 1 for v in values):
            return None
        ratios = [_ratio(v.item()) for v in values if v is not None]
        first, last, step = ratios
        if any(r.b & (r.b - 1) for r in ratios) or isinstance(step.a, Sym) or step.a == 0:
            return None
        span, whole = (last.a * first.b - first.a * last.b) * step.b, first.b * last.b * step.a
        return maximum(ceil_div(span, whole) if whole > 0 else ceil_div(-span, -whole), 0)

    def _exact(self, ins: Instruction) -> Array | None:
        """Returns extents, and floats that are extents or quotients of them."""
        if ins not in self._extents:
            _resolve(ins, self._extents, _extent_inputs, self._find_extents)
        return self._extents[ins]

    def derive(self, ins: Instruction, function: Callable[..., Any], *operands: Instruction) -> None:
        """States that the small integers of `ins` are a function of those of some others, where its own parts do not tell it."""
        args = [self.extents(i) for i in operands]
        if any(a is None for a in args) or not isinstance(ins.result, Shape) or ins.result.dynamic():
            return
        try:
            self._extents[ins] = np.asarray(_each(function, len(args))(*args), dtype=object).reshape(ins.result.lens())
        except (MgxError, ArithmeticError, LookupError, TypeError, ValueError):
            return

    def suppose(self, ins: Instruction, value: Dim) -> Dim:
        """States that the one element of `ins` is an extent, and returns that."""
        self._extents[ins] = np.asarray([value], dtype=object).reshape(ins.shape.lens())
        return value

    def _find_extents(self, ins: Instruction) -> Array | None:
        shape = ins.result
        if not isinstance(shape, Shape) or not shape.ranked or shape.dynamic() or shape.elements() > SMALL:
            return None
        if shape.dtype.kind == "f":
            return self._find_whole(ins, shape)
        if shape.dtype.kind not in "iub":
            return None
        if ins.literal is not None:
            return _as_extents(ins.literal.value)
        if ins.is_param or not ins.inputs:
            return None
        op = ins.op
        first = ins.inputs[0]
        if isinstance(op, DimensionsOf):
            if not isinstance(first.result, Shape) or not first.result.ranked:
                return None
            dims = first.result.dims[op.start : op.end]
            return _vector(dims) if len(dims) == shape.elements() else None
        if isinstance(op, Convert):
            if first.shape.dtype.kind == "f":
                found = _as_extents(self._evaluate(ins))
                found = _truncated(self._exact(first)) if found is None else found
            else:
                found = self.extents(first)
            return found if found is None else _converted(found, shape.dtype)
        if not isinstance(op, (*MOVES, *ARITHMETIC, ReduceProd)):
            return _as_extents(self._evaluate(ins))
        args = [self.extents(i) for i in ins.inputs if not i.is_absent]
        if any(a is None for a in args) or len(args) != len(ins.inputs):
            return None
        try:
            if type(op) in ARITHMETIC:
                return np.asarray(ARITHMETIC[type(op)](*args), dtype=object).reshape(shape.lens())
            if isinstance(op, ReduceProd):
                return _product(args[0], shape) if args[0] is not None else None
            if len(args) > 1 and not isinstance(op, Concat):
                args[1:] = [a.astype(np.int64) for a in args[1:] if a is not None]
            return np.asarray(ins.op.evaluate(args), dtype=object).reshape(shape.lens())
        except (MgxError, ArithmeticError, LookupError, TypeError, ValueError):
            return None

    def _find_whole(self, ins: Instruction, shape: Shape) -> Array | None:
        """Returns floats that are extents, or quotients of extents and numbers: `ceil(n / 2.0)`, as exporters round them."""
        if ins.literal is not None or ins.is_param or not ins.inputs:
            return None if ins.literal is None else _ratios(ins.literal.value)
        op = ins.op
        if shape.dtype.is_float and shape.dtype.bits < EXACT:
            return None
        args = [self._exact(i) for i in ins.inputs]
        if any(a is None for a in args):
            return None
        try:
            if isinstance(op, Convert):
                return args[0]
            if type(op) in WHOLE:
                return np.asarray(WHOLE[type(op)](*args), dtype=object).reshape(shape.lens())
            if isinstance(op, MOVES) and len(args) == 1:
                return np.asarray(op.evaluate(args), dtype=object).reshape(shape.lens())
        except (MgxError, ArithmeticError, LookupError, TypeError, ValueError):
            pass
        return None


@dataclass(frozen=True)
class _Quotient:
    """An extent over a number above 1, not rounded.  (Not a tuple, which numpy takes for an axis.)"""

    a: Dim
    b: int


def _ratio(value: Any) -> _Quotient:
    return value if isinstance(value, _Quotient) else _Quotient(value, 1)


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, _Quotient) or not isinstance(b, int) or b < 1:
        raise LookupError(f"{a} / {b} is not known")
    return a if b == 1 else _Quotient(a, b)


def _times(a: Any, b: Any) -> Any:
    """Returns a product; of quotients, if they have no rest in binary, with whole numbers alone."""
    whole, part = (b, a) if isinstance(a, _Quotient) else (a, b)
    if not isinstance(part, _Quotient):
        return whole * part
    if isinstance(whole, _Quotient) or part.b & (part.b - 1):
        raise LookupError(f"{a} * {b} is not known")
    return _Quotient(part.a * whole, part.b)


def _whole(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def decide(a: Any, b: Any) -> Any:
        if isinstance(a, _Quotient) or isinstance(b, _Quotient):
            raise LookupError(f"{a} and {b} are not both whole")
        return function(a, b)

    return decide


def _rounded(up: int) -> Callable[[Any], Any]:
    return lambda q: (q.a + up * (q.b - 1)) // q.b if isinstance(q, _Quotient) else q


EXACT: Final = 32  # bits of floats that hold extents: whole numbers below 2^24 are exact in them

# ops on floats: exact below 2^24, where a quotient that is not whole is not rounded to one
WHOLE: Final[dict[type[Operation], Callable[..., Any]]] = {
    Div: _each(_quotient, 2), Ceil: _each(_rounded(1), 1), Floor: _each(_rounded(0), 1), Mul: _each(_times, 2),
    Add: _each(_whole(lambda a, b: a + b), 2), Sub: _each(_whole(lambda a, b: a - b), 2),
}  # fmt: skip


def _truncated(values: Array | None) -> Array | None:
    """Returns floats as integers are made of them."""
    if values is None:
        return None
    flat = [trunc_div(v.a, v.b) if isinstance(v, _Quotient) else v for v in values.reshape(-1)]
    return _vector(flat).reshape(values.shape)


def _ratios(value: Any) -> Array | None:
    """Returns floats as integers, or as quotients by small powers of two; None if one is neither."""
    if not isinstance(value, np.ndarray) or not np.isfinite(value).all():
        return None
    found = [_Quotient(*float(v).as_integer_ratio()) for v in value.reshape(-1)]
    if any(q.b > LEAST for q in found):
        return None
    return _vector([q.a if q.b == 1 else q for q in found]).reshape(value.shape)


def _resolve(
    ins: Instruction,
    known: dict[Instruction, Array | None],
    inputs: Callable[[Instruction], Iterable[Instruction]],
    find: Callable[[Instruction], Array | None],
) -> None:
    """Finds what is known of `ins`, after all that it depends on, however long the chain."""
    stack = [ins]
    while stack:
        at = stack[-1]
        if at not in known:
            missing = [i for i in inputs(at) if i not in known and i.literal is None]
            if missing:
                stack += missing
                continue
            known[at] = find(at)
        stack.pop()


def _foldable(ins: Instruction) -> bool:
    """Returns True if its value may be worth knowing, given known inputs."""
    if ins.is_param or ins.modules or ins.op.random or ins.op.effect or ins.op.compute is None:
        return False
    if not isinstance(ins.result, Shape) or not ins.result.ranked or ins.result.dynamic() or not ins.inputs:
        return False
    return ins.result.elements() <= SMALL


def _foldable_inputs(ins: Instruction) -> list[Instruction]:
    return [i for i in ins.inputs if not i.is_absent] if _foldable(ins) else []


def _extent_inputs(ins: Instruction) -> list[Instruction]:
    shape = ins.result
    if not isinstance(shape, Shape) or not shape.ranked or shape.dynamic() or shape.elements() > SMALL:
        return []
    if ins.is_param or not isinstance(ins.op, (*MOVES, *ARITHMETIC, *WHOLE, Convert, ReduceProd)):
        return []
    return [i for i in ins.inputs if not i.is_absent]


def _vector(dims: Any) -> Array:
    out = np.empty(len(dims), dtype=object)
    out[:] = list(dims)
    return out


def _as_extents(value: Any) -> Array | None:
    if not isinstance(value, np.ndarray):
        return None
    return _vector([int(v) if value.dtype != np.bool_ else bool(v) for v in value.reshape(-1)]).reshape(value.shape)


def _converted(values: Array, to: DType) -> Array | None:
    """Returns extents as numbers of a type; None where it may not hold them all."""
    numbers = [v for v in values.reshape(-1) if isinstance(v, (int, np.integer))]  # the others are symbolic
    if to.kind == "b":
        return (values != 0).astype(object) if len(numbers) == values.size else None
    if any(not to.lowest <= v <= to.highest for v in numbers) or (len(numbers) < values.size and to.bits < 32):
        return None
    return values


def _product(values: Array, shape: Shape) -> Array | None:
    if shape.elements() != 1:
        return None
    total: Any = 1
    for v in values.reshape(-1):
        total = total * v
    return _vector([total]).reshape(shape.lens())
