"""Transposed convolutions of extents that change with every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

Check = Callable[..., None]
rng = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("channels", "outputs", "window", "attributes"),
    [
        (24, 16, (2, 2), {"stride": [2, 2]}),
        (24, 20, (3, 3), {"stride": [2, 2], "padding": [1, 1]}),
        (16, 24, (4, 4), {"stride": [2, 2], "padding": [1, 1]}),
        (16, 24, (3, 5), {"stride": [1, 1], "padding": [1, 2]}),
        (16, 8, (3, 3), {"stride": [2, 3], "group": 2}),
        (16, 24, (3, 3), {"stride": [2, 2], "dilation": [2, 2], "padding": [2, 2]}),
        (16, 24, (4, 4), {"stride": [2, 2], "padding": [1, 1], "output_padding": [1, 0]}),
        (8, 2, (2, 2), {"stride": [2, 2]}),
    ],
)
def test_images(agrees_open: Check, channels: int, outputs: int, window: Any, attributes: dict[str, Any]) -> None:
    w = rng.standard_normal((channels, outputs, *window)).astype(np.float32)
    op = mgx.op("convolution_backwards", **attributes)
    agrees_open(op, [2, channels, "h", "w"], [w], [(19, 34), (30, 20), (24, 33), (61, 40)], 1e-3)


@pytest.mark.parametrize(("window", "stride", "padding"), [(16, 8, 4), (8, 4, 2), (3, 2, 0)])
def test_signals(agrees_open: Check, window: int, stride: int, padding: int) -> None:
    w = rng.standard_normal((24, 20, window)).astype(np.float32)
    op = mgx.op("convolution_backwards", stride=[stride], padding=[padding])
    agrees_open(op, ["b", 24, "t"], [w], [(2, 9), (3, 40), (5, 4), (2, 200)], 1e-3)
