"""Strings composed of others: segment joins and string templates."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_memory

from .text import strings

__all__: list[str] = []


@op("tf_segment_join", exact=True)
class SegmentJoin(Operation):
    """The strings of each segment, joined.

    x: string [n], segments: int64 [n], count: int64, one element -> string [count].
    Errors: ShapeError for segment ids out of range.  Source: TensorFlow UnsortedSegmentJoin.
    """

    separator: str = ""

    def infer(self, x: Shape, segments: Shape, count: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.string, (fresh("segments"),))

    def compute(self, x: Array, segments: Array, count: Array) -> Array:
        total = int(count.reshape(-1)[0])
        require_memory((max(total, 0),), 64)
        rows: list[list[str]] = [[] for _ in range(total)]
        for word, at in zip(x.tolist(), segments.tolist(), strict=True):
            if at >= total:
                raise ShapeError(f"segment ids must be in 0..{total - 1}, got {at}")
            if at >= 0:
                rows[at].append(word)
        out = np.empty(total, object)
        out[:] = [self.separator.join(row) for row in rows]
        return out


# of characters in strings that are written as elements of a tensor
ESCAPES: Final = {
    **{code: f"\\{code:03o}" for code in (*range(32), 127)},
    **str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}),
}


@op("tf_string_format", exact=True)
class StringFormat(Operation):
    """A template whose placeholders are replaced by tensors; long axes are abbreviated to their first and last `most` elements.

    xs: any -> string [].  Errors: ShapeError if the number of placeholders differs.  Source: TensorFlow StringFormat.
    """

    template: str
    placeholder: str
    most: int = 3

    def infer(self, *xs: Shape) -> Shape:
        return Shape.of(dt.string, ())

    def compute(self, *xs: Array) -> Array:
        parts = self.template.split(self.placeholder)
        if len(parts) != len(xs) + 1:
            raise ShapeError(f"{len(parts) - 1} tensors are required, one per placeholder, got {len(xs)}")
        words = [self._text(x, 1) for x in xs]
        made = parts[0] + "".join(w + p for w, p in zip(words, parts[1:], strict=True))
        return np.array(made, object)

    def _text(self, x: Array, level: int) -> str:
        """Formats a tensor; level: its nesting depth in the outermost tensor, from 1, for indentation."""
        if not x.ndim:
            value: Any = x[()]
            if x.dtype == object:
                return f'"{value.translate(ESCAPES)}"'
            return f"{value:.6g}" if x.dtype.kind == "f" else str(int(value) if x.dtype.kind == "b" else value)
        gap = " " if x.ndim == 1 else "\n" * (x.ndim - 1) + " " * level
        whole = not 0 <= self.most * 2 < len(x)
        rows = range(len(x)) if whole else [*range(self.most), *range(len(x) - self.most, len(x))]
        texts = [self._text(x[k, ...], level + 1) for k in rows]
        if not whole:
            # TensorFlow writes a separator before the ellipsis even if no element precedes it
            texts[: self.most] = [gap.join(texts[: self.most]) + gap + "..."]
        return "[" + gap.join(texts) + "]"
