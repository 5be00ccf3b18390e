"""Padding: constants, mirrored or repeated edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction

from ..complex_parts import by_parts
from ..node import Node

__all__: list[str] = []


def padded(n: Node, x: Instruction, pad: Sequence[Any], mode: str, value: Any) -> Instruction:
    """Pads x; pads are (begin, end) pairs from the last axis backwards."""
    rank = x.shape.rank
    begins, ends = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        begins[rank - 1 - i], ends[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    pads = (*begins, *ends)
    if all(p == 0 for p in pads):
        return x
    if mode != "constant":
        if mode == "wrap" or all(not isinstance(p, int) or p >= 0 for p in pads):
            return n.add("pad", x, pads=pads, mode=mode)
        # pads other than circular ones may repeat at one end what is cropped at the other: pad first, then crop
        x = n.add("pad", x, pads=tuple(max(p, 0) if isinstance(p, int) else p for p in pads), mode=mode)
        axes = range(rank)
        firsts = [max(-p, 0) if isinstance(p, int) else 0 for p in begins]
        lasts = [x.shape.dims[a] + (min(p, 0) if isinstance(p, int) else 0) for a, p in zip(axes, ends, strict=True)]
        return n.slice(x, axes, firsts, lasts)
    given = n.tensor(0 if value is None else value, x.shape.dtype)
    return n.add("pad", x, None, given, pads=pads)


@by_parts("constant_pad_nd")
def constant_pad(n: Node, x: Instruction, pad: Sequence[Any], value: Any = 0) -> Instruction:
    return padded(n, x, pad, "constant", value)


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@by_parts("pad")
def pad_(n: Node, x: Instruction, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Instruction:
    return padded(n, x, pad, MODES[mode], value)


for _rank in (1, 2, 3):
    by_parts(f"reflection_pad{_rank}d")(lambda n, x, pad: padded(n, x, pad, "reflect", None))
    by_parts(f"replication_pad{_rank}d")(lambda n, x, pad: padded(n, x, pad, "edge", None))
