"""Reductions, argmax and argmin, cumulative sums, sorting."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..complex_parts import by_parts
from ..converter import Converter, converts
from ..node import Node, Scalar
from .casts import cast

__all__ = ["logsumexp_of", "variance"]


def reduction(name: str, truths: str = "") -> Converter:
    def convert(n: Node, x: Instruction, dim: Any = None, keepdim: bool = False) -> Instruction:
        if truths and n.dtype is dt.bool_:
            return n.reduce(truths, cast(n, x, dt.bool_), n.reduced_axes(x, dim), keepdim)
        return n.reduce(name, cast(n, x, n.dtype), n.reduced_axes(x, dim), keepdim)

    return convert


converts("sum")(reduction("reduce_sum", "reduce_any"))
converts("mean")(reduction("reduce_mean"))
converts("prod")(reduction("reduce_prod", "reduce_all"))
converts("amax", "max.default", "max")(reduction("reduce_max", "reduce_any"))
converts("amin", "min.default", "min")(reduction("reduce_min", "reduce_all"))


def truth(name: str) -> Converter:
    def convert(n: Node, x: Instruction, dim: Any = None, keepdim: bool = False) -> Instruction:
        out = n.reduce(name, cast(n, x, dt.bool_), n.reduced_axes(x, dim), keepdim)
        return n.convert(out, n.dtype)

    return convert


converts("any", "_is_any_true")(truth("reduce_any"))
converts("all", "_is_all_true")(truth("reduce_all"))


def ordered(n: Node, x: Instruction) -> Instruction:
    """Returns booleans as uint8, which can be ordered."""
    return n.convert(x, dt.int32) if x.shape.dtype is dt.bool_ else x


def position(name: str) -> Converter:
    def convert(n: Node, x: Instruction, dim: int | None = None, keepdim: bool = False) -> Instruction:
        x = ordered(n, x)
        if dim is None:
            out = n.add(name, n.reshape(x, (n.size(x, range(x.shape.rank)),)), axis=0)
            return n.reshape(out, n.result_dims())
        if not x.shape.rank:
            return n.literal(0, dt.int64)
        axis = n.axis(dim, x.shape.rank)
        out = n.add(name, x, axis=axis)
        return out if keepdim else n.squeeze(out, [axis])

    return convert


converts("argmax")(position("argmax"))
converts("argmin")(position("argmin"))


def extreme(reduce: str, place: str, truths: str) -> Converter:
    def convert(n: Node, x: Instruction, dim: int, keepdim: bool = False) -> tuple[Instruction, Instruction]:
        if not x.shape.rank:
            return x, n.literal(0, dt.int64)
        axis = n.axis(dim, x.shape.rank)
        values = n.reduce(truths if x.shape.dtype is dt.bool_ else reduce, x, [axis], keepdim)
        where = n.add(place, ordered(n, x), axis=axis)
        return values, where if keepdim else n.squeeze(where, [axis])

    return convert


converts("max.dim")(extreme("reduce_max", "argmax", "reduce_any"))
converts("min.dim")(extreme("reduce_min", "argmin", "reduce_all"))


def variance(
    n: Node, x: Instruction, axes: tuple[int, ...], correction: Scalar, keep: bool
) -> tuple[Instruction, Instruction]:
    """Returns variance and mean over axes, accumulated in float32 or wider."""
    dtype = x.shape.dtype
    wide = n.convert(x, dt.float32) if dtype.bits < 32 else x
    if not x.shape.rank:
        wide, axes = n.unsqueeze(wide, [0]), (0,)
    mean = n.add("reduce_mean", wide, axes=axes)
    off = n.pointwise("sub", wide, mean)
    total = n.add("reduce_sum", n.add("mul", off, off), axes=axes)
    count = n.convert(n.graph.scalar(n, n.size(wide, axes)), wide.shape.dtype)
    divisor = n.add("max", n.add("sub", count, n.tensor(correction, wide.shape.dtype)), n.literal(0, wide.shape.dtype))
    out = n.pointwise("div", total, divisor)
    drop = axes if not keep or not x.shape.rank else ()
    found = [n.convert(n.squeeze(i, drop) if drop else i, dtype) for i in (out, mean)]
    return found[0], found[1]


def spread(n: Node, x: Instruction, dim: Any, correction: Any, keepdim: bool) -> tuple[Instruction, Instruction]:
    return variance(n, x, n.reduced_axes(x, dim), 1 if correction is None else correction, keepdim)


@converts("var.correction", "std.correction")
def var(n: Node, x: Instruction, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Instruction:
    out, _ = spread(n, x, dim, correction, keepdim)
    return n.add("sqrt", out) if "std" in str(n.fx.target) else out


@converts("var", "var.dim", "std", "std.dim")
def var_dim(n: Node, x: Instruction, *given: Any) -> Instruction:
    dims, unbiased, keep = (given if len(given) == 3 else (None, *given, False)) if given else (None, True, False)
    out, _ = spread(n, x, dims, int(bool(unbiased)), keep)
    return n.add("sqrt", out) if "std" in str(n.fx.target) else out


@converts("var_mean.correction", "std_mean.correction")
def var_mean(
    n: Node, x: Instruction, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> tuple[Instruction, Instruction]:
    out, mean = spread(n, x, dim, correction, keepdim)
    return (n.add("sqrt", out) if "std" in str(n.fx.target) else out), mean


def logsumexp_of(n: Node, x: Instruction, axes: tuple[int, ...]) -> Instruction:
    """Returns log(sum(exp(x))) over axes, kept with extent 1; the maximum is subtracted unless it is infinite."""
    top = n.reduce("reduce_max", x, axes, True)
    top = n.add("where", n.add("isinf", top), n.full_like(top, 0), top)
    total = n.reduce("reduce_sum", n.add("exp", n.pointwise("sub", x, top)), axes, True)
    return n.add("add", n.add("log", total), top)


@converts("logsumexp")
def logsumexp(n: Node, x: Instruction, dim: Any, keepdim: bool = False) -> Instruction:
    x = n.convert(x, n.dtype)
    axes = n.reduced_axes(x, dim)
    out = logsumexp_of(n, x, axes)
    return out if keepdim or not x.shape.rank else n.squeeze(out, axes)


@converts("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar")
def vector_norm(n: Node, x: Instruction, order: Any = 2, dim: Any = None, keepdim: bool = False) -> Instruction:
    axes = n.reduced_axes(x, dim)
    x = n.convert(x, n.dtype)
    size = n.add("abs", x)
    order = 2 if order is None else order
    if order == float("inf"):
        return n.reduce("reduce_max", size, axes, keepdim)
    if order == float("-inf"):
        return n.reduce("reduce_min", size, axes, keepdim)
    if order == 0:
        return n.reduce("reduce_sum", n.convert(n.add("not_equal", x, n.full_like(x, 0)), n.dtype), axes, keepdim)
    if order == 1:
        return n.reduce("reduce_sum", size, axes, keepdim)
    wide = n.convert(size, dt.float32) if x.shape.dtype.bits < 32 else size
    if order == 2:
        out = n.add("sqrt", n.reduce("reduce_sum", n.add("mul", wide, wide), axes, keepdim))
    else:
        total = n.reduce("reduce_sum", n.add("pow", wide, n.full_like(wide, order)), axes, keepdim)
        out = n.add("pow", total, n.full_like(total, 1 / order))
    return n.convert(out, n.dtype)


def running(name: str) -> Converter:
    def convert(n: Node, x: Instruction, dim: int) -> Instruction:
        x = n.convert(x, n.dtype)
        return n.add(name, x, axis=n.axis(dim, x.shape.rank)) if x.shape.rank else x

    return convert


by_parts("cumsum")(running("prefix_scan_sum"))
converts("cumprod")(running("prefix_scan_prod"))


def numeric(n: Node, x: Instruction, compute: Any) -> Any:
    """Applies a numeric op to booleans as uint8."""
    if x.shape.dtype is not dt.bool_:
        return compute(x)
    values, places = compute(n.convert(x, dt.uint8))
    return n.convert(values, dt.bool_), places


@converts("topk")
def topk(n: Node, x: Instruction, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.shape.rank:
        return x, n.literal(0, dt.int64)
    axis = n.axis(dim, x.shape.rank)
    return n.items(n.add("topk", x, k=k, axis=axis, largest=largest, sorted=sorted))


@converts("sort.default", "sort")
def sort(n: Node, x: Instruction, dim: int = -1, descending: bool = False) -> Any:
    if not x.shape.rank:
        return x, n.literal(0, dt.int64)
    axis = n.axis(dim, x.shape.rank)
    return numeric(n, x, lambda v: n.items(n.add("topk", v, k=v.shape.dims[axis], axis=axis, largest=descending)))


@converts("sort.stable")
def sort_stable(n: Node, x: Instruction, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return sort(n, x, dim, descending)


@converts("argsort.default", "argsort")
def argsort(n: Node, x: Instruction, dim: int = -1, descending: bool = False) -> Instruction:
    found: Instruction = sort(n, x, dim, descending)[1]
    return found


@converts("argsort.stable")
def argsort_stable(
    n: Node, x: Instruction, stable: bool = True, dim: int = -1, descending: bool = False
) -> Instruction:
    return argsort(n, x, dim, descending)
