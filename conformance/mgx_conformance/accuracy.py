"""Tolerances: the distance of a right result from the definition, computed from element type, term count and condition.

Every op is one of four kinds.  *Exact*: its results are elements of its inputs, integers or truth values; they are compared bit
for bit.  *Pointwise*: its scalar expression is evaluated in float64 with the rounding error of each primitive drawn at random
(Monte Carlo arithmetic); the spread of the results is the condition.  *Linear*: the error of a sum of n products follows from
n and the sums of their magnitudes and squares (`summed`).  *Composite*: all else; inputs are moved by one rounding unit at
random, and the spread of the results is scaled by the growth of the longest sum inside.  Each result may be rounded once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from mgx_core import Operation, Pointwise, dtype, scalar
from mgx_core.errors import MgxError
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards
from mgx_core.ops.einsum import Einsum
from mgx_core.ops.linear import Det, Dot, Inverse
from mgx_core.ops.norm import GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from mgx_core.ops.pooling import Pooling
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.ops.recurrent_layer import Recurrent
from mgx_core.ops.reduce import ReduceMean, ReduceSum
from mgx_core.ops.sample import DeformConv
from mgx_core.ops.scan import PrefixScanSum
from mgx_core.ops.scatter import ScatterAdd, ScatterndAdd
from mgx_core.ops.softmax import Logsoftmax, Softmax
from mgx_core.types.argument import shape_of

__all__ = ["growth", "internal_spread", "local_error", "tolerance", "unit"]

FUNCTION_ULPS: Final = 4.0  # what the libraries of the field promise for a transcendental function
SAMPLES: Final = 4
SAFETY: Final = 4.0  # a few uniform samples understate the largest deviation; by less than this
CONFIDENCE: Final = (
    6.0  # rounding errors are taken as independent: a sum's grows with sqrt(n), at 6 standard deviations
)

ROUNDED_PRIMITIVES: Final = frozenset(
    ["add", "sub", "mul", "div", "sqrt"]
)  # correctly rounded, or one unit off on fast hardware


def unit(kind: dtype.DType) -> float:
    """The rounding unit (largest relative error of one rounding, times two) of the type in which a dtype is computed."""
    if kind.kind == "c":
        return 2.0**-23 if kind.bits <= 64 else 2.0**-52
    return float(np.finfo(kind.accumulate).eps) if kind.kind == "f" else 0.0


def rounding(kind: dtype.DType) -> float:
    """Relative distance of neighbours in the result's own type."""
    return unit(kind) if kind.kind == "c" else kind.epsilon


def smallest(kind: dtype.DType) -> float:
    """Returns the largest value that may be flushed to zero: subnormals of the computing type, one step of a narrower result."""
    if kind.kind == "c":
        return float(np.finfo(np.float32).tiny)
    if kind.kind != "f":
        return 0.0
    tiny = float(np.finfo(kind.accumulate).tiny)
    if kind.bits >= 32:
        return tiny
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    info = finfo(kind.numpy)
    return max(tiny, float(info.smallest_subnormal))


def growth(terms: int) -> float:
    """By how much the error of a sum of so many rounded terms exceeds one rounding unit of the sum of magnitudes."""
    return 1.0 + min(float(terms), CONFIDENCE * math.sqrt(max(terms, 1)))


def ulps(cls: type[Pointwise]) -> float:
    """The sum of the errors of an op's scalar primitives, in units of their results."""
    return _ulps(cls.scalar)


@cache
def _ulps(expression: scalar.Expr) -> float:
    total = 0.0

    def node(e: Any, args: list[Any]) -> None:
        nonlocal total
        total += cost(e.primitive)

    scalar.fold(expression, lambda e: None, node, lambda e, v: None)
    return total


def cost(primitive: str) -> float:
    if primitive in scalar.EXACT:
        return 0.0
    return 1.0 if primitive in ROUNDED_PRIMITIVES else FUNCTION_ULPS


# terms of sums ------------------------------------------------------------------------------------------------------------


