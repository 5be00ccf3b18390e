"""Epilogues of int8 products for oneDNN: scale, bias, merged linear functions, and an in-place sum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.targets.epilogue import Link
from mgx_core.targets.values import Value
from mgx_core.types.dtype import DType

from ..emitter import CpuEmitter
from .epilogues import Epilogue
from .integer_operands import int32_zero_point

__all__ = ["BYTES", "QuantizationAttributes"]

BYTES: Final = frozenset({dt.int8, dt.uint8})


def take_scale(e: CpuEmitter, epilogue: Epilogue, axis: int, count: int) -> tuple[Value, bool] | None:
    """Removes the first link and returns its operand as the weights' scale, if it multiplies by a scalar or along `axis`.

    Returns the factors, and whether there is one per index.
    """
    if not epilogue.links:
        return None
    link, operand = epilogue.links[0]
    if link.kind == "eltwise":
        if link.algorithm != "linear" or link.beta:
            return None
        del epilogue.links[0]
        return e.literal(np.array([link.alpha], np.float32)), False
    if link.algorithm != "mul" or operand is None or operand.shape.dtype is not dt.float32:
        return None
    found = as_vector(operand, axis, count)
    if found is None:
        return None
    del epilogue.links[0]
    return found, prod(found.lens) != 1 or count == 1


def take_bias(epilogue: Epilogue, axis: int, count: int) -> Value | None:
    """Removes the first link and returns its operand as the bias, if it adds one value per index of `axis`."""
    if not epilogue.links:
        return None
    link, operand = epilogue.links[0]
    if link.kind != "binary" or link.algorithm != "add" or operand is None or operand is epilogue.residual:
        return None
    found = as_vector(operand, axis, count)
    if found is None or found.lens != [count] or operand.shape.dtype is not dt.float32:
        return None
    del epilogue.links[0]
    return found


def fold_linear(
    e: CpuEmitter, epilogue: Epilogue, scale: Value, bias: Value | None, count: int
) -> tuple[Value, Value | None]:
    """Folds a following linear link into constant scale and bias; returns both."""
    link = epilogue.links[0][0] if epilogue.links else None
    if link is None or link.algorithm != "linear" or not link.alpha:
        return scale, bias
    factor, term = e.constant(scale), None if bias is None else e.constant(bias)
    if factor is None or (bias is not None and term is None):
        return scale, bias
    del epilogue.links[0]
    moved = (np.zeros(count) if term is None else term.astype(np.float64)) * link.alpha + link.beta
    wide = (factor.astype(np.float64) * link.alpha).astype(np.float32)
    return e.literal(wide), e.literal(moved.astype(np.float32)) if moved.any() else None


def as_vector(value: Value, axis: int, count: int) -> Value | None:
    """Returns a view of a value as a contiguous vector along `axis` (one element if broadcast); None if it varies otherwise."""
    varies = [a for a, (n, s) in enumerate(zip(value.lens, value.strides, strict=True)) if s and n != 1]
    if not varies:
        return value.view_at(0, Shape(value.shape.dtype, [1]))
    if varies != [axis % len(value.lens)] or value.strides[varies[0]] != 1 or value.lens[varies[0]] != count:
        return None
    return value.view_at(0, Shape(value.shape.dtype, [count]))


def merge_links(links: list[tuple[Link, Value | None]], stored: DType) -> list[tuple[Link, Value | None]]:
    """Merges consecutive linear links; drops rounding and clipping that the conversion to `stored` performs."""
    found: list[tuple[Link, Value | None]] = []
    for n, (link, operand) in enumerate(links):
        before = found[-1][0] if found else None
        after = links[n + 1][0].algorithm if n + 1 < len(links) else ""
        if link.algorithm == "clip" and before is not None and after == "linear" and _adds_integer(before):
            bounds = Link("eltwise", "clip", link.alpha - before.beta, link.beta - before.beta)
            found[-1:] = [
                (bounds, operand),
                found[-1],
            ]  # clip before adding, so that the addition merges with the next linear link
            continue
        if link.algorithm == "linear" and before is not None and before.algorithm == "linear":
            found[-1] = (
                Link("eltwise", "linear", link.alpha * before.alpha, link.alpha * before.beta + link.beta),
                None,
            )
        else:
            found.append((link, operand))
    if stored in BYTES:
        while found and found[-1][0].algorithm == "clip" and _is_saturation(found[-1][0], stored):
            found.pop()
        if found and found[-1][0].algorithm == "round":
            found.pop()
        if stored is dt.uint8 and found and found[-1][0].algorithm == "relu" and not found[-1][0].alpha:
            found.pop()
    return [f for f in found if f[0].algorithm != "linear" or (f[0].alpha, f[0].beta) != (1.0, 0.0)]


def fold_into_sum(
    links: Sequence[tuple[Link, Value | None]], residual: Value | None
) -> list[tuple[Link, Value | None]]:
    """Rewrites a x + b, + residual, c x + d as (a c) x + (b c + d), + c residual: oneDNN's sum post-op has a scale."""
    found = list(links)
    at = next(n for n, (_, operand) in enumerate(found) if operand is residual)
    factor, term = 1.0, 0.0
    if at + 1 < len(found) and found[at + 1][0].algorithm == "linear":
        factor, term = found[at + 1][0].alpha, found[at + 1][0].beta
        del found[at + 1]
    before = found[at - 1][0] if at else None
    found[at] = Link("sum", "add", factor), residual
    if before is not None and before.algorithm == "linear":
        found[at - 1] = Link("eltwise", "linear", before.alpha * factor, before.beta * factor + term), None
    elif (factor, term) != (1.0, 0.0):
        found.insert(at, (Link("eltwise", "linear", factor, term), None))
    return found


