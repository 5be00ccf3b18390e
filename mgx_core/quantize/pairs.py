"""Finds sums and products of two convolution results, of which the one stored until the other is computed uses 8 bits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.convolution import Convolution
from ..ops.elementwise import Pointwise
from ..ops.pointwise import Add, Mul
from ..rules.outline import through_views

__all__ = ["CHANNELS", "Pair", "pairs"]

CHANNELS: Final = 1  # channel axis


class Pair(NamedTuple):
    """Two tensors that are added or multiplied, each computed from its own convolution."""

    one: Instruction
    other: Instruction


def pairs(products: Iterable[Instruction], rounded: Collection[Instruction]) -> list[Pair]:
    """Returns pairs of results of these convolutions whose sum or product is quantized, directly or after functions.

    Examples: residual blocks with a convolution in the shortcut, and gates.
    """
    ends = set(rounded)
    made: dict[Instruction, Instruction] = {}  # from a convolution, and its reader
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
    """Follows a product through constants and functions to its binary reader; returns both, None if there are several readers."""
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
    """Returns True if a result, or a function that is its only reader, is quantized."""
    at = result
    while at not in ends:
        if len(at.users) != 1 or at.users[0].parent is not result.parent:
            return False
        at = at.users[0]
        if not isinstance(at.op, Pointwise) or len(at.inputs) != 1:
            return False
    return True
