"""im2col kernels on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_trial import run

from mgx_core import dtype as dt
from mgx_gpu_hip.codegen.source import Tensor
from mgx_gpu_hip.codegen.unfold import Windows, unfold


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("inside", [False, True])
def test_rows_are_windows(channels: int, inside: bool) -> None:
    n, h, w, k, width = 2, 7, 6, 3, 80
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, channels, h, w)).astype(np.float32)
    image = (4, 3)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    wanted = np.zeros((n * 12, width), np.float32)
    for row in range(n * 12):
        i, a, b = row // 12, row // 3 % 4, row % 3
        patch = padded[i, :, 2 * a : 2 * a + k, 2 * b : 2 * b + k]
        wanted[row, : 9 * channels] = (np.moveaxis(patch, 0, -1) if inside else patch).reshape(-1)
    strides = (channels * h * w, 1, w * channels, channels) if inside else (channels * h * w, h * w, w, 1)
    tensor = Tensor(dt.float32, x.shape, strides)
    out = Tensor(dt.float32, wanted.shape, (width, 1))
    source = unfold(tensor, out, Windows((k, k), (2, 2), (1, 1), (1, 1), image, inside, width))
    got = run(source, [x], [tensor], [out], 32)
    np.testing.assert_array_equal(np.asarray(got[0]).reshape(wanted.shape), wanted)
