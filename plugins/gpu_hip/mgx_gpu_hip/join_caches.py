"""Joins the attention of a decoder's new token with its rotation and with the copies that append it to the caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mgx_core import Instruction, Module, Pass, Shape
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import Group
from mgx_core.ops.rotary import RotaryEmbedding
from mgx_core.rules.outline import Names, outline

from .codegen.attention_decode import lanes_per_row
from .codegen.bodies import VIEWS
from .join_rows import outside_groups

__all__ = ["CACHED", "CachedAttention", "JoinCaches"]

CACHED: Final = "cached attention"  # tag of the groups
ATTENTION: Final = "attention"  # tag of the groups around products and softmax


class CachedAttention(NamedTuple):
    """An attention group, the concatenations that append to its two caches, and the rotations of its queries and new keys.

    caches: the concatenations by the position of the operand that reads them; turned: the rotations, of the queries by the
    position of the operand, of new keys by that of the cache.
    """

    attention: Instruction
    caches: dict[int, Instruction]
    turned: dict[int, Instruction]

    @classmethod
    def of(cls, attention: Instruction) -> CachedAttention | None:
        """Returns None if not exactly two operands are caches with one new token, which have the same extents and type."""
        sources = [source_of(i) for i in attention.inputs]
        caches = {n: i for n, i in enumerate(sources) if _grows_by_one(i)}
        if len(caches) != 2 or len(set(caches.values())) != 2 or len({i.shape for i in caches.values()}) != 1:
            return None
        made = {n: source_of(i.inputs[1]) if n in caches else i for n, i in enumerate(sources)}
        turned = {n: i for n, i in made.items() if _is_rotation(i)}
        return cls(attention, caches, turned)


def source_of(ins: Instruction) -> Instruction:
    """Returns the source of a chain of views of all elements."""
    while isinstance(ins.op, VIEWS):
        ins = ins.inputs[0]
    return ins


def _grows_by_one(ins: Instruction) -> bool:
    """Returns True for caches [batch, heads, keys, d] to which a key is appended, of a size `d` that the kernel takes."""
    if not isinstance(ins.op, Concat) or len(ins.inputs) != 2 or not all(map(_is_static, (ins, *ins.inputs))):
        return False
    rank = ins.shape.rank
    if rank != 4 or ins.op.axis % rank != 2 or ins.inputs[1].shape.lens()[2] != 1:
        return False
    return lanes_per_row(ins.shape.lens()[3], ins.shape.dtype) > 0


def _is_rotation(ins: Instruction) -> bool:
    """Returns True for rotations of one token, in all elements, by angles that are operands."""
    if not isinstance(ins.op, RotaryEmbedding) or ins.op.interleaved or len(ins.inputs) != 3 or not _is_static(ins):
        return False
    lens, angles = ins.shape.lens(), ins.inputs[1].shape
    return lens[2] == 1 and not angles.dynamic() and 2 * angles.lens()[-1] == lens[3]


def _is_static(ins: Instruction) -> bool:
    return isinstance(ins.result, Shape) and not ins.result.dynamic()


@dataclass(frozen=True)
class JoinCaches(Pass):
    """Groups the attention of one new token with the rotations of its query and key, and the copies of the caches with it.

    A decoder runs such a sequence per token and layer.  As four launches each waits for the one before, although it reads each
    key and value once to copy it and once more to use it.  If a target declines the group, its members run separately.
    """

    name: str = "join-caches"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in outside_groups(module)])
        changed = False
        for inner in list(outside_groups(module)):
            position = {i: n for n, i in enumerate(inner)}
            for ins in list(inner):
                if isinstance(ins.op, Group) and ins.op.tag == ATTENTION and ins.parent is inner:
                    changed |= _join(inner, ins, position, names)
        return changed


def _join(module: Module, attention: Instruction, position: Mapping[Instruction, int], names: Names) -> bool:
    found = CachedAttention.of(attention)
    if found is None or attention.next is None:
        return False
    kept = {attention, *found.caches.values()}
    inner = set(found.turned.values())  # the group does not return these
    for n, ins in enumerate(attention.inputs):
        if n in found.caches or n in found.turned:
            inner |= _moves(ins)
        if n in found.caches and n in found.turned:
            inner |= _moves(found.caches[n].inputs[1])
    members = kept | inner
    if any(m not in position or any(u not in members for u in m.users) for m in inner):
        return False
    outside = {cache: [u for u in cache.users if u not in members] for cache in found.caches.values()}
    if not all(
        readers and all(position.get(u, -1) > position[attention] for u in readers) for readers in outside.values()
    ):
        return False
    ordered = sorted(members, key=lambda i: position[i])
    outline(module, ordered, Group(tag=CACHED), names.fresh("cached_attention"), attention.next)
    return True


def _moves(ins: Instruction) -> set[Instruction]:
    """Returns the views that `source_of` passes."""
    found: set[Instruction] = set()
    while source_of(ins) is not ins:
        found.add(ins)
        ins = ins.inputs[0]
    return found
