"""Transposition, memory layout and reversal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.shape import Shape
from .axes import normalize, normalize_all
from .declaration import op
from .extents import index_operand, merge
from .operation import Operation

__all__ = ["Contiguous", "Layout", "Reverse", "ReverseSequence", "Transpose"]


def _order(permutation: Sequence[int], rank: int) -> tuple[int, ...]:
    order = tuple(p + rank if p < 0 else p for p in permutation)
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"permutation must order the {rank} axes, got {list(permutation)}")
    return order


@op("transpose", exact=True, moves=True)
class Transpose(Operation):
    """Permutes the axes; reverses them if no permutation is given.

    x: any [d..] -> [d[p] for p in permutation].
    Errors: ShapeError unless `permutation` orders the axes of x.  Source: ONNX Transpose-13.
    """

    permutation: tuple[int, ...] = ()

    def order(self, rank: int) -> tuple[int, ...]:
        """Returns the permutation with non-negative axes."""
        return _order(self.permutation, rank) if self.permutation else tuple(reversed(range(rank)))

    def infer(self, x: Shape) -> Shape:
        return x.with_dims(x.dims[p] for p in self.order(x.rank))

    def compute(self, x: Array) -> Array:
        return np.transpose(x, self.order(x.ndim))

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        x = inputs[0]
        order, lens, steps = self.order(x.rank), x.lens(), x.strides()
        return 0, Shape(x.dtype, [lens[p] for p in order], [steps[p] for p in order])


@op("contiguous", exact=True, moves=True)
class Contiguous(Operation):
    """Copies a tensor to dense row-major memory.

    x: any [..] -> same shape.  Errors: none.  Source: MIGraphX contiguous.
    """

    def infer(self, x: Shape) -> Shape:
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        return x if x.flags.c_contiguous else np.array(x, order="C")

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        return (0, inputs[0]) if inputs[0].standard() else None


@op("layout", exact=True)
class Layout(Operation):
    """Copies a tensor to dense memory with the axis order `permutation`, outermost first.

    x: any [..] -> same shape.  Errors: ShapeError unless `permutation` orders the axes of x.  Source: MIGraphX layout.
    """

    permutation: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        _order(self.permutation, x.rank)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        order = _order(self.permutation, x.ndim)
        packed = np.array(np.transpose(x, order), order="C")
        return np.transpose(packed, np.argsort(order)) if order else packed


@op("reverse", exact=True, moves=True)
class Reverse(Operation):
    """Reverses the elements along some axes.

    x: any [..] -> same shape.  Errors: ShapeError for axes outside the rank.  Source: MIGraphX reverse.
    """

    axes: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        normalize_all(self.axes, x.rank)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        return np.flip(x, self.axes)


@op("reverse_sequence", exact=True)
class ReverseSequence(Operation):
    """Reverses the first `sequence_lens[b]` steps of each batch entry b; later steps are unchanged.

    x: any [.., batch, .., time, ..], sequence_lens: int [batch] -> same shape.
    Errors: ShapeError if the axes are equal or a length is outside 0..time.  Source: ONNX ReverseSequence-10.
    """

    batch_axis: int = 1
    time_axis: int = 0

    def batch_and_time(self, rank: int) -> tuple[int, int]:
        batch = normalize(self.batch_axis, rank, "batch_axis")
        time = normalize(self.time_axis, rank, "time_axis")
        if batch == time:
            raise ShapeError(f"batch_axis and time_axis must differ, both are {batch}")
        return batch, time

    def infer(self, x: Shape, sequence_lens: Shape) -> Shape:
        batch, _ = self.batch_and_time(x.rank)
        if index_operand(sequence_lens, "sequence_lens").rank != 1:
            raise ShapeError(f"sequence_lens must be a vector, got {sequence_lens}")
        merge(sequence_lens.dims[0], x.dims[batch], "the length of sequence_lens and the batch")
        return x.as_standard()

    def compute(self, x: Array, sequence_lens: Array) -> Array:
        batch, time = self.batch_and_time(x.ndim)
        steps, lens = x.shape[time], sequence_lens.astype(np.int64)[:, None]
        if lens.size and (int(lens.min()) < 0 or int(lens.max()) > steps):
            raise ShapeError(f"sequence_lens must lie in [0, {steps}], got {sequence_lens.tolist()}")
        at = np.arange(steps)[None, :]
        index = np.where(at < lens, lens - 1 - at, at)
        index = (index if batch < time else index.T).reshape(
            [n if i in (batch, time) else 1 for i, n in enumerate(x.shape)]
        )
        return np.take_along_axis(x, index, time)
