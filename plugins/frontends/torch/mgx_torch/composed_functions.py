"""Decompositions of functions without converters: lgamma, erfinv, cummax, searchsorted and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "copysign",
    "copysign_of_number",
    "digamma",
    "erfinv",
    "fft_frequencies",
    "lgamma",
    "logcumsumexp",
    "nonzero_static",
    "real_fft_frequencies",
    "result_type",
    "running_maximum",
    "running_minimum",
    "searchsorted",
    "searchsorted_number",
    "unique_consecutive",
]

SHIFT = 10  # smallest argument for which the asymptotic expansions are accurate to float64
# B(2k) / (2k (2k - 1)) and B(2k) / 2k, for k = 1, 2, ...: coefficients of both expansions
LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def result_type(x: Tensor) -> torch.dtype:
    """Returns the type of a function of x whose values are not integers."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _series(inverse: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Returns a polynomial of 1 / z^2, by Horner's scheme."""
    square = inverse * inverse
    total = torch.full_like(inverse, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * square + c
    return total


def lgamma(x: Tensor) -> Any:
    """Returns log|gamma(x)|, computed in float64, since large terms cancel near its zeros at 1 and 2."""
    if x.is_complex():
        return NotImplemented
    wide = x.double()
    y = torch.where(wide < 0.5, 1 - wide, wide)
    small = y < SHIFT
    product = y
    for k in range(1, SHIFT):
        product = product * (y + k)
    z = torch.where(small, y + SHIFT, y)
    # not (z - 1/2) log z - z, which is inf - inf at infinity
    found = (z - 0.5) * (z.log() - 1) - 0.5 + 0.5 * math.log(2 * math.pi) + _series(1 / z, LOG_GAMMA) / z
    found = found - torch.where(small, product, 1.0).log()
    fraction = wide - wide.floor()
    mirrored = math.log(math.pi) - (fraction * math.pi).sin().log() - found
    mirrored = torch.where((fraction == 0) | wide.isinf(), math.inf, mirrored)  # poles, and torch's result at -inf
    return torch.where(wide < 0.5, mirrored, found).to(result_type(x))


def digamma(x: Tensor) -> Any:
    """Returns the derivative of `lgamma`, computed in float64."""
    if x.is_complex():
        return NotImplemented
    wide = x.double()
    y = torch.where(wide < 0.5, 1 - wide, wide)
    small = y < SHIFT
    steps = 1 / y
    for k in range(1, SHIFT):
        steps = steps + 1 / (y + k)
    z = torch.where(small, y + SHIFT, y)
    found = z.log() - (0.5 + _series(1 / z, DIGAMMA) / z) / z - torch.where(small, steps, 0.0)
    fraction = wide - wide.floor()
    mirrored = found - math.pi / (fraction * math.pi).tan()
    pole = torch.where(wide == 0, -1 / wide, math.nan)  # at zero infinite, of the other sign
    mirrored = torch.where(fraction == 0, pole, mirrored)
    return torch.where(wide < 0.5, mirrored, found).to(result_type(x))


# polynomials of the inverse error function divided by x in w = -log(1 - x^2), the constant term last: for w below 6.25 around
# 3.125, below 16 in sqrt(w) around 3.25, and above around 5 (M. Giles, Approximating the erfinv function, 2012)
ERFINV = (
    (
        -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
        -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
        -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
        -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
        -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356,
    ),
    (
        2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
        1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
        -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
        0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
        0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635,
    ),
    (
        -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
        7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
        2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
        7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
        4.8499064014085844221,
    ),
)  # fmt: skip


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Returns a polynomial, the constant term first."""
    total = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def erfinv(x: Tensor) -> Tensor:
    """Returns the inverse of the error function, computed in float64: infinite at -1 and 1, NaN beyond."""
    wide = x.double()
    w = ((1 - wide) * (1 + wide)).log().neg()
    root = w.sqrt()
    parts = [_polynomial(at, terms[::-1]) for at, terms in zip((w - 3.125, root - 3.25, root - 5), ERFINV, strict=True)]
    found = wide * torch.where(w < 6.25, parts[0], torch.where(w < 16, parts[1], parts[2]))
    ends = torch.where(wide.abs() == 1, wide * math.inf, math.nan)
    return torch.where(wide.abs() < 1, found, ends).to(result_type(x))


def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """Returns the indices of the first `size` elements that are not zero, in rows; missing ones are filled."""
    if x.dim() == 0:  # an index of no axes
        return x.new_zeros((size, 0), dtype=torch.int64)
    marks = x.reshape(-1) != 0
    places = torch.arange(marks.shape[0], device=x.device)
    found = []
    for extent in reversed(x.shape):
        found.append(places % extent)
        places = places // extent
    rank = marks.cumsum(0) - 1
    row = torch.where(marks & (rank < size), rank, size)  # a further row takes the rest
    out = torch.full((size + 1, x.dim()), fill_value, dtype=torch.int64, device=x.device)
    return out.index_put((row,), torch.stack(found[::-1], 1))[:size].clone()


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Names the axis from the front: torch's metadata of the result has too many axes for a negative one."""
    if dim is None or dim >= 0:
        return NotImplemented
    return torch.ops.aten.unique_consecutive(x, return_inverse, return_counts, dim + max(x.dim(), 1))


def copysign(size: Tensor, sign: Tensor) -> Tensor:
    """Returns the magnitudes of x with the signs of y, including signs of zeros and NaN."""
    dtype = torch.result_type(size, sign)
    wide = size.to(dtype if dtype.is_floating_point else torch.get_default_dtype())
    return torch.where(wide.signbit() == sign.signbit(), wide, -wide)


def copysign_of_number(size: Tensor, sign: float) -> Tensor:
    """Returns the magnitudes of x with the sign of a number."""
    wide = size.to(result_type(size)).abs()
    return -wide if math.copysign(1.0, sign) < 0 else wide


def _doubled(values: Sequence[Tensor], dim: int, combine: Callable[..., Sequence[Tensor]]) -> Sequence[Tensor]:
    """Returns an inclusive scan along an axis by recursive doubling (Hillis and Steele).

    combine: associative function of earlier and later values.
    """
    size, step = values[0].shape[dim], 1
    while step < size:
        earlier = [v.narrow(dim, 0, size - step) for v in values]
        later = [v.narrow(dim, step, size - step) for v in values]
        joined = combine(earlier, later)
        values = [torch.cat([v.narrow(dim, 0, step), j], dim) for v, j in zip(values, joined, strict=True)]
        step *= 2
    return values


def _unknown(x: Tensor, dim: int) -> bool:
    """Returns True if the number of doublings is not known at trace time."""
    return x.dim() > 0 and not isinstance(x.shape[dim], int)


def _running(x: Tensor, dim: int, exceeds: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Returns cumulative extremes and the last index of each; NaN exceeds everything."""
    if _unknown(x, dim):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    shape = [1] * x.dim()
    shape[dim] = -1
    places = torch.arange(x.shape[dim], device=x.device).view(shape).expand_as(x)

    def combine(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
        taken = exceeds(later[0], earlier[0])
        if x.is_floating_point():
            taken = later[0].isnan() | (taken & earlier[0].isnan().logical_not())
        return [torch.where(taken, b, a) for a, b in zip(earlier, later, strict=True)]

    values, found = _doubled([x, places], dim, combine)
    return values.clone(), found.clone()


def running_maximum(x: Tensor, dim: int) -> Any:
    """Returns the cumulative maximum along an axis, and its index."""
    return _running(x, dim, torch.ge)


def running_minimum(x: Tensor, dim: int) -> Any:
    """Returns the cumulative minimum along an axis, and its index."""
    return _running(x, dim, torch.le)


def logcumsumexp(x: Tensor, dim: int) -> Any:
    """Returns log(cumsum(exp(x))), computed in log space."""
    if x.is_complex() or _unknown(x, dim):
        return NotImplemented
    if x.dim() == 0:
        return x.clone()
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    (found,) = _doubled([wide], dim, lambda earlier, later: [torch.logaddexp(earlier[0], later[0])])
    return found.to(x.dtype).clone()


def searchsorted(
    rows: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Returns insertion points of values in sorted rows; NaN sorts last."""
    if sorter is not None:
        rows = rows.gather(-1, sorter)
    common = torch.promote_types(rows.dtype, values.dtype)
    among, sought = rows.to(common), values.to(common)
    # a single row applies to values of any rank; several rows to their own values
    among = among if rows.dim() == 1 else among.unsqueeze(-2)
    behind = among > sought.unsqueeze(-1) if right or side == "right" else among >= sought.unsqueeze(-1)
    return behind.logical_not().sum(-1).to(torch.int32 if out_int32 else torch.int64)


def searchsorted_number(
    rows: Tensor,
    value: float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Returns the insertion point of a number in a sorted row."""
    sought = torch.scalar_tensor(value, dtype=rows.dtype if rows.is_floating_point() else None, device=rows.device)
    if not rows.is_floating_point() and isinstance(value, int):
        sought = torch.scalar_tensor(value, dtype=rows.dtype, device=rows.device)
    return searchsorted(rows, sought, out_int32=out_int32, right=right, side=side, sorter=sorter)


def fft_frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Returns the DFT sample frequencies for n samples of spacing d, negative ones last."""
    places = torch.arange(n, dtype=dtype or torch.get_default_dtype(), device=device)
    return torch.where(places < (n + 1) // 2, places, places - n) * (1 / (n * d))


def real_fft_frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Returns the nonnegative DFT sample frequencies."""
    return torch.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype(), device=device) * (1 / (n * d))
