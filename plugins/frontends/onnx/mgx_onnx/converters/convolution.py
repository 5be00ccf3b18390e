"""Convolutions: Conv, ConvTranspose, DeformConv, Col2Im, NhwcConv, FusedConv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core.ops.window import same_padding

from ..converter import converts
from ..node import Node
from .activation_names import activate

__all__ = ["convolution", "padding_of"]


def padding_of(
    n: Node,
    dims: Sequence[dims_.Dim],
    lengths: Sequence[dims_.Dim],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> dict[str, Any]:
    """Returns attributes `padding` and `padding_mode` from `pads` and `auto_pad`; explicit if the extents are static."""
    rank = len(dims)
    mode = n.attr("auto_pad", "NOTSET") or "NOTSET"
    if mode == "NOTSET":
        pads = n.attr("pads", None) or [0] * (2 * rank)
        if len(pads) != 2 * rank:
            n.fail(f"pads must have {2 * rank} numbers for {rank} spatial axes, got {pads}")
        return {"padding": tuple(pads)}
    if mode == "VALID":
        return {"padding": (0,) * (2 * rank)}
    if mode == "SAME":
        mode = "SAME_UPPER"  # nonstandard, but written by some exporters
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        n.fail(f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, got {mode!r}")
    if all(isinstance(d, int) for d in (*dims, *lengths)):
        lower = mode == "SAME_LOWER"
        pairs = [same_padding(d, k, s, e, lower) for d, k, s, e in zip(dims, lengths, stride, dilation, strict=True)]
        return {"padding": (*(p[0] for p in pairs), *(p[1] for p in pairs))}
    return {"padding_mode": mode.lower()}


def numbers(n: Node, name: str, rank: int) -> tuple[int, ...]:
    """Returns one positive number per spatial axis from an attribute, 1 by default."""
    values = tuple(n.attr(name, None) or (1,) * rank)
    if len(values) != rank or min(values) < 1:
        n.fail(f"{name} must have {rank} positive numbers, got {list(values)}")
    return values


def spatial_rank(n: Node, x: Instruction, w: Instruction) -> int:
    rank: int = x.shape.rank - 2
    if rank < 1 or w.shape.rank != rank + 2:
        n.fail(f"X and W must have the same rank of at least 3, got {x.shape} and {w.shape}")
    kernel = n.attr("kernel_shape", None)
    if kernel and (len(kernel) != rank or not all(map(dims_.may_equal, kernel, w.shape.dims[2:]))):
        n.fail(f"kernel_shape {kernel} does not fit W {w.shape}")
    return rank


def in_type_of(n: Node, x: Instruction, weight: Instruction) -> Instruction:
    """Returns a filter or bias in the type of x if both are floats.

    torch's exporter folds norms of bfloat16 networks into float32 weights, which the standard does not allow.
    """
    wanted, given = x.shape.dtype, weight.shape.dtype
    return n.convert(weight, wanted) if wanted.is_float and given.is_float else weight


def biased(n: Node, y: Instruction, bias: Instruction | None) -> Instruction:
    """Returns y [n, m, ..] plus a per-channel bias."""
    if bias is None:
        return y
    if bias.shape.rank != 1 or not dims_.may_equal(bias.shape.dims[0], y.shape.dims[1]):
        n.fail(f"the bias must have dims [{y.shape.dims[1]}], got {bias.shape}")
    column = n.unsqueeze(in_type_of(n, y, bias), range(1, y.shape.rank - 1))
    return n.add("add", y, n.broadcast_to(column, y.shape.dims))


def convolution(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    """Converts Conv by the node's attributes."""
    rank = spatial_rank(n, x, w)
    stride, dilation = numbers(n, "strides", rank), numbers(n, "dilations", rank)
    pads = padding_of(n, x.shape.dims[2:], w.shape.dims[2:], stride, dilation)
    w = in_type_of(n, x, w)
    y = n.add("convolution", x, w, stride=stride, dilation=dilation, group=n.attr("group", 1), **pads)
    return biased(n, y, bias)


