"""Shortens chains of reshapes, transposes and broadcasts."""

from __future__ import annotations

import functools
from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Broadcast, Multibroadcast
from ..ops.movement import Contiguous, Transpose
from ..ops.operation import Operation
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..types.dim import Dim
from ..types.shape import Shape
from .engine import Builder, Rules
from .matching import one_user
from .view_chain import ViewChain, cost, regrouping

__all__ = ["RESHAPES"]

RESHAPES: Final = Rules("simplify-reshapes")

CHAIN: Final = (Reshape, Squeeze, Unsqueeze, Flatten, Transpose, Multibroadcast, Broadcast, Contiguous)
FREE: Final = (Reshape, Squeeze, Unsqueeze, Flatten, Multibroadcast, Broadcast, Contiguous)


def links(ins: Instruction) -> bool:
    """Returns True if an instruction is a view of one tensor of known rank."""
    return isinstance(ins.op, CHAIN) and len(ins.inputs) == 1 and isinstance(ins.result, Shape) and ins.result.ranked


@RESHAPES.on(*CHAIN)
def join_views(i: Instruction, b: Builder) -> Instruction | No | None:
    """A chain of reshapes, transposes and broadcasts -> the shortest with the same effect."""
    if not links(i):
        return None
    x = i.inputs[0]
    if x.result == i.result and not isinstance(i.op, Transpose):
        return x
    if not links(x):
        return _canonical(i, b)
    chain = [i]
    while len(chain) < 8 and links(x) and (one_user(x) or isinstance(x.op, FREE)):
        chain.append(x)
        x = x.inputs[0]
    if x.literal is not None and isinstance(i.op, (Multibroadcast, Broadcast, Squeeze, Unsqueeze)):
        return None  # rules look through these to find constants
    while chain:
        source = chain[-1].inputs[0]
        if isinstance(source.result, Shape) and source.result.ranked:
            made = shortest(source.result.dims, tuple((c.op, c.shape.dims) for c in reversed(chain)))
            if made is not None:
                for op in made:
                    source = b.add(op, source)
                return source
        chain.pop()
    return None


def _canonical(i: Instruction, b: Builder) -> Instruction | None:
    """Canonicalizes a single view: flatten, and transposes that only move axes of extent 1, become reshapes."""
    x = i.inputs[0]
    if not isinstance(x.result, Shape) or not x.result.ranked:
        return None
    if isinstance(i.op, Flatten):
        return b.add(regrouping(x.shape.dims, i.shape.dims)[0], x)
    if isinstance(i.op, Transpose):
        dims = x.shape.dims
        moved = [p for p in i.op.order(len(dims)) if dims[p] != 1]
        if moved == sorted(moved):
            return x if x.result == i.result else b.add(regrouping(dims, i.shape.dims)[0], x)
    return None


@functools.lru_cache(4096)
def shortest(
    dims: tuple[Dim, ...], chain: tuple[tuple[Operation, tuple[Dim, ...]], ...]
) -> tuple[Operation, ...] | None:
    """Returns fewer or cheaper ops equivalent to a chain of views (each with its result's extents), or None.

    Cached, because the layers of a model repeat their chains.
    """
    if any(d == 0 for lens in (dims, *(lens for _, lens in chain)) for d in lens):
        return None
    views = ViewChain(dims)
    for op, lens in chain:
        if not views.follow(op, lens):
            return None
    made = views.ops()
    return tuple(made) if cost(made) < cost([op for op, _ in chain]) else None
