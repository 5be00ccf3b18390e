"""4-bit weight quantization by groups: round to nearest with optimal scales, or GPTQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from ..errors import ParameterError
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.coded_product import DequantDot
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.reshape import Reshape
from ..ops.scalar import widen
from ..rules.outline import through_views
from ..rules.quantized_weights import packed_codes
from ..types import dtype as dt
from ..types.argument import Array
from .calibrate import watch
from .config import Calibration, Quantizable
from .products import constant_bytes, name_of, place_literals, prepare, swept
from .record import Layer, QuantizeReport, emptied
from .scales import signal_to_noise

__all__ = ["quantize_int4_weights"]

P = TypeVar("P", bound=Quantizable)
LEAST = 4096  # minimum elements of a quantized matrix
DAMPING = 0.01  # added to the Hessian's diagonal, relative to its mean


def quantize_int4_weights(
    program: P,
    group_size: int = 128,
    method: Literal["max", "mse", "gptq"] = "mse",
    calibration: Calibration | None = None,
    target: Any = None,
    symmetric: bool = False,
    report: QuantizeReport | None = None,
) -> P:
    """Quantizes constant weights of matrix products to 4 bits, with a scale per group; modifies and returns the program.

    method: scale from the largest weight of a group (``max``), minimal squared error (``mse``), or GPTQ, which compensates errors
    in weights that are not rounded yet (``gptq``, requires calibration data); symmetric: no zero points.
    If `group_size` does not divide the number of rows, the next smaller power of two that does is used, at least 32.
    Errors: ParameterError for a group size that is not a power of two of at least 32, or ``gptq`` without data.
    """
    if group_size < 32 or group_size & (group_size - 1):
        raise ParameterError(f"group_size must be a power of two, at least 32, got {group_size}")
    if method not in ("max", "mse", "gptq"):
        raise ParameterError(f"method must be max, mse or gptq, got {method!r}")
    if method == "gptq" and calibration is None:
        raise ParameterError("method gptq needs calibration data")
    kept = emptied(report)
    main = program.get_main_module()
    prepare(main)
    before = constant_bytes(main)
    found = [(m, i, w) for m in nested(main) for i in m if (w := matrix_of(i)) is not None]
    second: dict[Instruction, Array] = {}
    if method == "gptq":
        assert calibration is not None
        second = _moments(main, [i for m, i, _ in found if m is main], calibration, target)
    for module, ins, weights in found:
        size = group_size
        while size > 32 and len(weights) % size:
            size //= 2
        noise = _replace(module, ins, weights, size, method, symmetric, second.get(ins))
        kept.layers.append(Layer(name_of(ins), ins.op.name, noise=noise))
    kept.bytes = before, swept(main)
    program.executable = None
    return program


def matrix_of(ins: Instruction) -> Array | None:
    """Returns a product's constant right operand [k, n]; None for other instructions and small matrices."""
    if not isinstance(ins.op, Dot) or ins.shape.dtype is not dt.float32:
        return None
    source = through_views(ins.inputs[1])
    if source.literal is None or through_views(ins.inputs[0]).is_literal:
        return None
    value = np.asarray(source.literal.value)
    dims = ins.inputs[1].shape.dims
    if value.ndim < 2 or value.shape[-2:] != dims[-2:] or value.size != value.shape[-1] * value.shape[-2]:
        return None
    matrix = widen(value).astype(np.float32).reshape(value.shape[-2:])
    return matrix if matrix.size >= LEAST else None


def _moments(main: Module, products: Sequence[Instruction], data: Calibration, target: Any) -> dict[Instruction, Array]:
    """Returns the sums of x^T x over all rows of the products' left operands."""
    from .static import target_or_best

    inputs = list(dict.fromkeys(p.inputs[0] for p in products))
    sums = [np.zeros((0, 0))] * len(inputs)

    def add(copy: Module, tensors: Sequence[Instruction]) -> list[Instruction]:
        rows = [copy.add(Reshape(dims=(-1, t.shape.dims[-1])), t) for t in tensors]
        return [copy.add(Dot(), copy.add(Transpose(permutation=(1, 0)), r), r) for r in rows]

    def see(values: Sequence[Array]) -> None:
        for n, part in enumerate(values):
            if not np.isfinite(part).all():
                raise ParameterError(f"calibration: {name_of(inputs[n])} has values that are not finite")
            sums[n] = sums[n] + part if sums[n].size else part.astype(np.float64)

    watch(main, inputs, add, data, target_or_best(target), see)
    by_input = dict(zip(inputs, sums, strict=True))
    return {p: by_input[p.inputs[0]] for p in products}


