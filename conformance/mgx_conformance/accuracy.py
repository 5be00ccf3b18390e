"""Tolerances of single ops, computed from element type, number of rounded terms and conditioning.

Every op is one of four kinds.  *Exact*: results are input elements, integers or booleans, and are compared bit by bit.
*Pointwise*: the scalar expression is evaluated in float64 with random rounding errors per primitive (Monte Carlo arithmetic);
the spread of the results measures the conditioning.  *Linear*: the error of a sum of n products follows from n and the sums of
their magnitudes and squares (`summed`).  *Composite*: all others; inputs are perturbed by one rounding unit at random, and the
spread of the results is scaled by the error growth of the longest sum inside.  One more rounding of each result is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from mgx_core import Operation, Pointwise, dtype
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

from .primitive_errors import CONFIDENCE, SAFETY, growth, ulps
from .rounding import finite_magnitude, rounding, smallest, unit, widened
from .spread import spread

__all__ = ["local_error", "magnitudes", "tolerance"]


# terms of sums ------------------------------------------------------------------------------------------------------------


def terms_of(op: Any, xs: Sequence[Any], out: Any = None) -> int:
    """Returns the number of terms in the longest sum; for a composite op, an upper bound of consecutive roundings."""
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


def summed(op: Operation, xs: Sequence[Any], out: Any) -> Any:
    """Returns the error of a linear op's sums in rounding units, per element; None for other ops.

    The smaller of two bounds: growth(n) times the sum of magnitudes; and, because the order of summation is independent of the
    values, the growth of n roundings of partial sums, which are bounded by the sum plus six times the root of the sum of squares.
    """
    if not op.linear:
        return None
    n = terms_of(op, xs, out)
    sums = magnitudes(op, xs)
    if sums is None or np.shape(sums) != np.shape(out):
        return None
    error = growth(n) * sums
    if isinstance(op, HOMOGENEOUS) and n > CONFIDENCE**2:
        squares = _on(op, xs, np.square)
        if squares is not None:
            partial = finite_magnitude(out) + CONFIDENCE * np.sqrt(squares / (n if isinstance(op, ReduceMean) else 1))
            error = np.minimum(error, sums + CONFIDENCE * math.sqrt(n) * partial)
    return error


def magnitudes(op: Operation, xs: Sequence[Any]) -> Any:
    """Returns the sums of a linear op's terms in magnitude, per element; None if they cannot be computed."""
    return _on(op, xs, np.abs)


# ops whose result on squared operands is the sum of the squares of their terms (of the mean: over n)
HOMOGENEOUS: Final = (Dot, Convolution, ConvolutionBackwards, ReduceSum, ReduceMean, PrefixScanSum)


def _on(op: Operation, xs: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    """Returns a linear op in float64 on changed float operands."""
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
    """Returns the error that one op may add to a result, per element, given exact inputs.

    The error inside a composite op is only estimated here (relative to the largest result); `tolerance` measures it.
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
    """Returns the permitted deviation of each result, per element; None if it must be identical.

    steering: positions of control operands (scales, axes), which are read exactly.
    """
    if op.exact:
        return [None] * len(outs)
    kinds = [dtype.of(o.dtype) if isinstance(o, np.ndarray) else None for o in outs]
    spreads = spread(op, xs, outs, rng, steering)
    result: list[Any] = []
    for out, kind, spread_of in zip(outs, kinds, spreads, strict=True):
        if kind is None or kind.kind not in "fciu" or (kind.kind in "iu" and spread_of is None):
            result.append(None)
            continue
        if kind.kind in "iu":
            result.append(SAFETY * spread_of if np.any(spread_of) else None)
            continue
        error = local_error(op, xs, out)
        if spread_of is not None and error is not None:
            scale = 1.0 if isinstance(op, Pointwise) else growth(terms_of(op, xs))
            error = error + SAFETY * scale * spread_of
        result.append(error)
    return result
