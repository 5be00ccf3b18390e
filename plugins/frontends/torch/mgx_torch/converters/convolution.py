"""Convolutions, im2col and col2im."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core.ops.window import same_padding

from ..complex_parts import by_parts
from ..converter import converts
from ..node import Node

__all__ = ["filled"]


def filled(values: Any, rank: int) -> tuple[int, ...]:
    """Returns one number per axis; a single one is repeated."""
    given = (values,) if isinstance(values, int) else tuple(values)
    return given * rank if len(given) == 1 else given


def biased(n: Node, y: Instruction, bias: Instruction | None) -> Instruction:
    if bias is None:
        return y
    return n.pointwise("add", y, n.unsqueeze(bias, range(1, y.shape.rank - 1)))


def _convolved(
    n: Node,
    x: Instruction,
    w: Instruction,
    bias: Instruction | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool = False,
    extra: Any = 0,
) -> Instruction:
    rank = w.shape.rank - 2
    single = x.shape.rank == rank + 1
    if single:
        x = n.unsqueeze(x, [0])
    given: dict[str, Any] = {"stride": filled(stride, rank), "dilation": filled(dilation, rank), "group": groups}
    if isinstance(padding, str):
        pairs = [(0, 0)] * rank
        if padding == "same":
            sizes = zip(x.shape.dims[2:], w.shape.dims[2:], given["stride"], given["dilation"], strict=True)
            pairs = [
                same_padding(1 << 20 if not isinstance(d, int) else d, int(k), s, e, False) for d, k, s, e in sizes
            ]
        given["padding"] = (*(p[0] for p in pairs), *(p[1] for p in pairs))
    else:
        given["padding"] = filled(padding, rank)
    if transposed:
        more = filled(extra, rank)
        y = n.add("convolution_backwards", x, w, output_padding=more if any(more) else (), **given)
    else:
        y = n.add("convolution", x, w, **given)
    y = biased(n, y, bias)
    return n.squeeze(y, [0]) if single else y


@converts("convolution", "_convolution", "convolution_overrideable")
def convolution(
    n: Node,
    x: Instruction,
    w: Instruction,
    bias: Instruction | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *_: Any,
) -> Instruction:
    return _convolved(n, x, w, bias, stride, padding, dilation, groups, transposed, output_padding)


@converts("conv1d", "conv2d", "conv3d")
def conv(
    n: Node,
    x: Instruction,
    w: Instruction,
    bias: Instruction | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Instruction:
    return _convolved(n, x, w, bias, stride, padding, dilation, groups)


@converts("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    n: Node,
    x: Instruction,
    w: Instruction,
    bias: Instruction | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Instruction:
    return _convolved(n, x, w, bias, stride, padding, dilation, groups, True, output_padding)


@by_parts("im2col")
def im2col(n: Node, x: Instruction, size: Any, dilation: Any, padding: Any, stride: Any) -> Instruction:
    single = x.shape.rank == 3
    x = n.unsqueeze(x, [0]) if single else x
    given: dict[str, Any] = {"lengths": size, "dilation": dilation, "padding": padding, "stride": stride}
    given = {k: filled(v, 2) for k, v in given.items()}
    out = n.add("im2col", x, **given)
    return n.squeeze(out, [0]) if single else out


@converts("col2im")
def col2im(n: Node, x: Instruction, image: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Instruction:
    single = x.shape.rank == 2
    x = n.unsqueeze(x, [0]) if single else x
    given: dict[str, Any] = {"block_shape": size, "dilation": dilation, "padding": padding, "stride": stride}
    given = {k: filled(v, 2) for k, v in given.items()}
    out = n.add("col2im", x, image_shape=tuple(image), **given)
    return n.squeeze(out, [0]) if single else out
