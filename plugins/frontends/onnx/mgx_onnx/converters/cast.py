"""ONNX's conversions between element types."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from ..converter import converts
from ..messages import onnx
from ..node import Node
from ..tensors import dtype_of

__all__: list[str] = []


def _target(n: Node) -> DType:
    """Returns attribute `to`: a number, or before opset 6 the type's name."""
    to: Any = n.attr("to")
    if isinstance(to, str):
        try:
            to = onnx.TensorProto.DataType.Value(to.upper())
        except ValueError:
            raise n.error(f"{to!r} is not an ONNX element type") from None
    return dtype_of(to)


def _converted(n: Node, x: Instruction, to: DType) -> Instruction:
    """Adds `convert`; `saturate` and `round_mode` are set only if they differ from the defaults."""
    if x.shape.dtype is to:
        return x
    options: dict[str, Any] = {}
    if to.is_float and to.bits == 8:
        options["saturate"] = bool(n.attr("saturate", 1))
    if to is dt.float8_e8m0fnu:
        options["round_mode"] = n.attr("round_mode", "up")
    return n.add("convert", x, target_type=to, **options)


@converts("Cast")
def cast(n: Node, x: Instruction) -> Instruction:
    return _converted(n, x, _target(n))


@converts("CastLike")
def cast_like(n: Node, x: Instruction, like: Instruction) -> Instruction:
    return _converted(n, x, like.shape.dtype)


@converts("BitCast")
def bit_cast(n: Node, x: Instruction) -> Instruction:
    to = _target(n)
    return x if x.shape.dtype is to else n.add("bit_cast", x, target_type=to)
