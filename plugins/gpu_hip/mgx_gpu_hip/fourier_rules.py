"""Fourier transforms of 16-bit floats as one product each."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No, Shape
from mgx_core.ops.fourier import Dft, products
from mgx_core.ops.reshape import Squeeze
from mgx_core.ops.slice import Slice
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.rules.matching import op_as

from .codegen.fourier import SHORTEST_APART, stages_of, transform_length

__all__ = ["TRANSFORMS"]

TRANSFORMS: Final = Rules("transforms")
LONGEST: Final = 2048  # up to this length a product takes less time than two and the copies between them
FAST: Final = 64  # results of a transform up to which it takes no more time than the kernel of `codegen.fourier`
LARGEST: Final = 1 << 23  # elements of a matrix up to which the same holds


@TRANSFORMS.on(Dft, changes=ROUNDING)
def transform_as_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """dft(x) of 16-bit floats -> dot(x, constant), of up to 64 numbers, or of up to 2,048 if these have large factors.

    Matrix units multiply 2,048 rows by 2,048 x 2,050 elements in 29 us; two products with small matrices, conversions and copies
    took 112 us forward and 196 back, and the kernel of `codegen.fourier` takes 13 and 10 (H200).
    """
    if len(i.users) == 1 and _transform_of(_read_by_slice(i)) is i:
        return None  # computed with the slice
    return _product(i, b)


@TRANSFORMS.on(Slice, reads=(Dft, Squeeze), changes=ROUNDING)
def sliced_transform_as_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(dft(x)) of 16-bit floats along the transformed axis -> dot(x, the columns of the slice), also if squeezed before."""
    transform = _transform_of(i)
    if transform is None:
        return None
    op = op_as(i, Slice)
    made = _product(transform, b, (int(op.starts[0]), int(op.ends[0])))
    if isinstance(made, Instruction) and i.inputs[0] is not transform:
        return b.add(i.inputs[0].op, made)
    return made


def _read_by_slice(transform: Instruction) -> Instruction:
    """Returns the only reader of a transform, or that of its squeeze."""
    (reader,) = transform.users
    return reader.users[0] if isinstance(reader.op, Squeeze) and len(reader.users) == 1 else reader


def _transform_of(cut: Instruction) -> Instruction | None:
    """Returns the transform of which a slice with known bounds is the only reader, if it cuts the transformed axis alone."""
    op = cut.op
    if not isinstance(op, Slice) or len(cut.inputs) > 1 or len(op.axes) != 1 or op.steps not in ((), (1,)):
        return None
    x = cut.inputs[0]
    if not isinstance(x.result, Shape) or not x.result.ranked:
        return None
    if isinstance(x.op, Squeeze) and len(x.users) == 1 and x.op.axes in ((-1,), (x.shape.rank,)):
        x = x.inputs[0]
    if not isinstance(x.op, Dft) or len(x.inputs) > 1 or len(x.users) != 1:
        return None
    axis = x.op.along(x.shape.rank, x.op.axis)
    begin, end, length = op.starts[0], op.ends[0], x.shape.dims[axis]
    known = isinstance(begin, int) and isinstance(end, int) and isinstance(length, int) and 0 <= begin < end <= length
    return x if known and op.axes[0] == axis else None


def _product(transform: Instruction, b: Builder, kept: tuple[int, int] | None = None) -> Instruction | No | None:
    """Returns a transform by one product; kept: begin and end of the results along its axis."""
    x = transform.inputs[0]
    if len(transform.inputs) > 1 or x.shape.dtype.size != 2:
        return None
    op, rank = op_as(transform, Dft), x.shape.rank
    length = transform_length(op, x.shape.dims, transform.shape.dims)
    axis = op.along(rank, op.axis)
    results = transform.shape.dims[axis] if kept is None else kept[1] - kept[0]
    adjacent = axis == rank - 2 and isinstance(results, int) and results <= FAST
    if isinstance(length, int) and length >= SHORTEST_APART and not adjacent and stages_of(length):
        return No("one kernel computes it by butterflies")
    made = products(b, op, x, LONGEST, LARGEST, kept)
    if isinstance(made, Instruction):
        return made
    return No("unknown extents, a short transform, or a length without small factors")
