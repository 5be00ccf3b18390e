"""The loop compiler: groups of pointwise ops and reductions, and ops that move elements, as machine code.

Every function returns a `JitKernel`, or `No` with the reason.  `engine` defaults to one for this machine, made at first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from mgx_core.errors import No
from mgx_core.ir.module import Module
from mgx_core.ops.operation import Operation
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape

from .kernel import JitKernel, run_numpy

if TYPE_CHECKING:
    from mgx_core.ops.pad import Pad
    from mgx_core.ops.pooling import Pooling
    from mgx_core.ops.resize import Resize

    from .engine import Engine

__all__ = [
    "JitKernel", "compile_attention", "compile_copy", "compile_gather", "compile_gemm",
    "compile_op", "compile_pad", "compile_pointwise", "compile_pooling", "compile_reduce", "compile_resize",
    "default_engine", "run_numpy",
]  # fmt: skip


@cache
def default_engine() -> Engine:
    """The engine for this machine."""
    from .engine import Engine

    return Engine()


def compile_pointwise(
    body: Module, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine | None = None, name: str = ""
) -> JitKernel | No:
    """A group of pointwise ops and views; shapes with the strides that the memory has."""
    from .pointwise import compile_pointwise as compile_

    return compile_(body, inputs, outputs, engine or default_engine(), name or body.name)


def compile_reduce(
    body: Module,
    axes: Sequence[int],
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    engine: Engine | None = None,
    name: str = "",
) -> JitKernel | No:
    """A group of reductions over `axes` and pointwise ops; shapes with the strides that the memory has."""
    from .reduce import compile_reduce as compile_

    return compile_(body, axes, inputs, outputs, engine or default_engine(), name or body.name)


def compile_op(
    op: Operation, inputs: Sequence[Shape | None], outputs: Sequence[Shape], engine: Engine | None = None
) -> JitKernel | No:
    """One op by itself: pointwise, a reduction, softmax, a normalisation; None: an absent input."""
    from .norm import compile_op as compile_

    return compile_(op, inputs, outputs, engine or default_engine())


def compile_copy(source: Shape, target: Shape, engine: Engine | None = None, name: str = "copy") -> JitKernel | No:
    """A copy between two layouts of the same dims, converting where the element types differ."""
    from .pointwise import compile_copy as compile_

    return compile_(source, target, engine or default_engine(), name)


def compile_attention(
    q: Shape,
    k: Shape,
    v: Shape,
    out: Shape,
    engine: Engine | None = None,
    score: Module | None = None,
    extra: Sequence[Shape] = (),
    causal: bool = False,
    offset: int | None = None,
    name: str = "attention",
    guarded: bool = False,
) -> JitKernel | No:
    """Scaled dot-product attention that never holds all scores."""
    from .attention import compile_attention as compile_

    return compile_(q, k, v, out, engine or default_engine(), score, extra, causal, offset, name, guarded)


def compile_gemm(
    a: Shape,
    columns: int,
    weights: DType,
    out: Shape,
    engine: Engine | None = None,
    body: Module | None = None,
    at: int = 0,
    extra: Sequence[Shape] = (),
    threads: int = 1,
    name: str = "gemm",
) -> JitKernel | No:
    """A matrix times packed weights, and pointwise work on the result."""
    from .gemm import compile_gemm as compile_

    return compile_(a, columns, weights, out, engine or default_engine(), body, at, extra, threads, name)


def compile_gather(axis: int, data: Shape, indices: Shape, out: Shape, engine: Engine | None = None) -> JitKernel | No:
    """Slices of data along `axis` at int32 or int64 positions.

    Buffers: data, indices, output, and a second output int32 [1] that is set to 1 where a position lies outside.
    """
    from .move import compile_gather as compile_

    return compile_(axis, data, indices, out, engine or default_engine())


def compile_pad(op: Pad, x: Shape, out: Shape, engine: Engine | None = None) -> JitKernel | No:
    """Borders of fixed widths, in every mode."""
    from .move import compile_pad as compile_

    return compile_(op, x, out, engine or default_engine())


def compile_resize(op: Resize, x: Shape, out: Shape, engine: Engine | None = None) -> JitKernel | No:
    """Nearest, linear and cubic resampling with fixed factors or sizes."""
    from .move import compile_resize as compile_

    return compile_(op, x, out, engine or default_engine())


def compile_pooling(op: Pooling, x: Shape, out: Shape, engine: Engine | None = None) -> JitKernel | No:
    """Maxima and averages of windows, in any layout."""
    from .move import compile_pooling as compile_

    return compile_(op, x, out, engine or default_engine())
