"""Converts channels-last (NHWC) models to ops with the channel axis second, with transposes only at the network's boundaries.

A window op on [n, *s, c] becomes one on [n, c, *s] followed by a transpose. Later elementwise ops, reductions, concatenations and
pads operate on the untransposed value and transpose only their result, so adjacent transposes cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from ..errors import MgxError, ParseError
from ..ir.instruction import Instruction
from ..ops.elementwise import Pointwise
from ..ops.movement import Transpose
from ..ops.operation import Operation
from ..ops.window import same_padding
from ..plugins.operations import make_op
from ..types.dim import Dim, ceil_div, maximum
from ..types.dtype import int64
from .builder import InstructionBuilder

__all__ = ["ChannelsLastBuilder", "Padding", "explicit"]

Padding = Literal["same", "valid"] | Sequence[tuple[int, int]]  # a mode, or (before, after) of each spatial axis

SMALL: Final = 1 << 13  # largest literal, in elements, that is folded at parse time
FLOATS: Final = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


def to_last(rank: int) -> tuple[int, ...]:
    """Returns the permutation from [n, c, *s] to [n, *s, c]."""
    return (0, *range(2, rank), 1)


def to_second(rank: int) -> tuple[int, ...]:
    """Returns the permutation from [n, *s, c] to [n, c, *s]."""
    return (0, rank - 1, *range(1, rank - 1))


class ChannelsLastBuilder(InstructionBuilder):
    """A builder for formats whose images are [n, *s, c]."""

    # moves

    def channels_second(self, x: Instruction) -> Instruction:
        """Returns x [n, *s, c] as [n, c, *s]; cancels an earlier `channels_last`."""
        return self.unmoved(x) or self.transpose(x, to_second(x.shape.rank))

    def channels_last(self, x: Instruction) -> Instruction:
        """Returns x [n, c, *s] as [n, *s, c]."""
        return self.transpose(x, to_last(x.shape.rank))

    def unmoved(self, x: Instruction) -> Instruction | None:
        """Returns the value [n, c, *s] of which x [n, *s, c] is a transpose, else None."""
        if isinstance(x.op, Transpose) and x.shape.rank > 2 and x.op.permutation == to_last(x.shape.rank):
            return x.inputs[0]
        return None

    def apply_before_transpose(self, x: Instruction, work: Callable[[Instruction], Instruction]) -> Instruction:
        """Applies axis-independent `work` to x; if x is a transposed [n, c, *s], to that value, and transposes the result."""
        inner = self.unmoved(x)
        return work(x) if inner is None else self.channels_last(work(inner))

    def pointwise(self, op: Operation | str, *xs: Instruction, **attributes: Any) -> Instruction:
        folded = self._folded(op, xs, attributes)
        if folded is not None:
            return folded
        if not all(x.shape.ranked for x in xs):
            return super().pointwise(op, *xs, **attributes)
        rank = max(x.shape.rank for x in xs)
        if not any(x.shape.rank == rank and self.unmoved(x) is not None for x in xs):
            return super().pointwise(op, *xs, **attributes)
        inner = [self._channels_second_operand(x, rank) for x in xs]
        return self.channels_last(super().pointwise(op, *inner, **attributes))

    def _folded(
        self, op: Operation | str, xs: Sequence[Instruction], attributes: Mapping[str, Any]
    ) -> Instruction | None:
        """Returns the folded literal of a pointwise op on small literals of one float type, else None.

        Normalizations are stored as several ops on statistics, a fifth of a network's nodes; folding them here is cheapest.
        """
        values = [x.literal.value for x in xs if x.literal is not None]
        if len(values) < len(xs) or not all(isinstance(v, np.ndarray) and v.size <= SMALL for v in values):
            return None
        kinds = {v.dtype for v in values}
        if len(kinds) != 1 or not kinds <= FLOATS:
            return None
        made = make_op(op, **attributes) if isinstance(op, str) else op
        if not isinstance(made, Pointwise):
            return None
        try:
            return self.literal(np.asarray(made.evaluate(values)))
        except MgxError:
            return None  # reported by the op's shape inference

    def _channels_second_operand(self, x: Instruction, rank: int) -> Instruction:
        """Returns x, broadcastable to [n, *s, c], in a form broadcastable to [n, c, *s]."""
        if all(d == 1 for d in x.shape.dims):
            return x if x.shape.rank < 2 else self.reshape(x, (1,) * x.shape.rank)
        if x.shape.rank == 1:
            return self.reshape(x, (x.shape.dims[0], *(1,) * (rank - 2)))
        if x.shape.rank < rank:
            x = self.reshape(x, (*(1,) * (rank - x.shape.rank), *x.shape.dims))
        return self.channels_second(x)

    def convert(self, x: Instruction, dtype: Any) -> Instruction:
        return self.apply_before_transpose(x, lambda inner: InstructionBuilder.convert(self, inner, dtype))

    def along_axes(self, op: type[Operation], x: Instruction, axes: Sequence[int], **attributes: Any) -> Instruction:
        """Returns an op with an attribute `axes` that keeps the rank: a reduction."""
        chosen = self.axes(axes, x.shape.rank)
        inner = self.unmoved(x)
        if inner is None:
            return self.add(op(axes=chosen, **attributes), x)
        order = to_last(x.shape.rank)
        return self.channels_last(self.add(op(axes=tuple(sorted(order[a] for a in chosen)), **attributes), inner))

    def concat(self, xs: Sequence[Instruction], axis: int) -> Instruction:
        """Returns tensors joined along an axis."""
        if len(xs) == 1:
            return xs[0]
        rank = xs[0].shape.rank
        (at,) = self.axes([axis], rank)
        if any(x.shape.rank != rank for x in xs) or all(self.unmoved(x) is None for x in xs):
            return self.add("concat", *xs, axis=at)
        inner = [self.channels_second(x) for x in xs]
        return self.channels_last(self.add("concat", *inner, axis=to_last(rank)[at]))

    def padded(
        self, x: Instruction, pads: Sequence[tuple[Dim, Dim]], value: float = 0.0, mode: str = "constant"
    ) -> Instruction:
        """Returns x padded before and after each axis."""
        if all(isinstance(p, int) and p == 0 for pair in pads for p in pair):
            return x
        if len(pads) != x.shape.rank:
            raise ParseError(f"two pads per axis are required, got {len(pads)} pairs for rank {x.shape.rank}")
        inner = self.unmoved(x)
        if inner is not None:
            pads = [pads[a] for a in to_second(x.shape.rank)]
        widths = (*(b for b, _ in pads), *(e for _, e in pads))
        made = self.add("pad", x if inner is None else inner, pads=widths, mode=mode, value=value)
        return made if inner is None else self.channels_last(made)

    # windows

    def convolution(
        self,
        x: Instruction,
        w: Instruction,
        stride: Sequence[int],
        padding: Padding,
        dilation: Sequence[int] = (),
        group: int | None = None,
    ) -> Instruction:
        """Convolves x [n, *s, c] with w [m, c/group, *k] -> [n, *o, m].  group: inferred from the channels by default."""
        inner = self.channels_second(x)
        rank = inner.shape.rank - 2
        dilation = tuple(dilation) or (1,) * rank
        if group is None:
            channels, taken = inner.shape.dims[1], w.shape.dims[1]
            if not isinstance(channels, int) or not isinstance(taken, int):
                group = 1
            elif not taken or channels % taken:
                raise ParseError(f"the kernel's {taken} input channels do not divide the image's {channels}")
            else:
                group = channels // taken
        pads = explicit(inner.shape.dims[2:], w.shape.dims[2:], stride, dilation, padding)
        made = self.add("convolution", inner, w, stride=tuple(stride), dilation=dilation, group=group, **pads)
        return self.channels_last(made)

    def transposed_convolution(
        self,
        x: Instruction,
        w: Instruction,
        extents: Sequence[Dim],
        stride: Sequence[int],
        padding: Padding,
        dilation: Sequence[int] = (),
        group: int = 1,
    ) -> Instruction:
        """The adjoint of a convolution of an image of spatial `extents`: x [n, *o, c], w [c, m, *k] -> [n, *extents, m]."""
        inner = self.channels_second(x)
        rank = inner.shape.rank - 2
        dilation = tuple(dilation) or (1,) * rank
        spans = [(int(k) - 1) * d + 1 for k, d in zip(w.shape.dims[2:], dilation, strict=True)]
        begins: list[Dim] = []
        for axis, (size, span, step) in enumerate(zip(extents, spans, stride, strict=True)):
            if padding == "valid":
                begins.append(0)
            elif padding == "same":
                count = ceil_div(size, step)
                total = maximum((count - 1) * step + span - size, 0)
                begins.append(total // 2)
            else:
                begins.append(padding[axis][0])
        made = self.add("convolution_backwards", inner, w, stride=tuple(stride), dilation=dilation, group=group)
        full = made.shape.dims[2:]
        short = [b + e - f for b, e, f in zip(begins, extents, full, strict=True)]
        if all(isinstance(v, int) for v in (*begins, *short)):
            ends = [-int(s) for s in short]
            extra = tuple(max(-e, 0) for e in ends)
            pads = (*map(int, begins), *(max(e, 0) for e in ends))
            attributes: dict[str, Any] = {
                "padding": pads,
                "stride": tuple(stride),
                "dilation": dilation,
                "group": group,
            }
            if any(extra):
                attributes["output_padding"] = extra
            return self.channels_last(self.add("convolution_backwards", inner, w, **attributes))
        if any(isinstance(s, int) and s > 0 for s in short):
            made = self.add("pad", made, pads=(0, 0, *(0,) * rank, 0, 0, *(maximum(s, 0) for s in short)))
        stops = [b + e for b, e in zip(begins, extents, strict=True)]
        return self.channels_last(self.slice(made, range(2, rank + 2), begins, stops))

    def pooled(
        self,
        mode: Literal["max", "average"],
        x: Instruction,
        lengths: Sequence[int],
        stride: Sequence[int],
        padding: Padding,
    ) -> Instruction:
        """Returns x [n, *s, c] pooled; averages exclude the padding."""
        inner = self.channels_second(x)
        pads = explicit(inner.shape.dims[2:], lengths, stride, (1,) * len(lengths), padding)
        made = self.add("pooling", inner, mode=mode, lengths=tuple(lengths), stride=tuple(stride), **pads)
        return self.channels_last(made)

    def resized(self, x: Instruction, extents: Sequence[Dim], **attributes: Any) -> Instruction:
        """Returns x [n, *s, c] resized to spatial `extents`."""
        inner = self.channels_second(x)
        axes = tuple(range(2, inner.shape.rank))
        return self.channels_last(self.add("resize", inner, sizes=tuple(extents), axes=axes, **attributes))

    def resized_to(self, x: Instruction, size: Instruction, **attributes: Any) -> Instruction:
        """Returns x [n, h, w, c] resized to the extents in an operand."""
        known = self.image_size(x, size)
        if known is not None:
            return self.resized(x, known, **attributes)
        inner = self.channels_second(x)
        return self.channels_last(self.add("resize", inner, None, self.convert(size, int64), axes=(2, 3), **attributes))

    def image_size(self, x: Instruction, size: Instruction) -> tuple[Dim, ...] | None:
        """Returns the two spatial extents in an operand for x [n, h, w, c]; None if they are known only at run time."""
        if x.shape.rank != 4:
            self.fail(f"an image [n, h, w, c] is required, got {x.shape}")
        found = self.dims(size)
        if found is not None and len(found) != 2:
            self.fail(f"two extents are required, got {list(found)}")
        return found


def explicit(
    dims: Sequence[Dim], lengths: Sequence[Dim], stride: Sequence[int], dilation: Sequence[int], padding: Padding
) -> dict[str, Any]:
    """Returns the attributes `padding` and `padding_mode` of a window op; explicit pads if the extents are known."""
    rank = len(dims)
    if len(stride) != rank or len(dilation) != rank or min((*stride, *dilation)) < 1:
        raise ParseError(
            f"{rank} strides and dilations of at least 1 are required, got {list(stride)} and {list(dilation)}"
        )
    if padding == "valid":
        return {"padding": (0,) * (2 * rank)}
    if padding == "same":
        if not all(isinstance(d, int) for d in (*dims, *lengths)):
            return {"padding_mode": "same_upper"}
        sides = zip(dims, lengths, stride, dilation, strict=True)
        pairs: Sequence[tuple[int, int]] = [same_padding(int(d), int(k), s, e, False) for d, k, s, e in sides]
    else:
        pairs = padding
    if len(pairs) != rank:
        raise ParseError(f"{rank} pairs of pads are required, got {len(pairs)}")
    return {"padding": (*(p[0] for p in pairs), *(p[1] for p in pairs))}
