"""SmoothQuant: migrates the magnitude of outlier channels from activations into weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.linear import Dot
from ..rules.outline import through_views
from ..types.argument import Array
from ..types.dtype import DType
from .config import QuantizeConfig
from .products import constant_weights, scaled
from .ranges import Observer
from .scales import after_rounding, dequantized

__all__ = ["smooth"]

SHARES: Final = (0.35, 0.5, 0.65, 0.8)  # migration strengths (alpha) to search
COLUMNS: Final = 256  # most weight columns for estimating the error
GAIN: Final = 0.7  # the error must fall below this ratio to justify the division


def smooth(
    main: Module,
    products: Sequence[Instruction],
    config: QuantizeConfig,
    types: tuple[DType, DType],
    seen: dict[Instruction, Observer],
) -> dict[Instruction, Array]:
    """Divides left operands of matrix products by channel scales, if that reduces the error; adds their statistics to `seen`.

    Returns, for each such product, the factors of the rows of its weights.
    """
    found: dict[Instruction, Array] = {}
    readers: dict[Instruction, list[Instruction]] = {}
    for product in products:
        for tensor in product.inputs[:2]:
            readers.setdefault(tensor, []).append(product)
    for tensor, mine in readers.items():
        if tensor not in seen or not all(isinstance(p.op, Dot) and through_views(p.inputs[1]).is_literal for p in mine):
            continue
        if seen[tensor].axis != tensor.shape.rank - 1:
            continue  # it is also read by a convolution that stays in float
        weights = [constant_weights(p)[0] for p in mine]
        if any(w.ndim != 2 for w in weights):
            continue
        by = factors(seen[tensor], weights, config, types)
        if by is None:
            continue
        narrow = scaled(main, tensor, 1 / by)
        seen[narrow] = seen[tensor].divided(by)
        for product in mine:
            main.rewire(product, [narrow, product.inputs[1]])
            found[product] = by
    return found


def factors(
    observer: Observer, weights: Sequence[Array], config: QuantizeConfig, types: tuple[DType, DType]
) -> Array | None:
    """Returns the channel scales [k], by which the tensor is divided and the rows of all its weights [k, n] are multiplied.

    Selects the migration strength with the smallest error of products of sampled rows; None if the gain is too small.
    Source: Xiao et al., SmoothQuant, 2022; the search is that of Lin et al., AWQ, 2023.
    """
    few = [np.ascontiguousarray(w[:, :: max(1, w.shape[1] // COLUMNS)]) for w in weights]
    here = np.maximum(-observer.lows, observer.highs)
    there = np.max([np.abs(w).max(1) for w in weights], axis=0)
    exact = [observer.rows @ w for w in few]
    least = _error(observer, few, exact, None, config, types) * GAIN
    best = None
    for share in SHARES:
        made = np.maximum(here, 1e-5) ** share / np.maximum(there, 1e-5) ** (1 - share)
        made = np.clip(made / np.exp(np.log(made).mean()), 1e-3, 1e3).astype(np.float32)
        error = _error(observer, few, exact, made, config, types)
        if error < least:
            least, best = error, made
    return best


def _error(
    observer: Observer,
    weights: Sequence[Array],
    exact: Sequence[Array],
    by: Array | None,
    config: QuantizeConfig,
    types: tuple[DType, DType],
) -> float:
    """Returns the squared error of quantized products of the sampled rows; exact: the float products."""
    seen = observer if by is None else observer.divided(by)
    rows = after_rounding(seen.rows, *seen.range(config.ranges, config.percentile, types[0]), types[0])
    total = 0.0
    for w, wanted in zip(weights, exact, strict=True):
        narrow = dequantized(w if by is None else w * by[:, None], 1 if config.per_channel else None, types[1])
        total += float(((rows @ narrow - wanted) ** 2).sum())
    return total
