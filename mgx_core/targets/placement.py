"""Where lowering put each instruction, and why not elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Placement"]


@dataclass(slots=True)
class Placement:
    """Where one instruction went: the op's text, its source nodes, ``target`` or ``host``, the kernel, and every refusal."""

    op: str
    sources: tuple[str, ...]
    place: str
    kernel: str
    refused: tuple[str, ...] = ()
