"""Decompositions of functions of integers, and of the representation of floating-point numbers."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["frexp", "gcd", "lcm", "nextafter"]

# Euclid's algorithm with remainders of at most half the divisor divides at least by 1 + sqrt(2) in each step
STEPS = {8: 7, 16: 13, 32: 26, 64: 51}


def gcd(x: Tensor, y: Tensor) -> Tensor:
    """Returns the greatest common divisor, by Euclid's algorithm with the number of steps that the type may need."""
    kind = torch.result_type(x, y)
    x, y = x.to(kind).abs(), y.to(kind).abs()
    # the lowest number has no magnitude of its type and stays negative, which `%` takes on its left side only
    larger, smaller = torch.where(y < 0, y, x), torch.where(y < 0, x, y)
    for _ in range(STEPS[torch.iinfo(kind).bits]):
        divisor = torch.where(smaller == 0, 1, smaller)
        rest = larger % divisor
        larger, smaller = torch.where(smaller == 0, larger, smaller), torch.minimum(rest, divisor - rest)
    return larger


def lcm(x: Tensor, y: Tensor) -> Tensor:
    """Returns the least common multiple, which is 0 if one of the numbers is."""
    found = gcd(x, y)
    wide = torch.promote_types(found.dtype, torch.int32)  # torch multiplies in it, which decides how results wrap
    return ((x // torch.where(found == 0, 1, found)).to(wide) * y.to(wide)).abs().to(found.dtype)


# integers of the same size, bits of the fraction, and the smallest exponent of normal numbers
FORMATS = {
    torch.float32: (torch.int32, 23, -126),
    torch.float64: (torch.int64, 52, -1022),
    torch.float16: (torch.int16, 10, -14),
    torch.bfloat16: (torch.int16, 7, -126),
}


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """Returns the number after x in the direction of y: its representation as an integer plus or minus one."""
    kind = torch.result_type(x, y)
    x, y = torch.broadcast_tensors(x.to(kind), y.to(kind))
    integer = FORMATS[kind][0]
    bits = x.contiguous().view(integer)
    outward = (x < y) == (x > 0)
    found = torch.where(outward, bits + 1, bits - 1)
    lowest = torch.where(y < 0, torch.iinfo(integer).min + 1, 1).to(integer)  # beside zero
    found = torch.where(x == 0, lowest, found).view(kind)
    return torch.where(x.isnan() | y.isnan(), x + y, torch.where(x == y, y, found))


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns fractions in [0.5, 1) and exponents of two; numbers that are not finite have the exponent 0."""
    integer, places, smallest = FORMATS[x.dtype]
    half = -smallest  # the exponent field of the numbers from 0.5 to 1
    tiny = x.abs() < 2.0**smallest
    raised = torch.where(tiny, places + 1, 0).to(torch.int32)
    bits = torch.where(tiny, x * 2.0 ** (places + 1), x).contiguous().view(integer)
    mask = (2 * half + 3) << places
    exponent = ((bits & mask) >> places).to(torch.int32) - half - raised
    fraction = ((bits & ~mask) | (half << places)).view(x.dtype)
    plain = (x == 0) | ~x.isfinite()
    return torch.where(plain, x, fraction), torch.where(plain, 0, exponent).to(torch.int32)
