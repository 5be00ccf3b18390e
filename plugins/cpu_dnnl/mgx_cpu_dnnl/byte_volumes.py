"""Rewrites depthwise 3-D int8 convolutions as float ones: oneDNN's int8 kernels take at least 12 times as long."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.pointwise import Sub
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.ops.reshape import Reshape
from mgx_core.rules.engine import Builder, Rules

__all__ = ["BYTE_VOLUMES"]

BYTE_VOLUMES: Final = Rules("byte-volumes")

BYTES: Final = frozenset({dt.int8, dt.uint8})
MAX_EXACT: Final = 1 << 24  # up to it float32 holds all integers
MAX_TERM: Final = 255 * 128  # of a product of a byte less its zero point and a signed one


@BYTE_VOLUMES.on(QuantConvolution)
def depthwise_volume_of_floats(i: Instruction, b: Builder) -> Instruction | No | None:
    """quant_convolution(x, w, p), depthwise, of volumes -> convert(convolution(convert(x) - p, convert(w)))."""
    op, (x, w, *zeros) = i.op, i.inputs
    assert isinstance(op, QuantConvolution)
    if x.shape.rank != 5 or op.group == 1 or op.group != x.shape.dims[1] or w.literal is None:
        return None
    if x.shape.dtype not in BYTES or w.shape.dtype is not dt.int8 or any(not z.is_absent for z in zeros[1:]):
        return None
    if (taps := prod(w.shape.lens()[1:])) * MAX_TERM > MAX_EXACT:
        return No(f"float32 cannot represent sums of {taps} products exactly")
    wide = b.add(Convert(target_type=dt.float32), x)
    if zeros and not zeros[0].is_absent:
        point = b.add(Reshape(dims=()), b.add(Convert(target_type=dt.float32), zeros[0]))
        wide = b.add(Sub(), wide, b.add(Multibroadcast(out_lens=x.shape.dims), point))
    floats = Convolution(
        padding=op.padding, stride=op.stride, dilation=op.dilation, group=op.group, padding_mode=op.padding_mode
    )
    made = b.add(floats, wide, b.literal(np.asarray(w.literal.value).astype(np.float32)))
    return b.add(Convert(target_type=i.shape.dtype), made)
