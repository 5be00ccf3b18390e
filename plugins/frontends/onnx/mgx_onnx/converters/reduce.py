"""Reductions, ArgMax and ArgMin, softmax family, cumulative sums and top-k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mgx_core import Instruction, UnrankedError
from mgx_core.ops.axes import normalize
from mgx_core.types.dim import Dim, product

from ..converter import Converter, converts
from ..node import Node
from .precision import as_float, widened

__all__: list[str] = []

Axes: TypeAlias = "tuple[int, ...] | Instruction | None"  # None: nothing is reduced
# (name of a reduction, operand) -> reduced operand, axes kept
Step: TypeAlias = Callable[[str, Instruction], Instruction]


def _axes(n: Node, x: Instruction, given: Instruction | None) -> Axes:
    """Returns the axes from the attribute (old opsets) or the input, possibly known only at run time."""
    noop = n.attr("noop_with_empty_axes", 0)
    if given is not None:
        known = n.constant(given)
        if known is None and (given.shape.dynamic() or given.shape.elements()):
            return given
        values = [] if known is None else [int(a) for a in known.reshape(-1)]
    else:
        values = n.attr("axes", None) or []
    if values:
        return n.axes(values, x.shape.rank)
    return None if noop else tuple(range(x.shape.rank))


def _step(n: Node, axes: Axes) -> Step:
    def reduced(name: str, x: Instruction) -> Instruction:
        if axes is None or axes == ():
            return x
        if isinstance(axes, tuple):
            return n.add(name, x, axes=axes)
        return n.add(name, x, axes, noop_with_empty_axes=bool(n.attr("noop_with_empty_axes", 0)))

    return reduced


def _dropped(n: Node, x: Instruction, axes: Axes) -> Instruction:
    """Squeezes the reduced axes unless the node keeps them."""
    if axes is None or axes == () or n.attr("keepdims", 1):
        return x
    if isinstance(axes, tuple):
        return n.squeeze(x, axes)
    if axes.shape.dynamic():
        raise UnrankedError("the rank of a reduction depends on the number of axes given at run time")
    return n.add("squeeze", x, axes)


def _reduction(compose: Callable[[Node, Step, Instruction], Instruction]) -> Converter:
    def convert(n: Node, x: Instruction, axes: Instruction | None = None) -> Instruction:
        where = _axes(n, x, axes)
        return _dropped(n, n.convert(compose(n, _step(n, where), x), x.shape.dtype), where)

    return convert


def _plain(name: str) -> Converter:
    return _reduction(lambda n, reduced, x: reduced(name, x))


converts("ReduceSum")(_plain("reduce_sum"))
converts("ReduceMean")(_plain("reduce_mean"))
converts("ReduceProd")(_plain("reduce_prod"))
converts("ReduceMax")(_plain("reduce_max"))
converts("ReduceMin")(_plain("reduce_min"))


def _sum_of_sizes(n: Node, reduced: Step, x: Instruction) -> Instruction:
    return reduced("reduce_sum", n.add("abs", widened(n, x)))


def _sum_of_squares(n: Node, reduced: Step, x: Instruction) -> Instruction:
    wide = widened(n, x)
    return reduced("reduce_sum", n.add("mul", wide, wide))


def _length(n: Node, reduced: Step, x: Instruction) -> Instruction:
    wide = as_float(n, x)
    return n.add("sqrt", reduced("reduce_sum", n.add("mul", wide, wide)))


def _log_of_sum(n: Node, reduced: Step, x: Instruction) -> Instruction:
    return n.add("log", reduced("reduce_sum", as_float(n, x)))


def _log_of_sum_of_powers(n: Node, reduced: Step, x: Instruction) -> Instruction:
    """Returns log(sum(exp(x))); the maximum is subtracted first, unless it is infinite."""
    wide = as_float(n, x)
    top = reduced("reduce_max", wide)
    top = n.add("where", n.add("isinf", top), n.full_like(top, 0), top)
    total = reduced("reduce_sum", n.add("exp", n.pointwise("sub", wide, top)))
    return n.add("add", n.add("log", total), top)


converts("ReduceL1")(_reduction(_sum_of_sizes))
converts("ReduceSumSquare")(_reduction(_sum_of_squares))
converts("ReduceL2")(_reduction(_length))
converts("ReduceLogSum")(_reduction(_log_of_sum))
converts("ReduceLogSumExp")(_reduction(_log_of_sum_of_powers))


def _position(name: str) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        axis = normalize(n.attr("axis", 0), x.shape.rank)
        out = n.add(name, x, axis=axis, select_last_index=bool(n.attr("select_last_index", 0)))
        return out if n.attr("keepdims", 1) else n.squeeze(out, [axis])

    return convert


converts("ArgMax")(_position("argmax"))
converts("ArgMin")(_position("argmin"))


def _along_axis(name: str) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        return n.add(name, x, axis=normalize(n.attr("axis", -1), x.shape.rank))

    return convert


def _flattened(name: str) -> Converter:
    """Returns the converter of a softmax before opset 13, where all axes from `axis` on are flattened into one."""

    def convert(n: Node, x: Instruction) -> Instruction:
        dims = x.shape.dims
        axis = normalize(n.attr("axis", 1), len(dims))
        if axis == len(dims) - 1:
            return n.add(name, x, axis=axis)
        flat = n.reshape(x, (product(dims[:axis]), product(dims[axis:])))
        return n.reshape(n.add(name, flat, axis=1), dims)

    return convert


for _onnx, _name in (("Softmax", "softmax"), ("LogSoftmax", "logsoftmax"), ("Hardmax", "hardmax")):
    converts(_onnx)(_flattened(_name))
    converts(_onnx, since=13)(_along_axis(_name))


def _scan(name: str) -> Converter:
    def convert(n: Node, x: Instruction, axis: Instruction) -> Instruction:
        options: dict[str, Any] = {"exclusive": bool(n.attr("exclusive", 0)), "reverse": bool(n.attr("reverse", 0))}
        known = n.constant(axis)
        if known is None:
            return n.add(name, x, axis, **options)
        if known.size != 1:
            raise n.error(f"axis must be a scalar, got {axis.shape}")
        return n.add(name, x, axis=normalize(int(known.reshape(-1)[0]), x.shape.rank), **options)

    return convert


converts("CumSum")(_scan("prefix_scan_sum"))
converts("CumProd")(_scan("prefix_scan_prod"))


@converts("TopK")
def topk(n: Node, x: Instruction, k: Instruction | None = None) -> tuple[Instruction, ...]:
    """Converts TopK, whose K is an attribute before opset 10."""
    options: dict[str, Any] = {key: bool(n.attr(key, 1)) for key in ("largest", "sorted")}
    options["axis"] = n.attr("axis", -1)
    if k is None:
        return n.items(n.add("topk", x, k=n.attr("k"), **options))
    known: tuple[Dim, ...] | None = n.dims(k)
    if known is None:
        return n.items(n.add("topk", x, k, **options))
    if len(known) != 1:
        raise n.error(f"K must have one element, got {len(known)}")
    return n.items(n.add("topk", x, k=known[0], **options))
