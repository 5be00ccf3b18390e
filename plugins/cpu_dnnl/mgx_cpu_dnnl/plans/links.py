"""Operands of convolutions by native loops, and the encoding of their epilogues (`links.h`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Shape
from mgx_core.errors import Refused
from mgx_core.targets.epilogue import Link
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from ..emitter import CpuEmitter
from ..jit.native_loop import bits_of
from ..layout import as_channels_last
from .epilogues import Epilogue

__all__ = ["KINDS", "result_extents", "input_and_result", "encode_links", "two_axes", "weights_and_extents"]

# numbering of `LinkKind` in links.h
KINDS: Final = {
    name: n
    for n, name in enumerate(
        "add mul sub div max min relu linear clip logistic swish hardswish tanh gelu_erf gelu_tanh".split()  # noqa: SIM905
    )
}
MAX_LINKS: Final = 16


def two_axes(extents: Sequence[int], missing: int) -> tuple[int, int]:
    """Returns the two values of spatial axes; missing: the first for one-dimensional images."""
    return (missing, extents[0]) if len(extents) == 1 else (extents[0], extents[1])


def weights_and_extents(
    e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None
) -> tuple[Array, list[int]]:
    """Returns the weights of a convolution and the extents of its result.  Errors: Refused."""
    lens, weights = result_extents(e, op, x, w, epilogue), e.constant(w)
    assert weights is not None
    return weights, lens


def result_extents(
    e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None, constant: bool = True
) -> list[int]:
    """Returns the extents of the result of a convolution; constant: its weights must be.  Errors: Refused."""
    if constant and not e.is_constant(w):
        raise Refused("the weights are not constant")
    lens: list[int] = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens:
        raise Refused("an extent is 0")
    if epilogue is not None and epilogue.dtype is not x.shape.dtype:
        raise Refused(f"a result of type {x.shape.dtype} is required, got {epilogue.dtype}")
    return lens


def input_and_result(
    e: CpuEmitter, x: Value, w: Value, lens: Sequence[int], epilogue: Epilogue | None
) -> tuple[Value, Value]:
    """Returns x with channels last, and memory for the result: of the residual, of a concatenation that reads it, or new."""
    x, strides = as_channels_last(e, x), channels_last(lens)
    out = None if epilogue is None else epilogue.in_place([x, w], strides)
    if out is None:
        out = e.place_in_concat(x.shape.dtype, lens, strides)
    return x, e.allocate(x.shape.dtype, lens, strides) if out is None else out


def encode_links(epilogue: Epilogue | None, lens: Sequence[int]) -> tuple[list[int], list[Value]]:
    """Encodes the epilogue of a convolution with results [n, c, ..] for native loops; returns the encoding and the operands.

    Each link has eight integers (`links.h`); operands, of the result's type, are the loop's buffers from 3 on (input, weights and
    result precede them).
    Errors: Refused for unsupported links.
    """
    found: list[int] = []
    operands: list[Value] = []
    if epilogue is None:
        return found, operands
    for link, operand in epilogue.links:
        kind = KINDS.get(link.algorithm)
        if kind is None or len(found) == 8 * MAX_LINKS:
            raise Refused(f"the native loops do not support {link.algorithm} in this epilogue")
        place, strides = 0, [0, 0, 0, 0]
        if operand is not None:
            place, strides = 3 + len(operands), _strides(link, operand, epilogue.dtype, lens)
            operands.append(operand)
        found += [kind, bits_of(link.alpha), bits_of(link.beta), place, *strides]
    return found, operands


def _strides(link: Link, operand: Value, dtype: DType, lens: Sequence[int]) -> list[int]:
    """Returns strides over images, rows, columns and channels, 0 along broadcast axes."""
    if operand.shape.dtype is not dtype or len(operand.lens) != len(lens):
        raise Refused(f"{link.algorithm} requires an operand of type {dtype} and rank {len(lens)}, got {operand.shape}")
    image, channel, *axes = (
        0 if n == 1 and there != 1 else s for n, s, there in zip(operand.lens, operand.strides, lens, strict=True)
    )
    if lens[1] != 1 and channel not in (0, 1):
        raise Refused(f"the channels of an operand of {link.algorithm} are not contiguous")
    return [image, *two_axes(axes, 0), min(channel, 1)]