def _replace(
    module: Module, ins: Instruction, weights: Array, size: int, method: str, symmetric: bool, moments: Array | None
) -> float:
    rows = np.ascontiguousarray(weights.T)
    if moments is None:
        codes, scale, zero = by_groups(rows, size, symmetric, method != "max")
    else:
        codes, scale, zero = compensated(rows, moments, size, symmetric)
    wide = (codes - np.repeat(zero, size, 1)[:, : codes.shape[1]]) * np.repeat(scale, size, 1)[:, : codes.shape[1]]
    packed, _ = packed_codes(codes.astype(np.uint8), None, 4, size)
    literals = [packed, scale.astype(np.float32)] + ([] if symmetric else [zero.astype(np.uint8)])
    made = place_literals(module, ins, *literals)
    new = module.add(DequantDot(bits=4, block_size=size), ins.inputs[0], *made, before=ins, sources=ins.sources)
    module.replace(ins, new)
    return signal_to_noise(rows, rows - wide)


def grid(groups: Array, symmetric: bool, shrink: float = 1.0) -> tuple[Array, Array]:
    """Returns scales and zero points of groups [.., size]; shrink: scales the range of the weights."""
    if symmetric:
        scale = np.abs(groups).max(-1) * shrink / 7.5
        zero = np.full(scale.shape, 8.0)
    else:
        low, high = np.minimum(groups.min(-1), 0) * shrink, np.maximum(groups.max(-1), 0) * shrink
        scale = (high - low) / 15
        zero = np.clip(np.rint(-low / np.where(scale > 0, scale, 1)), 0, 15)
    return np.where(scale > 1e-30, scale, 1.0).astype(np.float32), zero.astype(np.float32)


def by_groups(rows: Array, size: int, symmetric: bool, least_error: bool) -> tuple[Array, Array, Array]:
    """Quantizes rows [n, k] by rounding to nearest; returns codes, scales and zero points."""
    n, k = rows.shape
    groups = np.pad(rows, ((0, 0), (0, -k % size))).reshape(n, -1, size)
    best_scale, best_zero = grid(groups, symmetric)
    if least_error:
        best = _error(groups, best_scale, best_zero)
        for shrink in np.arange(0.95, 0.6, -0.05):
            scale, zero = grid(groups, symmetric, float(shrink))
            error = _error(groups, scale, zero)
            better = error < best
            best = np.where(better, error, best)
            best_scale, best_zero = np.where(better, scale, best_scale), np.where(better, zero, best_zero)
    codes = _codes(groups, best_scale[..., None], best_zero[..., None]).reshape(n, -1)[:, :k]
    return codes, best_scale, best_zero


def _codes(values: Array, scale: Array, zero: Array) -> Array:
    return np.asarray(np.clip(np.rint(values / scale) + zero, 0, 15))


def _error(groups: Array, scale: Array, zero: Array) -> Array:
    codes = _codes(groups, scale[..., None], zero[..., None])
    return np.asarray((((codes - zero[..., None]) * scale[..., None] - groups) ** 2).sum(-1))


def compensated(rows: Array, moments: Array, size: int, symmetric: bool) -> tuple[Array, Array, Array]:
    """Like `by_groups`, but compensates each column's error in the following columns, to minimize the error of the product.

    moments: x^T x of the calibration data, [k, k].  Source: Frantar et al., GPTQ, 2022.
    """
    n, k = rows.shape
    work = rows.astype(np.float64).copy()
    hessian = moments.copy()
    dead = np.diag(hessian) <= 0
    hessian[dead, dead] = 1.0
    hessian[np.diag_indices(k)] += DAMPING * float(np.mean(np.diag(hessian)))
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T
    blocks = -(-k // size)
    codes = np.zeros((n, k))
    scales, zeros = np.ones((n, blocks), np.float32), np.zeros((n, blocks), np.float32)
    for b in range(blocks):
        first, last = b * size, min((b + 1) * size, k)
        _, scale, zero = by_groups(work[:, first:last].astype(np.float32), size, symmetric, True)
        scales[:, b], zeros[:, b] = scale[:, 0], zero[:, 0]
        errors = np.zeros((n, last - first))
        for at in range(first, last):
            column = work[:, at]
            codes[:, at] = _codes(column, scales[:, b], zeros[:, b])
            wide = (codes[:, at] - zeros[:, b]) * scales[:, b]
            error = (column - wide) / upper[at, at]
            errors[:, at - first] = error
            work[:, at + 1 : last] -= error[:, None] * upper[at, at + 1 : last]
        work[:, last:] -= errors @ upper[first:last, last:]
    return codes, scales, zeros
