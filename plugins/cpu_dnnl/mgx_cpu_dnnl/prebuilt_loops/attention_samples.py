"""Samples of attention as frontends produce it: products, a scale, a mask and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import mgx_core as mgx

from .network import Network, Value

__all__ = ["attentions"]

KEYS: Final = 64  # fills register tiles, as nearly all numbers of rows above 56 do
WINDOW: Final = 49  # rows of a 7 x 7 window, which fill tiles of seven
HEADS: Final = 4
WIDE: Final = (16, 32, 48, 64)  # head extents that fill tiles of one to four vectors
UNEVEN: Final = (24, 40, 72, 80)
NARROW: Final = 8  # less than a vector
FEW: Final = (6, 5, 4)  # rows of short sequences, with smaller tiles
SCALE: Final = 0.3  # arbitrary: it is a kernel parameter


def attentions() -> Iterator[mgx.Program]:
    """Heads of all extents, long and short sequences and decoding, masks by key and by row."""
    for head, rows, scaled in product((*WIDE, *UNEVEN), (KEYS, 1), (True, False)):
        masks = (None, (1, 1, 1, KEYS), (1, 1, rows, KEYS))
        for guarded in (False, True) if head in WIDE and scaled else (False,):
            yield from (_attention(head, rows, scaled, mask, guarded) for mask in masks)
    for head, mask in product((*WIDE, *UNEVEN), (None, (1, 1, 1, KEYS), (1, 1, WINDOW, KEYS))):
        yield _attention(head, WINDOW, True, mask, False)
    for rows in (KEYS, WINDOW, *FEW):
        yield from (_attention(NARROW, rows, True, mask, False) for mask in (None, (1, 1, 1, KEYS), (1, 1, rows, KEYS)))
    for head, rows, mask in product(WIDE, FEW, (None, (1, 1, 1, KEYS))):
        yield _attention(head, rows, True, mask, False)
    for head, rows in product(WIDE, (KEYS, WINDOW)):
        yield from (_turned(head, rows, None), _turned(head, rows, (1, HEADS, rows, KEYS)))


def _attention(head: int, rows: int, scaled: bool, mask: tuple[int, ...] | None, guarded: bool) -> mgx.Program:
    n = Network()
    q, k, v = n.input(1, HEADS, rows, head), n.input(1, HEADS, KEYS, head), n.input(1, HEADS, KEYS, head)
    scores = n.add("dot", q, n.transpose(k, 0, 1, 3, 2))
    if scaled:
        scores = n.each("mul", scores, SCALE)
    if mask:
        scores = n.each("add", scores, n.input(*mask))
    made = n.add("dot", _weights(n, scores, guarded), v)
    return n.finished(n.reshape(n.transpose(made, 0, 2, 1, 3), 1, rows, HEADS * head))


def _weights(n: Network, scores: Value, guarded: bool) -> Value:
    """Returns softmax; guarded: NaN, as in rows without keys, is replaced by 0."""
    made = n.add("softmax", scores, axis=scores.shape.rank - 1)
    return n.each("where", n.add("isnan", made), 0.0, made) if guarded else made


def _turned(head: int, rows: int, mask: tuple[int, ...] | None) -> mgx.Program:
    """Attention with keys stored as [.., d, n], as convolutions produce them."""
    n = Network()
    q, k, v = n.input(1, HEADS, rows, head), n.input(1, HEADS, head, KEYS), n.input(1, HEADS, KEYS, head)
    scores = n.each("mul", n.add("dot", q, k), SCALE)
    if mask:
        scores = n.each("add", scores, n.input(*mask))
    return n.finished(n.add("dot", _weights(n, scores, False), v))
