"""im2col kernels on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_trial import generate, run, tensor, traits

from mgx_core import dtype as dt
from mgx_core.ops.columns import Col2im
from mgx_gpu_hip.codegen.source import KernelSource, Tensor
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


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(
    ("image", "block", "given"),
    [
        ((1, 41), (1, 8), {"stride": (1, 3)}),
        ((1, 40), (1, 8), {"stride": (1, 4), "padding": (0, 3, 0, 1)}),
        ((7, 9), (3, 2), {"stride": (2, 3)}),
        ((7, 9), (3, 3), {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 1, 1, 1)}),
        ((6, 6), (2, 2), {"stride": (3, 3)}),
    ],
)
def test_images_are_sums_of_windows(image: tuple[int, int], block: tuple[int, int], given: dict, wave: int) -> None:
    op = Col2im(image_shape=image, block_shape=block, **given)
    windows = int(np.prod(op.counts(image, block)))
    x = np.random.default_rng(1).standard_normal((2, 3 * block[0] * block[1], windows)).astype(np.float32)
    wanted = op.compute(x)
    ins, outs = [tensor("float32", x.shape)], [tensor("float32", wanted.shape)]
    source = generate(op, ins, outs, traits(wave))
    assert isinstance(source, KernelSource)
    np.testing.assert_allclose(
        np.asarray(run(source, [x], ins, outs, wave)[0]).reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6
    )


def test_only_windows_that_cover_an_element_are_visited() -> None:
    """Of 1,024 places of an element in a window, four are in windows that begin 256 apart."""
    op = Col2im(image_shape=(1, 33536), block_shape=(1, 1024), stride=(1, 256))
    source = generate(op, [tensor("float16", (8, 1024, 128))], [tensor("float16", (8, 1, 1, 33536))], traits())
    assert isinstance(source, KernelSource) and "j1 += 256" in source.text
