"""Algebra that holds for every target: rules on arithmetic, dots and convolutions."""

from __future__ import annotations

from typing import Final

from ..ir.instruction import Instruction
from ..kernel import No
from ..ops.broadcast import Multibroadcast
from ..ops.linear import Dot
from ..ops.pointwise import Mul
from ..rewrite import Builder, Rules
from .outline import through_views

__all__ = ["SIMPLIFY"]

SIMPLIFY: Final = Rules("simplify-algebra")


@SIMPLIFY.on(Dot)
def scale_out_of_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a * s, c) -> dot(a, c) * s for a scalar s: the product of many becomes a product of few, or joins the epilogue."""
    for side in (0, 1):
        mul = i.inputs[side]
        if not isinstance(mul.op, Mul):
            continue
        for at in (0, 1):
            scale = through_views(mul.inputs[at])
            if scale.literal is None or scale.shape.elements() != 1:
                continue
            if len(mul.users) > 1:
                return No("the scaled operand is read elsewhere too")
            if not i.shape.dtype.is_float:
                return No(f"{i.shape.dtype} products may overflow in another order")
            operands = list(i.inputs)
            operands[side] = mul.inputs[1 - at]
            product = b.add(Dot(), *operands)
            return b.add(Mul(), product, b.add(Multibroadcast(out_lens=product.shape.dims), scale))
    return None