def terms_of(op: Any, xs: Sequence[Any], out: Any = None) -> int:
    """The most terms that a result sums; of a composite, an upper bound of the roundings that follow one another."""
    sizes = [x.shape for x in xs if isinstance(x, np.ndarray) and x.size]
    if not sizes:
        return 1
    first = sizes[0]
    match op:
        case Dot() | QuantDot():
            return int(xs[0].shape[-1])
        case Convolution() | QuantConvolution() | DeformConv():
            return math.prod(xs[1].shape[1:])
        case ConvolutionBackwards():
            return int(xs[1].size) // max(int(xs[1].shape[1]), 1)
        case ReduceSum() | ReduceMean() if out is not None:
            return int(max(1, xs[0].size // max(np.asarray(out).size, 1)))
        case PrefixScanSum():
            return int(xs[0].shape[op.axis])
        case Einsum():
            return 8 * max(int(x.size) for x in xs)
        case ScatterAdd() | ScatterndAdd():
            return int(xs[-1].size)
        case Pooling() if op.linear:
            return math.prod(op.lengths or first[2:])
        case GroupNorm() | InstanceNorm() | Det() | Inverse():
            return math.prod(first[1:])
        case Recurrent():
            return int(first[0]) * (int(first[-1]) + op.hidden_size)
        case Softmax() | Logsoftmax() | LayerNorm() | RmsNorm():
            return math.prod(first[a] for a in op.reduced_axes(len(first))) if first else 1
    return max(map(math.prod, sizes)) if op.linear else sum(map(sum, sizes))


# errors of one op --------------------------------------------------------------------------------------------------------


def widened(x: Any) -> Any:
    """A float array as float64, a complex one as complex128; others unchanged."""
    if not isinstance(x, np.ndarray) or x.dtype == object:
        return x
    kind = dtype.of(x.dtype).kind
    return x.astype(np.float64) if kind == "f" else x.astype(np.complex128) if kind == "c" else x


def finite_magnitude(y: Any) -> Any:
    wide = np.abs(widened(y))
    return np.where(np.isfinite(wide), wide, 0.0)


def summed(op: Operation, xs: Sequence[Any], out: Any) -> Any:
    """For linear ops: the error of their sums in rounding units, element by element; None for other ops.

    Two bounds, the lesser of which holds: growth(n) times the sum of magnitudes; and, since the order of summation does not
    depend on the values, the growth of n roundings of partial sums, which do not exceed the sum and six times the root of
    the sum of squares.
    """
    if not op.linear:
        return None
    n = terms_of(op, xs, out)
    magnitudes = _on(op, xs, np.abs)
    if magnitudes is None or np.shape(magnitudes) != np.shape(out):
        return None
    error = growth(n) * magnitudes
    if isinstance(op, HOMOGENEOUS) and n > CONFIDENCE**2:
        squares = _on(op, xs, np.square)
        if squares is not None:
            partial = finite_magnitude(out) + CONFIDENCE * np.sqrt(squares / (n if isinstance(op, ReduceMean) else 1))
            error = np.minimum(error, magnitudes + CONFIDENCE * math.sqrt(n) * partial)
    return error


# those whose result on squared operands is the sum of the squares of their terms (of the mean: over n)
HOMOGENEOUS: Final = (Dot, Convolution, ConvolutionBackwards, ReduceSum, ReduceMean, PrefixScanSum)


def _on(op: Operation, xs: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    """A linear op in float64 on changed float operands."""
    inputs = [
        change(widened(x)) if i in op.linear and isinstance(x, np.ndarray) and dtype.of(x.dtype).kind == "f" else x
        for i, x in enumerate(xs)
    ]
    try:
        with np.errstate(all="ignore"):
            return finite_magnitude(op.evaluate(inputs))
    except MgxError:
        return None


def local_error(op: Operation, xs: Sequence[Any], out: Any) -> Any:
    """The error that one op may add to one of its results, element by element, where its inputs are exact.

    What is inside a composite is only estimated here (relative to the largest result); `tolerance` measures it.
    """
    if not isinstance(out, np.ndarray) or out.dtype == object:
        return None
    kind = dtype.of(out.dtype)
    if kind.kind not in "fc" or op.exact:
        return None
    u, size = unit(kind), finite_magnitude(out)
    error = rounding(kind) * size + smallest(kind)
    if isinstance(op, Pointwise):
        return error + ulps(op.__class__) * u * size
    sums = summed(op, xs, out)
    if sums is not None:
        return error + u * sums
    return error + growth(terms_of(op, xs)) * u * (size.max() if size.size else 0.0)


def tolerance(
    op: Operation, xs: Sequence[Any], outs: Sequence[Any], rng: np.random.Generator, steering: Collection[int] = ()
) -> list[Any]:
    """By how much each result of an op may differ, element by element; None where it must be the same.

    steering: positions of operands that say what to do (scales, axes) and are read exactly.
    """
    if op.exact:
        return [None] * len(outs)
    kinds = [dtype.of(o.dtype) if isinstance(o, np.ndarray) else None for o in outs]
    spreads = _spread(op, xs, outs, rng, steering)
    result: list[Any] = []
    for out, kind, spread in zip(outs, kinds, spreads, strict=True):
        if kind is None or kind.kind not in "fciu" or (kind.kind in "iu" and spread is None):
            result.append(None)
            continue
        if kind.kind in "iu":
            result.append(SAFETY * spread if np.any(spread) else None)
            continue
        error = local_error(op, xs, out)
        if spread is not None and error is not None:
            scale = 1.0 if isinstance(op, Pointwise) else growth(terms_of(op, xs))
            error = error + SAFETY * scale * spread
        result.append(error)
    return result


def _spread(
    op: Operation, xs: Sequence[Any], outs: Sequence[Any], rng: np.random.Generator, steering: Collection[int]
) -> list[Any]:
    """The largest deviation of each result when roundings are drawn at random; None where nothing could be drawn."""
    if op.linear:
        return [None] * len(outs)

    def draw(source: np.random.Generator | None) -> list[Any] | None:
        return (
            _pointwise_sample(op, xs, source) if isinstance(op, Pointwise) else _moved_sample(op, xs, source, steering)
        )

    base = draw(None)
    if base is None:
        return [None] * len(outs)
    spreads = [np.zeros(np.shape(b)) for b in base]
    for _ in range(SAMPLES):
        sample = draw(rng)
        for i, (b, s) in enumerate(zip(base, sample or base, strict=True)):
            spreads[i] = np.maximum(spreads[i], deviation(b, s)) if np.shape(b) == np.shape(s) else spreads[i] + np.inf
    return [s if np.shape(s) == np.shape(o) else None for s, o in zip(spreads, outs, strict=True)]


def internal_spread(op: Operation, xs: Sequence[Any], rng: np.random.Generator) -> Any:
    """Returns the spread of a scalar expression's results under roundings inside it; None for other ops and single primitives."""
    if not isinstance(op, Pointwise) or ulps(op.__class__) == 0:
        return None
    base = _pointwise_sample(op, xs, None)
    if base is None:
        return None
    spread = np.zeros(np.shape(base[0]))
    for _ in range(2):
        sample = _pointwise_sample(op, xs, rng)
        assert sample is not None
        spread = np.maximum(spread, deviation(base[0], sample[0]))
    return np.where(np.isfinite(spread), SAFETY * spread, 0.0)


def deviation(a: Any, b: Any) -> Any:
    """|a - b|, infinite where one is finite and the other is not."""
    if not isinstance(a, np.ndarray) or a.dtype == object or not isinstance(b, np.ndarray):
        return np.zeros(np.shape(a))
    x, y = widened(scalar.widen(a)), widened(scalar.widen(b))
    if x.dtype.kind in "biu":
        x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _pointwise_sample(op: Operation, xs: Sequence[Any], rng: np.random.Generator | None) -> list[Any] | None:
    """The scalar expression in float64, each primitive's result off by its error."""
    assert isinstance(op, Pointwise)
    floats = [dtype.of(x.dtype) for x in xs if isinstance(x, np.ndarray) and x.dtype != object]
    floats = [t for t in floats if t.kind in "fc"]
    if not floats or ulps(op.__class__) == 0:
        return None
    u = max(map(unit, floats))
    wide = [widened(x) for x in xs]
    like = next(w.dtype for w in wide if w.dtype.kind in "fc")

    def leaf(e: Any) -> Any:
        if isinstance(e, scalar.Input):
            return wide[e.index]
        value = e.value if isinstance(e, scalar.Const) else getattr(op, e.name)
        return value if isinstance(value, bool) else np.asarray(value).astype(like)

    def node(e: Any, args: list[Any]) -> Any:
        value = np.asarray(scalar.NUMPY[e.primitive](*args))
        weight = cost(e.primitive)
        if rng is None or not weight or value.dtype.kind not in "fc":
            return value
        return value * (1 + weight * u * rng.uniform(-1, 1, value.shape))

    def cast(e: Any, value: Any) -> Any:
        to = getattr(op, e.to) if isinstance(e.to, str) else e.to
        return widened(scalar.convert(np.asarray(value), to))

    with np.errstate(all="ignore"):
        return [np.asarray(scalar.fold(type(op).scalar, leaf, node, cast))]


def _moved_sample(
    op: Operation, xs: Sequence[Any], rng: np.random.Generator | None, steering: Collection[int]
) -> list[Any] | None:
    """The op on inputs that are off by one rounding unit, in float64 where the op takes it."""
    arrays = [x for x in xs if isinstance(x, np.ndarray) and x.dtype != object and dtype.of(x.dtype).kind in "fc"]
    if not arrays or op.takes_modules:
        return None
    u = max(unit(dtype.of(x.dtype)) for x in arrays)
    for wide in (True, False):
        moved = [_moved(x, u, None if i in steering else rng, wide and i not in steering) for i, x in enumerate(xs)]
        try:
            op.result([None if x is None else shape_of(x) for x in moved])
            with np.errstate(all="ignore"):
                value = op.evaluate(moved)
        except MgxError:
            continue
        return list(value) if isinstance(value, tuple) else [value]
    return None


def _moved(x: Any, u: float, rng: np.random.Generator | None, wide: bool) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype == object or dtype.of(x.dtype).kind not in "fc":
        return x
    y = widened(x)
    if not wide:
        u = max(u, rounding(dtype.of(x.dtype)))
    if rng is not None:
        with np.errstate(all="ignore"):
            y = y * (1 + u * rng.uniform(-1, 1, y.shape))
    return y if wide else y.astype(x.dtype)
