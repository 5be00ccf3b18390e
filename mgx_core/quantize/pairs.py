"""Sums and products of the results of two convolutions: one waits in memory for the other, as bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ..ir.instruction import Instruction
from ..ops.convolution import Convolution
from ..ops.elementwise import Pointwise
from ..ops.pointwise import Add, Mul
from ..rules.outline import through_views

__all__ = ["CHANNELS", "Pair", "pairs"]

CHANNELS: Final = 1  # the axis of them


class Pair(NamedTuple):
    """Two tensors that are added or multiplied, each made from a convolution of its own."""

    one: Instruction
    other: Instruction


def pairs(products: Iterable[Instruction], rounded: Collection[Instruction]) -> list[Pair]:
    """Returns what is added or multiplied, of two of these convolutions, where that is rounded, as it is or after functions.

    Such are the ends of residual blocks with a convolution beside them, and gates.
    """
    ends = set(rounded)
    made: dict[Instruction, Instruction] = {}  # from a convolution, and what reads it
    for product in products:
        if isinstance(product.op, Convolution):
            at, reader = _last(product)
            if reader is None or not isinstance(reader.op, (Add, Mul)) or not at.shape.dtype.is_float:
                continue
            if at not in ends and _rounded(reader, ends):
                made[at] = reader
    found = (reader.inputs for reader in dict.fromkeys(made.values()))
    return [Pair(one, other) for one, other in found if one is not other and one in made and other in made]


def _last(product: Instruction) -> tuple[Instruction, Instruction | None]:
    """Returns what constants and functions make of a product, and what reads that with others; None for several readers."""
    at = product
    while len(at.users) == 1 and at.users[0].parent is product.parent:
        reader = at.users[0]
        if not isinstance(reader.op, Pointwise) or any(
            i is not at and not through_views(i).is_literal for i in reader.inputs
        ):
            return at, reader
        at = reader
    return at, None


def _rounded(result: Instruction, ends: Collection[Instruction]) -> bool:
    """Returns True if a result, or a function of it that alone reads it, is rounded."""
    at = result
    while at not in ends:
        if len(at.users) != 1 or at.users[0].parent is not result.parent:
            return False
        at = at.users[0]
        if not isinstance(at.op, Pointwise) or len(at.inputs) != 1:
            return False
    return True