@converts("Conv")
def conv(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    return convolution(n, x, w, bias)


@converts("FusedConv", domain="com.microsoft")
def fused_conv(
    n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None, z: Instruction | None = None
) -> Instruction:
    y = convolution(n, x, w, bias)
    if z is not None:
        y = n.add("add", y, z)
    return activate(n, y, n.attr("activation", ""), n.attr("activation_params", None) or ())


@converts("NhwcConv", domain="com.microsoft")
def nhwc_conv(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    rank = x.shape.rank
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    return n.transpose(convolution(n, n.transpose(x, first), n.transpose(w, first), bias), last)


@converts("NhwcFusedConv", domain="com.microsoft")
def nhwc_fused_conv(
    n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None, z: Instruction | None = None
) -> Instruction:
    """Only images have their channels last: the filter stays [o, i, ..], unlike NhwcConv's."""
    rank = x.shape.rank
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    y = convolution(n, n.transpose(x, first), w, bias)
    if z is not None:
        y = n.add("add", y, n.transpose(z, first))
    return n.transpose(activate(n, y, n.attr("activation", ""), n.attr("activation_params", None) or ()), last)


@converts("ConvTranspose")
def conv_transpose(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    return _transposed(n, x, w, bias, None)


@converts("ConvTransposeWithDynamicPads", domain="com.microsoft")
def conv_transpose_with_dynamic_pads(
    n: Node, x: Instruction, w: Instruction, pads: Instruction | None = None, bias: Instruction | None = None
) -> Instruction:
    """ConvTranspose, whose padding is an operand."""
    given = None if pads is None else n.whole(pads, "Pads")
    if given is not None and len(given) != 2 * (x.shape.rank - 2):
        n.fail(f"Pads must have {2 * (x.shape.rank - 2)} numbers for X {x.shape}, got {given}")
    return _transposed(n, x, w, bias, given)


def _transposed(
    n: Node, x: Instruction, w: Instruction, bias: Instruction | None, given: Sequence[int] | None
) -> Instruction:
    """Returns a transposed convolution by the node's attributes, padded as given if an operand states it."""
    rank = spatial_rank(n, x, w)
    w = in_type_of(n, x, w)
    stride, dilation = numbers(n, "strides", rank), numbers(n, "dilations", rank)
    extra = list(n.attr("output_padding", None) or [0] * rank)
    group = n.attr("group", 1)
    wanted = n.attr("output_shape", None)
    mode = n.attr("auto_pad", "NOTSET") or "NOTSET"
    if len(extra) != rank or min(extra) < 0:
        n.fail(f"output_padding must have {rank} nonnegative numbers, got {extra}")
    dims: list[dims_.Dim] = list(x.shape.dims[2:])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape.dims[2:], dilation, strict=True)]
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(wanted or [])[-rank:] or [d * s for d, s in zip(dims, stride, strict=True)]
        if len(wanted) != rank:
            n.fail(f"output_shape must have {rank} numbers, got {wanted}")
        total = [(d - 1) * s + e + p - o for d, s, e, p, o in zip(dims, stride, spans, extra, wanted, strict=True)]
        if not all(isinstance(t, int) for t in total):
            y = n.add(
                "convolution_backwards", x, w, stride=stride, dilation=dilation, group=group, output_padding=extra
            )
            starts = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
            ends = [s + o for s, o in zip(starts, wanted, strict=True)]
            return biased(n, n.slice(y, range(2, rank + 2), starts, ends), bias)
        extra = [p + max(-int(t), 0) for p, t in zip(extra, total, strict=True)]
        total = [max(int(t), 0) for t in total]
        half = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        pads = [*half, *(t - h for t, h in zip(total, half, strict=True))]
    elif mode == "VALID":
        pads = [0] * (2 * rank)
    else:
        pads = list(padding_of(n, dims, w.shape.dims[2:], stride, dilation)["padding"] if given is None else given)
    y = n.add(
        "convolution_backwards",
        x,
        w,
        padding=pads,
        stride=stride,
        dilation=dilation,
        group=group,
        output_padding=extra if any(extra) else (),
    )
    return biased(n, y, bias)


@converts("DeformConv")
def deform_conv(
    n: Node,
    x: Instruction,
    w: Instruction,
    offset: Instruction,
    bias: Instruction | None = None,
    mask: Instruction | None = None,
) -> Instruction:
    rank = spatial_rank(n, x, w)
    stride, dilation = numbers(n, "strides", rank), numbers(n, "dilations", rank)
    return n.add(
        "deform_conv",
        x,
        w,
        offset,
        bias,
        mask,
        padding=tuple(n.attr("pads", None) or (0,) * (2 * rank)),
        stride=stride,
        dilation=dilation,
        group=n.attr("group", 1),
        offset_group=n.attr("offset_group", 1),
    )


@converts("Col2Im")
def col2im(n: Node, x: Instruction, image_shape: Instruction, block_shape: Instruction) -> Instruction:
    given: dict[str, Any] = {
        "padding": tuple(n.attr("pads", None) or ()),
        "stride": tuple(n.attr("strides", None) or ()),
        "dilation": tuple(n.attr("dilations", None) or ()),
    }
    image, block = n.dims(image_shape), n.dims(block_shape)
    fixed = block is not None and all(isinstance(b, int) for b in block)
    if fixed:
        given["block_shape"] = block
    if image is not None:
        given["image_shape"] = image
    return n.add("col2im", x, None if image is not None else image_shape, None if fixed else block_shape, **given)
