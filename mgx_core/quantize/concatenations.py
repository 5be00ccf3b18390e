"""Quantizes chains of concatenations over one range, so that their parts are moved as 8-bit values and rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.concat import Concat

__all__ = ["joined_ranges"]

WIDER: Final = 1.5  # maximum ratio of the common range to a tensor's own

Ranges = Mapping[Instruction, tuple[float, float]]


class _Readers(NamedTuple):
    """Readers of a concatenation: parts that are quantized, and concatenations of its parts."""

    rounded: list[Instruction]
    joined: list[Instruction]


def joined_ranges(limits: Ranges) -> tuple[dict[Instruction, tuple[float, float]], set[Instruction]]:
    """Returns ranges over which concatenations should be quantized, and their parts that then need no rounding.

    limits: ranges of quantized tensors.  Every use of such a concatenation is a quantized tensor, a moved part of it, or another
    such concatenation, so that each element is rounded once (as in networks that pass on half of their channels).  Tensors keep
    their own range if the common one is much wider.
    """
    found = _concatenations(limits)
    ranges: dict[Instruction, tuple[float, float]] = {}
    parts: set[Instruction] = set()
    for group in _groups(found):
        ends = {t for concat in group for t in (*found[concat].rounded, *found[concat].joined) if t in limits}
        low, high = min(limits[t][0] for t in ends), max(limits[t][1] for t in ends)
        if all(high - low <= WIDER * (limits[t][1] - limits[t][0]) for t in ends):
            ranges |= dict.fromkeys((*group, *ends), (low, high))
            parts.update(t for concat in group for t in found[concat].rounded)
    return ranges, parts


def _concatenations(limits: Ranges) -> dict[Instruction, _Readers]:
    """Returns the concatenations whose only readers are quantized moved parts and further concatenations."""
    found: dict[Instruction, _Readers] = {}
    for tensor in limits:
        source = tensor
        while source.op.moves and not isinstance(source.op, Concat):
            source = source.inputs[0]
        if source is not tensor and isinstance(source.op, Concat) and source not in limits and source not in found:
            readers = _readers(source, limits)
            if readers is not None:
                found[source] = readers
    while lost := [c for c, readers in found.items() if not all(j in found or j in limits for j in readers.joined)]:
        for concat in lost:
            del found[concat]
    return found


def _readers(source: Instruction, limits: Ranges) -> _Readers | None:
    readers = _Readers([], [])
    pending = [source]
    while pending:
        for user in pending.pop().users:
            if isinstance(user.op, Concat):
                readers.joined.append(user)
            elif not user.op.moves or user.parent is not source.parent:
                return None
            elif user in limits:
                readers.rounded.append(user)
            else:
                pending.append(user)
    return readers


def _groups(found: Mapping[Instruction, _Readers]) -> list[list[Instruction]]:
    """Groups concatenations into chains, in which one concatenates parts of another."""
    group = {concat: [concat] for concat in found}
    for concat, readers in found.items():
        for other in readers.joined:
            if other in found and group[other] is not group[concat]:
                both = group[concat] + group[other]
                group.update(dict.fromkeys(both, both))
    return list({id(g): g for g in group.values()}.values())