def _adds_integer(link: Link) -> bool:
    return link.algorithm == "linear" and link.alpha == 1.0 and link.beta == round(link.beta)


def _is_saturation(link: Link, stored: DType) -> bool:
    return bool(link.alpha <= stored.lowest and link.beta >= stored.highest)


class QuantizationAttributes:
    """Attributes and arguments of a primitive: scales, zero points, bias, post-ops.

    axis, count: of output channels; mask: of per-channel scales of the weights; read, strides: operands and result layout, to
    decide whether the result overwrites the residual.
    """

    def __init__(
        self,
        e: CpuEmitter,
        epilogue: Epilogue | None,
        axis: int,
        count: int,
        mask: int,
        read: Sequence[Value],
        strides: Sequence[int],
    ) -> None:
        from ..native_library import native

        self.native = native()
        self.bound: dict[int, Value] = {}
        self.attributes: dict[str, Any] = {}
        self.bias: Value | None = None
        self.epilogue = epilogue
        self.out: Value | None = None  # the residual's memory, if the result accumulates into it
        if epilogue is None:
            return
        scale = take_scale(e, epilogue, axis, count)
        self.bias = take_bias(epilogue, axis, count)
        if scale is not None:
            numbers, self.bias = fold_linear(e, epilogue, scale[0], self.bias, count)
            self.attributes["scales"] = {self.native.ARG_WEIGHTS: mask if scale[1] else 0}
            self.bound[self.native.ARG_ATTR_SCALES | self.native.ARG_WEIGHTS] = numbers
        epilogue.links = merge_links(epilogue.links, epilogue.dtype)
        self.out = epilogue.in_place(read, strides)
        if self.out is not None:
            epilogue.links = fold_into_sum(epilogue.links, epilogue.residual)

    def zero_point(self, e: CpuEmitter, zero: Value | None, argument: int) -> None:
        """Sets the zero point of an operand, if there is one."""
        if zero is not None:
            self.attributes.setdefault("zero_points", {})[argument] = 0
            self.bound[self.native.ARG_ATTR_ZERO_POINTS | argument] = int32_zero_point(e, zero)

    def links(self, e: CpuEmitter, out: Value, flat: tuple[int, int] | None = None) -> dict[str, Any]:
        """Returns keyword arguments for the primitive's builder; flat: as in `Epilogue.attributes`."""
        more = {} if self.epilogue is None else self.epilogue.attributes(e, out, flat)
        return {**self.attributes, **more}

    def arguments(self, made: Any) -> dict[int, Value]:
        return self.bound | ({} if self.epilogue is None else self.epilogue.arguments(made))
