"""Fourier transforms of 16-bit floats as one product each."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.fourier import Dft, products
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.rules.matching import op_as

__all__ = ["TRANSFORMS"]

TRANSFORMS: Final = Rules("transforms")
LONGEST: Final = 2048  # up to this length a product takes less time than two and the copies between them
LARGEST: Final = 1 << 23  # elements of a matrix up to which the same holds


@TRANSFORMS.on(Dft, changes=ROUNDING)
def transform_as_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """dft(x) of 16-bit floats -> dot(x, constant), for longer transforms than in the op's own decomposition.

    Matrix units multiply 2,048 rows by 2,048 x 2,050 elements in 29 us; two products with small matrices, conversions and copies
    took 112 us forward and 196 back (H200).
    """
    x = i.inputs[0]
    if len(i.inputs) > 1 or x.shape.dtype.size != 2:
        return None
    made = products(b, op_as(i, Dft), x, LONGEST, LARGEST)
    if isinstance(made, Instruction):
        return made
    return No("unknown extents, a short transform, or a length without small factors")
