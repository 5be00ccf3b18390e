"""Lists the sample networks whose loops are prebuilt."""

from __future__ import annotations

from collections.abc import Iterator

import mgx_core as mgx

from .attention_samples import attentions
from .elementwise_samples import coded, elementwise, gates, moves, resized
from .product_samples import products, residuals
from .row_samples import norms, softmaxes, squeezes, sums

__all__ = ["samples"]


def samples() -> Iterator[mgx.Program]:
    """Yields programs, most of a few independent layers."""
    for layers in (
        products,
        residuals,
        sums,
        norms,
        softmaxes,
        squeezes,
        attentions,
        elementwise,
        coded,
        gates,
        moves,
        resized,
    ):
        yield from layers()
