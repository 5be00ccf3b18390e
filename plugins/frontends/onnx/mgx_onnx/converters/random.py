"""Random tensors, computed from a seed that is itself a value of the program."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mgx_core import Instruction, Shape
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim
from mgx_core.types.dtype import DType

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of
from .movement import bounded


def _seed(n: Node) -> Instruction:
    """Returns the seed from the attribute (all of its bits matter); without one, a new seed for each run."""
    if n.has("seed"):
        return n.literal(np.array([np.float32(n.attr("seed")).view(np.uint32)], np.uint64))
    return n.add("random_seed")


def _numbers(n: Node, op: str, dims: Iterable[Dim], dtype: DType, spread: float, offset: float) -> Instruction:
    """Returns spread * random + offset, computed in float32 or float64."""
    if not dtype.is_float:
        n.fail(f"dtype must be a float type, got {dtype}")
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    like = n.add("allocate", shape=Shape.of(wide, bounded(n, tuple(dims), wide.size)))
    x = n.add(op, _seed(n), like)
    if spread != 1:
        x = n.add("mul", x, n.full_like(x, spread))
    if offset != 0:
        x = n.add("add", x, n.full_like(x, offset))
    return n.convert(x, dtype)


def like(x: Instruction) -> DType:
    """Returns the type of random numbers for x: its own if it is a float type."""
    return x.shape.dtype if x.shape.dtype.is_float else dt.float32


def _dtype(n: Node, default: DType) -> DType:
    return dtype_of(n.attr("dtype")) if n.has("dtype") else default


@converts("RandomNormal")
def random_normal(n: Node) -> Instruction:
    dtype, scale, mean = _dtype(n, dt.float32), n.attr("scale", 1.0), n.attr("mean", 0.0)
    return _numbers(n, "random_normal", n.attr("shape"), dtype, scale, mean)


@converts("RandomNormalLike")
def random_normal_like(n: Node, x: Instruction) -> Instruction:
    dtype, scale, mean = _dtype(n, like(x)), n.attr("scale", 1.0), n.attr("mean", 0.0)
    return _numbers(n, "random_normal", x.shape.dims, dtype, scale, mean)


@converts("RandomUniform")
def random_uniform(n: Node) -> Instruction:
    low, high = n.attr("low", 0.0), n.attr("high", 1.0)
    return _numbers(n, "random_uniform", n.attr("shape"), _dtype(n, dt.float32), high - low, low)


@converts("RandomUniformLike")
def random_uniform_like(n: Node, x: Instruction) -> Instruction:
    low, high = n.attr("low", 0.0), n.attr("high", 1.0)
    return _numbers(n, "random_uniform", x.shape.dims, _dtype(n, like(x)), high - low, low)


@converts("Bernoulli", since=15)
def bernoulli(n: Node, x: Instruction) -> Instruction:
    dtype = _dtype(n, x.shape.dtype)
    p = x if x.shape.dtype is dt.float64 else n.convert(x, dt.float32)
    drawn = _numbers(n, "random_uniform", x.shape.dims, p.shape.dtype, 1.0, 0.0)
    return n.convert(n.add("less", drawn, p), dtype)


@converts("Multinomial", since=7)
def multinomial(n: Node, x: Instruction) -> Instruction:
    dtype, count = _dtype(n, dt.int32), n.attr("sample_size", 1)
    if x.shape.rank != 2 or not x.shape.dtype.is_float:
        n.fail(f"the input must be a float matrix, got {x.shape}")
    if dtype not in (dt.int32, dt.int64) or count < 1:
        n.fail(f"dtype int32 or int64 and a sample_size of at least 1 are required, got {dtype} and {count}")
    x = x if x.shape.dtype is dt.float64 else n.convert(x, dt.float32)
    top = n.broadcast_to(n.add("reduce_max", x, axes=(1,)), x.shape.dims)
    weights = n.add("exp", n.add("sub", x, top))
    totals = n.add("prefix_scan_sum", weights, axis=1)
    draws = _numbers(n, "random_uniform", (x.shape.dims[0], count), x.shape.dtype, 1.0, 0.0)
    return n.add("multinomial", totals, draws, dtype=dtype)
