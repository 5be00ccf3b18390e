"""The macros by name: each a function of a builder and inputs, with its options as keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..ir.instruction import Instruction
from ..ops.activation import Prelu
from ..ops.bitwise import BitwiseAnd
from ..ops.compare import LogicalAnd, LogicalOr, LogicalXor
from ..ops.operation import Operation
from ..ops.pointwise import Add, Div, Mul, Pow, Sqdiff, Sub
from . import activations, products
from .builder import MacroBuilder

__all__ = ["MACROS"]


def pointwise(op: Operation) -> Callable[..., Instruction]:
    """Returns the macro of a pointwise op on two tensors of any extents and element types that fit."""

    def build(
        b: MacroBuilder,
        x: Instruction,
        y: Instruction,
        *,
        broadcasted: int = 0,
        axis: int = 0,
        is_broadcasted: bool = False,
    ) -> Instruction:
        if is_broadcasted and broadcasted:  # as early versions of formats say it: y lies along x from an axis on
            rest = range(axis + y.shape.rank, x.shape.rank)
            y = b.broadcast_to(b.unsqueeze(y, [n - axis for n in rest]) if rest else y, x.shape.dims)
        return b.add(op, x, y) if is_broadcasted else b.common(op, x, y)

    return build


NAMED: Final = (
    products.convolution, products.dot, products.einsum, products.gemm, products.quant_convolution, products.quant_dot,
    products.rotary_embedding, products.tile, activations.batchnorm, activations.bias_uint8, activations.celu,
    activations.clip, activations.dequantizelinear, activations.gelu_erf, activations.gelu_quick, activations.gelu_split,
    activations.gelu_tanh, activations.mean_variance_normalization, activations.quantizelinear,
)  # fmt: skip
POINTWISE: Final = (
    Add(), BitwiseAnd(), Div(), LogicalAnd(), LogicalOr(), LogicalXor(), Mul(), Pow(), Prelu(), Sqdiff(), Sub(),
)  # fmt: skip

MACROS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        **{f.__name__: f for f in NAMED},
        "convolution_integer": products.quant_convolution,
        **{op.name: pointwise(op) for op in POINTWISE},
    }
)
