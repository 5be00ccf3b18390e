"""Merges sums of convolutions of the same tensor (structural re-parameterization, as in RepVGG and MobileOne)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.convolution import Convolution
from ..ops.pointwise import Add, Mul, Sub
from ..ops.scalar import convert, widen
from ..ops.window import per_axis, sides
from ..types.argument import Array
from .constants import aligned, along, finite, is_constant, split
from .engine import ROUNDING, Builder, Rules
from .matching import one_user

__all__ = ["CONVOLUTION_SUMS"]

CONVOLUTION_SUMS: Final = Rules("simplify-convolution-sums")

MOST: Final = 32  # the most terms of a sum that are examined

Term = tuple[Instruction, int]  # with its sign


@CONVOLUTION_SUMS.on(Add, Sub, reads=(Convolution, Add, Sub), changes=ROUNDING)
def sum_of_convolutions_of_one_tensor(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x, w) + convolution(x, v) -> convolution(x, w + v), padding small kernels; x * s counts as 1x1."""
    if not i.shape.dtype.is_float:
        return None
    terms = _terms(i)
    bases = [t for t in terms if isinstance(t[0].op, Convolution) and _kernels(t[0]) is not None]
    if not bases:
        return None
    bases.sort(key=lambda t: -t[0].inputs[1].shape.elements())
    why = None
    for base in bases:
        x = base[0].inputs[0]
        same = [t for t in terms if t[0] is not base[0] and _source(t[0]) is x]
        found = [(t, w) for t in same if (w := _aligned_kernels(base[0], t[0])) is not None]
        alone = [(t, w) for t, w in found if one_user(t[0])]
        if alone and one_user(base[0]):
            taken = [id(t) for t, _ in alone]
            return _joined(b, base, alone, [t for t in terms if t is not base and id(t) not in taken])
        if found:
            why = No("a branch has other users")
        elif same and why is None:
            why = No("strides, groups or positions of the windows differ")
    return why


def _terms(i: Instruction) -> list[Term]:
    """Returns the terms of a sum of sums that nothing else reads; fewer, some of them sums, where there are very many."""
    found = _operands(i, 1)
    at = 0
    while at < len(found) < MOST:
        term, sign = found[at]
        inner = isinstance(term.op, Add | Sub) and one_user(term) and term.parent is i.parent
        if inner and term.shape.dims == i.shape.dims:
            found[at : at + 1] = _operands(term, sign)
        else:
            at += 1
    return found


def _operands(i: Instruction, sign: int) -> list[Term]:
    x, y = i.inputs
    return [(x, sign), (y, -sign if isinstance(i.op, Sub) else sign)]


def _kernels(term: Instruction) -> Array | None:
    """Returns the constant kernels of a convolution, widened."""
    literal = term.inputs[1].literal
    return None if literal is None or not isinstance(literal.value, np.ndarray) else widen(literal.value)


def _source(term: Instruction) -> Instruction | None:
    """Returns the operand of a convolution or of a product with a constant.

    Other terms are not merged: a convolution adds them in its epilogue at no cost.
    """
    if isinstance(term.op, Convolution):
        return term.inputs[0]
    found = split(term) if isinstance(term.op, Mul) else None
    return None if found is None else found[0]


def _aligned_kernels(base: Instruction, term: Instruction) -> Array | None:
    """Returns a term on the same operand as `base` as kernels over the windows of `base`; None if it has no such form."""
    op, w = base.op, base.inputs[1].shape
    assert isinstance(op, Convolution)
    lengths = [n for n in w.dims[2:] if isinstance(n, int)]
    if isinstance(term.op, Convolution):
        kernels = _kernels(term)
        return None if kernels is None else _padded_kernels(op, lengths, term.op, kernels)
    factors = _factors(term)
    channels, inner = w.dims[:2]
    if factors is None or not isinstance(channels, int) or not isinstance(inner, int) or channels != op.group * inner:
        return None
    one = np.zeros((channels, inner, *(1 for _ in lengths)), np.result_type(factors, np.float32))
    every = np.arange(channels)
    one.reshape(channels, inner)[every, every % inner] = factors
    return _padded_kernels(op, lengths, Convolution(group=op.group), one)


def _factors(term: Instruction) -> Array | None:
    """Returns the factors for each channel of a product with a constant."""
    found = split(term)
    value = None if found is None else aligned(found[1])
    vector = None if value is None else along(value, term.shape.rank, 1)
    return None if vector is None else widen(vector)


def _padded_kernels(base: Convolution, lengths: Sequence[int], part: Convolution, kernels: Array) -> Array | None:
    """Returns kernels padded with zeros to the windows of `base`, equivalent to those of `part`."""
    rank = len(lengths)
    if base.group != part.group or base.padding_mode != "default" or part.padding_mode != "default":
        return None
    if per_axis(base.stride, rank, "stride") != per_axis(part.stride, rank, "stride"):
        return None
    places = list(_places(base, part, lengths, kernels.shape[2:]))
    if any(not 0 <= p < n for own, n in zip(places, lengths, strict=True) for p in own):
        return None
    wide = np.zeros((*kernels.shape[:2], *lengths), kernels.dtype)
    wide[np.ix_(*map(range, kernels.shape[:2]), *places)] = kernels
    return wide


def _places(
    base: Convolution, part: Convolution, lengths: Sequence[int], own: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yields for each axis the positions in the windows of `base` of the elements of those of `part`; -1 if between two."""
    rank = len(lengths)
    axes = zip(
        own,
        *(per_axis(c.dilation, rank, "dilation") for c in (base, part)),
        *(sides(c.padding, rank)[0] for c in (base, part)),
        strict=True,
    )
    for n, step, part_step, begin, part_begin in axes:
        offsets = [t * part_step - part_begin + begin for t in range(n)]
        yield tuple(-1 if o % step else o // step for o in offsets)


def _joined(b: Builder, base: Term, found: Sequence[tuple[Term, Array]], left: Sequence[Term]) -> Instruction | No:
    """Returns the convolution with the sum of all kernels, plus the other terms, constants first."""
    convolution, sign = base
    kernels = _kernels(convolution)
    assert kernels is not None
    with np.errstate(all="ignore"):
        total = sum((s * w for (_, s), w in found), sign * kernels)
        summed = convert(np.asarray(total), convolution.shape.dtype)
    if not finite(summed):
        return No("the weights would overflow")
    result = b.add(convolution.op, convolution.inputs[0], b.literal(summed))
    for term, s in sorted(left, key=lambda t: not is_constant(t[0])):
        result = b.add(Add() if s > 0 else Sub(), result, term)
    return result
