"""Convolutions and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core.ops.window import same_padding

from ..converter import Converter, converts
from ..node import Node

__all__ = ["filled"]


def filled(values: Any, rank: int) -> tuple[int, ...]:
    """One number an axis, where torch takes one for all."""
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


@converts("im2col")
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


# pooling


def windows(
    x: Instruction, rank: int, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> dict[str, Any]:
    """The attributes of windows as pooling ops name them."""
    lengths = filled(size, rank)
    empty = stride is None or (isinstance(stride, Sequence) and not stride)
    return {
        "lengths": lengths,
        "stride": lengths if empty else filled(stride, rank),
        "padding": filled(padding, rank),
        "dilations": filled(dilation, rank),
        "ceil_mode": bool(ceil),
    }


def batched(n: Node, x: Instruction, rank: int, compute: Any) -> Any:
    """Runs on an image with a batch axis, and drops it again where the operand has none."""
    if x.shape.rank == rank + 2:
        return compute(x)
    out = compute(n.unsqueeze(x, [0]))
    return tuple(n.squeeze(o, [0]) for o in out) if isinstance(out, tuple) else n.squeeze(out, [0])


def max_pool(rank: int, indices: bool) -> Converter:
    def convert(
        n: Node,
        x: Instruction,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        given = windows(x, rank, size, stride, padding, dilation, ceil_mode)

        def pooled(image: Instruction) -> Any:
            if not indices or not n.wants(1):
                out = n.add("pooling", image, mode="max", **given)
                return (out, None) if indices and x.shape.rank == rank + 2 else (out, out) if indices else out
            both = n.add("max_pool_indices", image, **given)
            plane = n.graph.scalar(n, n.size(image, range(2, rank + 2)))
            return n.get(both, 0), n.pointwise("mod", n.get(both, 1), plane)

        return batched(n, x, rank, pooled)

    return convert


def average_pool(rank: int) -> Converter:
    def convert(
        n: Node,
        x: Instruction,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Instruction:
        given = windows(x, rank, size, stride, padding, 1, ceil_mode)

        def pooled(image: Instruction) -> Instruction:
            if not image.shape.dtype.is_float:
                n.unsupported(f"an average pooling of {image.shape.dtype}")
            if divisor is None:
                return n.add("pooling", image, mode="average", count_include_pad=count_include_pad, **given)
            # the sum of a window: its mean over the elements that it has, times their number
            mean = n.add("pooling", image, mode="average", count_include_pad=False, **given)
            ones = n.filled((1, 1, *image.shape.dims[2:]), 1, image.shape.dtype)
            size_ = 1
            for k in given["lengths"]:
                size_ *= k
            wide = [*given["padding"]]
            border = n.add("pad", ones, pads=(0, 0, *wide, 0, 0, *wide))
            bare = {**given, "padding": (0,) * rank}
            share = n.add("pooling", border, mode="average", count_include_pad=False, **bare)
            if ceil_mode:
                n.unsupported("avg_pool with divisor_override and ceil_mode")
            return n.add(
                "mul", mean, n.broadcast_to(n.add("mul", share, n.full_like(share, size_ / divisor)), mean.shape.dims)
            )

        return batched(n, x, rank, pooled)

    return convert


for _rank in (1, 2, 3):
    converts(f"max_pool{_rank}d")(max_pool(_rank, False))
    converts(f"max_pool{_rank}d_with_indices")(max_pool(_rank, True))
    converts(f"avg_pool{_rank}d")(average_pool(_rank))


def adaptive(rank: int, mode: str, indices: bool = False) -> Converter:
    def convert(n: Node, x: Instruction, size: Any) -> Any:
        wanted = filled(size, rank)
        if indices and n.wants(1):
            n.unsupported("the positions that adaptive max pooling finds")

        def pooled(image: Instruction) -> Instruction:
            if all(w == 1 for w in wanted):
                return n.add(f"reduce_{'mean' if mode == 'average' else 'max'}", image, axes=tuple(range(2, rank + 2)))
            dims = image.shape.dims[2:]
            if all(w is None or d % w == 0 for d, w in zip(dims, wanted, strict=True)):
                lengths = tuple(
                    n.static(d // (d if w is None else w), "the window of an adaptive pooling")
                    for d, w in zip(dims, wanted, strict=True)
                )
                return n.add("pooling", image, mode=mode, lengths=lengths, stride=lengths)
            for axis, (d, w) in enumerate(zip(dims, wanted, strict=True), 2):
                image = _cells(n, image, axis, n.static(d, "the extent under an adaptive pooling"), w, mode)
            return image

        out = batched(n, x, rank, pooled)
        return (out, None) if indices else out

    return convert


def _cells(n: Node, x: Instruction, axis: int, length: int, count: int | None, mode: str) -> Instruction:
    """Means or maxima of `count` cells along one axis, whose limits torch rounds outwards."""
    if count is None or count == length:
        return x
    pieces = []
    for i in range(count):
        start, end = i * length // count, -(-(i + 1) * length // count)
        piece = n.slice(x, [axis], [start], [end])
        pieces.append(n.add(f"reduce_{'mean' if mode == 'average' else 'max'}", piece, axes=(axis,)))
    return n.add("concat", *pieces, axis=axis) if count > 1 else pieces[0]


for _rank in (1, 2, 3):
    converts(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(adaptive(_rank, "average"))
    converts(f"adaptive_max_pool{_rank}d")(adaptive(_rank, "max", True))
