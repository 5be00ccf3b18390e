"""Parse-time evaluation: constants, and small integer vectors as (symbolic) extents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import numpy as np

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.interpreter import as_array
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

SMALL: Final = 1 << 12  # largest value, in elements, that is evaluated as extents
LEAST: Final = 1 << 10  # largest denominator of a fraction that extents are multiplied by
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
    """Evaluates instructions that depend only on constants or on input extents; memoizes each."""

    def __init__(self) -> None:
        self._constants: dict[Instruction, Array | None] = {}
        self._extents: dict[Instruction, Array | None] = {}
        self._decided: dict[Hashable, Dim] = {}

    def constant(self, ins: Instruction) -> Array | None:
        """Returns the value of an instruction that depends only on literals and static extents, else None."""
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
            value = as_array(ins.op.evaluate(args))
        except MgxError:
            return None
        return value if isinstance(value, np.ndarray) else None

    def extents(self, ins: Instruction) -> Array | None:
        """Returns a small integer instruction as an object array of extents (or booleans, in conditions), else None."""
        return None if isinstance(ins.result, Shape) and ins.result.dtype.kind == "f" else self._exact(ins)

    def count(self, start: Instruction, limit: Instruction, delta: Instruction) -> Dim | None:
        """Returns the length of a range if it can be derived from extents (or, for floats, quotients of extents)."""
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
        """Returns the value as extents, or as exact quotients of extents for floats."""
        if ins not in self._extents:
            _resolve(ins, self._extents, _extent_inputs, self._find_extents)
        return self._extents[ins]

    def derive(self, ins: Instruction, function: Callable[..., Any], *operands: Instruction) -> None:
        """Declares that the integers of `ins` are a function of other values, if its own expansion does not show it."""
        args = [self.extents(i) for i in operands]
        if any(a is None for a in args) or not isinstance(ins.result, Shape) or ins.result.dynamic():
            return
        try:
            self._extents[ins] = np.asarray(_each(function, len(args))(*args), dtype=object).reshape(ins.result.lens())
        except (MgxError, ArithmeticError, LookupError, TypeError, ValueError):
            return

    def suppose(self, ins: Instruction, value: Dim) -> Dim:
        """Assumes that the only element of `ins` is a new symbolic extent, which is returned."""
        self._extents[ins] = np.asarray([value], dtype=object).reshape(ins.shape.lens())
        return value

    def decided(self, key: Hashable, decide: Callable[[], Dim]) -> Dim:
        """Returns the extent that `decide` returned when it was first called for `key`, so that equal extents are one symbol."""
        if key not in self._decided:
            self._decided[key] = decide()
        return self._decided[key]

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
        """Returns integer roundings of quotients of extents computed in floats, such as `ceil(n / 2.0)` from exporters."""
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
    """An exact fraction: an extent over a number above 1.  (Not a tuple, which numpy would treat as an axis.)"""

    a: Dim
    b: int


def _ratio(value: Any) -> _Quotient:
    return value if isinstance(value, _Quotient) else _Quotient(value, 1)


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, _Quotient) or not isinstance(b, int) or b < 1:
        raise LookupError(f"{a} / {b} is not known")
    return a if b == 1 else _Quotient(a, b)


def _times(a: Any, b: Any) -> Any:
    """Returns a product; fractions must be exact in binary and are multiplied only with integers."""
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


EXACT: Final = 32  # minimum width of floats that hold extents: integers below 2^24 are exact

# float ops exact below 2^24, where no non-integer quotient rounds to an integer
WHOLE: Final[dict[type[Operation], Callable[..., Any]]] = {
    Div: _each(_quotient, 2), Ceil: _each(_rounded(1), 1), Floor: _each(_rounded(0), 1), Mul: _each(_times, 2),
    Add: _each(_whole(lambda a, b: a + b), 2), Sub: _each(_whole(lambda a, b: a - b), 2),
}  # fmt: skip


def _truncated(values: Array | None) -> Array | None:
    """Returns floats truncated toward zero."""
    if values is None:
        return None
    flat = [trunc_div(v.a, v.b) if isinstance(v, _Quotient) else v for v in values.reshape(-1)]
    return _vector(flat).reshape(values.shape)


def _ratios(value: Any) -> Array | None:
    """Returns floats as integers or as fractions with small power-of-two denominators; None if one is neither."""
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
    """Evaluates `ins` after its dependencies, iteratively, so that long chains do not overflow the stack."""
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
    """Returns True if an instruction is worth evaluating when its inputs are known."""
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
    """Returns extents converted to an element type; None if they may overflow it."""
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
