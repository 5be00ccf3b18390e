"""Placement of each instruction by lowering, with the refusals before it."""

from __future__ import annotations

from ..records import dataclass

__all__ = ["Placement"]


@dataclass
class Placement:
    """Placement of one instruction: the op's text, its source nodes, ``target`` or ``host``, the kernel, and every refusal."""

    op: str
    sources: tuple[str, ...]
    place: str
    kernel: str
    refused: tuple[str, ...] = ()
