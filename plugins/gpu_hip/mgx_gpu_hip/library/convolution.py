"""Convolutions with their epilogues by cuDNN, channels last or first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mgx_core import dtype
from mgx_core.errors import No, ParameterError
from mgx_core.types.dtype import DType

from .cudnn_graph import Convolve, Graph, packed
from .epilogue import Epilogue, check, residual_first, split, words

__all__ = ["ConvProblem", "conv_graph"]


@dataclass(frozen=True)
class ConvProblem:
    """y = epilogue(alpha * cross-correlation of x and w), channels last in memory, or (`first`) x, w, y and residual row-major.

    dims: (batch, channels, *image) of x, in memory [batch, *image, channels]; filters: number of output channels; kernel:
    extents of w, in memory [filters, *kernel, channels / groups]; pads: before and after each image axis; bias [filters];
    residual like y.  x_pitch, y_pitch, residual_pitch: elements from pixel to pixel, more than the channels if the tensor is a
    slice of a wider one (0: contiguous).  Sums are float32 (float64 for float64); tf32: float32 operands may be rounded to TF32.
    Errors: ParameterError for inconsistent extents.
    """

    dims: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    pads: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    groups: int = 1
    dtype: DType = dtype.float16
    epilogue: Epilogue = ()
    bias_dtype: DType | None = None
    out_dtype: DType | None = None
    tf32: bool = False
    x_pitch: int = 0
    y_pitch: int = 0
    residual_pitch: int = 0
    align: int = 16
    first: bool = False
    alpha: float = 1.0

    def __post_init__(self) -> None:
        check(self.epilogue)
        rank = len(self.dims) - 2
        for word, value in (
            ("kernel", self.kernel),
            ("stride", self.stride),
            ("dilation", self.dilation),
            ("pads", self.pads),
        ):
            if len(value) != rank:
                raise ParameterError(f"a convolution over {rank} axes requires {rank} values of {word}, got {value}")
        if self.dims[1] % self.groups or self.filters % self.groups:
            raise ParameterError(
                f"{self.dims[1]} channels and {self.filters} filters must be divisible by {self.groups} groups"
            )
        if min(self.image) < 1:
            raise ParameterError(f"the kernel {self.kernel} is larger than the padded image {self.dims[2:]}")
        for word, pitch, least in (
            ("x_pitch", self.x_pitch, self.dims[1]), ("y_pitch", self.y_pitch, self.filters),
            ("residual_pitch", self.residual_pitch, self.filters),
        ):  # fmt: skip
            if pitch and pitch < least:
                raise ParameterError(f"{word} must be at least {least}, got {pitch}")

    @cached_property
    def image(self) -> tuple[int, ...]:
        """Extents of y's image axes."""
        return tuple(
            (n + sum(pad) - (k - 1) * d - 1) // s + 1
            for n, k, s, d, pad in zip(self.dims[2:], self.kernel, self.stride, self.dilation, self.pads, strict=True)
        )

    @property
    def is_depthwise(self) -> bool:
        """True if each filter reads one of several channels."""
        return 1 < self.groups == self.dims[1]

    @property
    def out_dims(self) -> tuple[int, ...]:
        return (self.dims[0], self.filters, *self.image)

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.out_dims) * (self.dims[1] // self.groups) * math.prod(self.kernel)

    def __str__(self) -> str:
        def joined(values: Any) -> str:
            return "x".join(map(str, values))

        details = "" if set(self.stride) == {1} else f" /{joined(self.stride)}"
        details += "" if self.groups == 1 else f" g{self.groups}"
        details += " first" if self.first else ""
        scaled = "" if self.alpha == 1 else f" x{self.alpha:g}"
        name = f"{joined(self.dims)} -> {self.filters} k{joined(self.kernel)}{details} {self.dtype.name}{scaled}"
        return name + words(self.epilogue)

    def strides(self, dims: tuple[int, ...], pitch: int = 0) -> tuple[int, ...]:
        """Returns the strides of a tensor of this problem."""
        return packed(dims) if self.first else channels_last(dims, pitch)


def channels_last(dims: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    """Returns channels-last strides, in the order batch, channels, image; pitch: elements between pixels (0: contiguous)."""
    strides, step = [], pitch or dims[1]
    for n in reversed(dims[2:]):
        strides.append(step)
        step *= n
    return (step, 1, *reversed(strides))


def is_prebuilt(steps: Epilogue) -> bool:
    """Returns True if cuDNN has prebuilt engines for the steps: [residual], bias, [activation without parameters]."""
    parts = split(steps)
    if parts is None:
        return False
    bias, residual, activation = parts
    if not bias and (residual or activation is not None):
        return False
    return activation is None or (
        activation.kind in ("relu", "sigmoid", "tanh", "elu") and str(activation) == activation.kind
    )


def conv_graph(p: ConvProblem) -> Graph | No:
    """Returns the operation graph: the convolution and a pointwise node per step; the last one writes y."""
    if any(n < 0 for pad in p.pads for n in pad):
        return No(f"cuDNN requires padding of at least 0, got {p.pads}")
    compute = dtype.float64 if p.dtype is dtype.float64 else dtype.float32
    graph = Graph(compute=compute)
    align = p.align
    x = graph.operand("x", p.dims, p.strides(p.dims, p.x_pitch), p.dtype, align)
    w_dims = (p.filters, p.dims[1] // p.groups, *p.kernel)
    w = graph.operand("w", w_dims, p.strides(w_dims), p.dtype, align)
    y = graph.operand("y", p.out_dims, p.strides(p.out_dims, p.y_pitch), p.out_dtype or p.dtype, align)
    # intermediate results stay in the compute type until y is written
    scaled = p.alpha != 1
    at = y if not (p.epilogue or scaled) else graph.tensor(p.out_dims, p.strides(p.out_dims), compute, virtual=True)
    graph.nodes.append(Convolve(x, w, at, p.stride, p.dilation, p.pads, compute))
    steps = residual_first(p.epilogue)
    if p.is_depthwise:
        if steps and is_prebuilt(steps):
            # the prebuilt engines for convolution, bias and activation take 6 to 14 times as long here as one compiled for the
            # graph; an extra node makes it a graph that they do not match
            at = graph.pointwise("identity", at)
    elif p.dtype in (dtype.float32, dtype.float64) and not p.tf32 and (scaled or (steps and not is_prebuilt(steps))):
        return No(
            f"cuDNN has no fast engine for {p}: in full precision only bias, residual with bias, and one plain activation"
        )
    if scaled:
        factor = graph.number(p.alpha, dtype.float32, len(p.out_dims))
        at = graph.pointwise("mul", at, factor, y=None if steps else y)
    for number, step in enumerate(steps):
        target = y if number == len(steps) - 1 else None
        if step == "bias":
            dims = (1, p.filters, *(1 for _ in p.kernel))
            bias = graph.operand("bias", dims, channels_last(dims, 0), p.bias_dtype or p.dtype, align)
            at = graph.pointwise("add", at, bias, y=target)
        elif step == "residual":
            strides = p.strides(p.out_dims, p.residual_pitch)
            at = graph.pointwise("add", at, graph.operand("residual", p.out_dims, strides, p.dtype, align), y=target)
        else:
            assert not isinstance(step, str)
            at = graph.activate(step, at, target)
    return graph
