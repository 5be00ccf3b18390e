"""Cases of convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .case import Case, floats, normal, one, positive, whole


def convolutions() -> Iterator[Case]:
    """Yields Conv, ConvTranspose, DeformConv, integer convolutions and pools."""
    yield from _of_lines()
    yield from _of_images()
    yield from _of_groups()
    yield from _of_volumes()
    yield from _of_other_operands()
    yield from _transposed()
    yield from _deformed_or_integer()
    yield from _pools()


def conv(
    note: str, x: tuple[int, ...], w: tuple[int, ...], op: str = "Conv", bias: bool = True, **attributes: Any
) -> Case:
    """Returns a case with random operands; those but the first are constants."""
    groups = attributes.get("group", 1)
    channels = w[1] * groups if op == "ConvTranspose" else w[0]
    fan = max(1, int(np.prod(w[1:])))
    given = [normal(*x), normal(*w) / np.float32(fan**0.5), *([normal(channels)] if bias else [])]
    return one(op, note, *given, constants=range(1, len(given)), **attributes)


def up(note: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Case:
    return conv(note, x, w, "ConvTranspose", **attributes)


def _of_lines() -> Iterator[Case]:
    """Yields convolutions of one axis."""
    yield conv("1d k3", (4, 64, 500), (64, 64, 3), pads=[1, 1])
    yield conv("1d k3 dilation 16", (1, 64, 2000), (64, 64, 3), pads=[16, 16], dilations=[16])
    yield conv("1d wave k10 stride 5", (1, 1, 16000), (512, 1, 10), strides=[5])
    yield conv("1d depthwise k31", (1, 256, 500), (256, 1, 31), pads=[15, 15], group=256)
    yield conv("1d k400 stride 160", (1, 1, 32000), (80, 1, 400), strides=[160])
    yield conv("1d k7 causal", (1, 32, 4000), (32, 32, 7), pads=[6, 0])


def _of_images() -> Iterator[Case]:
    """Yields dense convolutions of images."""
    yield conv("2d 3x3", (1, 64, 56, 56), (64, 64, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 few channels", (1, 3, 224, 224), (8, 3, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 to 1 channel", (1, 32, 128, 128), (1, 32, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 to 3 channels", (1, 64, 128, 128), (3, 64, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 5 to 7 channels", (2, 5, 100, 100), (7, 5, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 dilation 2", (1, 64, 56, 56), (64, 64, 3, 3), pads=[2] * 4, dilations=[2, 2])
    yield conv("2d 3x3 dilation 12", (1, 256, 33, 33), (64, 256, 3, 3), pads=[12] * 4, dilations=[12, 12])
    yield conv("2d 3x3 stride 2", (1, 64, 56, 56), (128, 64, 3, 3), pads=[1] * 4, strides=[2, 2])
    yield conv("2d 2x2", (1, 32, 64, 64), (32, 32, 2, 2))
    yield conv("2d 4x4 stride 2", (1, 64, 64, 64), (128, 64, 4, 4), pads=[1] * 4, strides=[2, 2])
    yield conv("2d 4x4 same", (1, 16, 64, 64), (16, 16, 4, 4), auto_pad="SAME_UPPER")
    yield conv("2d 7x7 stride 2 stem", (1, 3, 224, 224), (64, 3, 7, 7), pads=[3] * 4, strides=[2, 2])
    yield conv("2d 16x16 stride 16 patches", (1, 3, 224, 224), (384, 3, 16, 16), strides=[16, 16])
    yield conv("2d 11x11", (1, 16, 64, 64), (16, 16, 11, 11), pads=[5] * 4)
    yield conv("2d 1x1 stride 3", (1, 64, 57, 57), (64, 64, 1, 1), strides=[3, 3])
    yield conv("2d 2x2 stride 4", (1, 32, 128, 128), (64, 32, 2, 2), strides=[4, 4])
    yield conv("2d 1x1 few channels", (4, 4, 128, 128), (6, 4, 1, 1))
    yield conv("2d 1x1 256 to 2", (1, 256, 64, 64), (2, 256, 1, 1))
    yield conv("2d 1x1 2 to 256", (1, 2, 64, 64), (256, 2, 1, 1))
    yield conv("2d 1x1 64", (1, 64, 56, 56), (64, 64, 1, 1))
    yield conv("2d 1x1 of one pixel", (1, 960, 1, 1), (240, 960, 1, 1))
    yield conv("2d 1x9", (1, 32, 64, 64), (32, 32, 1, 9), pads=[0, 4, 0, 4])
    yield conv("2d 9x1", (1, 32, 64, 64), (32, 32, 9, 1), pads=[4, 0, 4, 0])
    yield conv("2d pads of one side", (1, 32, 64, 64), (32, 32, 3, 3), pads=[2, 0, 0, 2])
    yield conv("2d batch 16", (16, 32, 14, 14), (64, 32, 3, 3), pads=[1] * 4)


def _of_groups() -> Iterator[Case]:
    """Yields depthwise and other grouped convolutions of images."""
    yield conv("2d depthwise 3x3", (1, 96, 56, 56), (96, 1, 3, 3), pads=[1] * 4, group=96)
    yield conv("2d depthwise 3x3 stride 2", (1, 96, 112, 112), (96, 1, 3, 3), pads=[1] * 4, strides=[2, 2], group=96)
    yield conv("2d depthwise 7x7", (1, 96, 56, 56), (96, 1, 7, 7), pads=[3] * 4, group=96)
    yield conv("2d depthwise 31x31", (1, 32, 32, 32), (32, 1, 31, 31), pads=[15] * 4, group=32)
    yield conv("2d depthwise 4x4 even", (1, 32, 64, 64), (32, 1, 4, 4), group=32)
    yield conv("2d depthwise 3x3 dilation 2", (1, 96, 56, 56), (96, 1, 3, 3), pads=[2] * 4, dilations=[2, 2], group=96)
    yield conv("2d depthwise multiplier 2", (1, 32, 56, 56), (64, 1, 3, 3), pads=[1] * 4, group=32)
    yield conv("2d depthwise 5x5, 7x7 image", (1, 480, 7, 7), (480, 1, 5, 5), pads=[2] * 4, group=480)
    yield conv("2d depthwise 30 channels", (1, 30, 60, 60), (30, 1, 3, 3), pads=[1] * 4, group=30)
    for groups, each in ((2, 32), (4, 16), (32, 4), (8, 3), (16, 24)):
        width = groups * each
        yield conv(f"2d {groups} groups of {each}", (1, width, 56, 56), (width, each, 3, 3), pads=[1] * 4, group=groups)
    yield conv("2d 1x1 4 groups", (1, 128, 28, 28), (128, 32, 1, 1), group=4)


def _of_volumes() -> Iterator[Case]:
    """Yields convolutions of three axes."""
    yield conv("3d 3x3x3", (1, 16, 16, 32, 32), (16, 16, 3, 3, 3), pads=[1] * 6)
    yield conv("3d 3x1x1", (1, 32, 8, 28, 28), (32, 32, 3, 1, 1), pads=[1, 0, 0, 1, 0, 0])
    yield conv("3d 1 channel", (1, 1, 32, 64, 64), (8, 1, 3, 3, 3), pads=[1] * 6)
    yield conv("3d depthwise", (1, 32, 8, 28, 28), (32, 1, 3, 3, 3), pads=[1] * 6, group=32)
    yield conv("3d dilation 2", (1, 16, 16, 24, 24), (16, 16, 3, 3, 3), pads=[2] * 6, dilations=[2, 2, 2])


def _of_other_operands() -> Iterator[Case]:
    """Yields convolutions whose weights vary, and those of half floats."""
    yield one("Conv", "2d weights that vary", normal(1, 64, 28, 28), normal(64, 64, 3, 3), pads=[1] * 4)
    yield one("Conv", "depthwise, weights that vary", normal(1, 256, 29, 29), normal(256, 1, 5, 5), group=256)
    yield one(
        "Conv",
        "float16 3x3",
        normal(1, 32, 56, 56).astype(np.float16),
        (normal(32, 32, 3, 3) / 17).astype(np.float16),
        constants=[1],
        pads=[1] * 4,
    )


def _transposed() -> Iterator[Case]:
    """Yields ConvTranspose."""
    yield up("2x2 stride 2", (1, 64, 32, 32), (64, 32, 2, 2), strides=[2, 2])
    yield up("4x4 stride 2", (1, 64, 32, 32), (64, 32, 4, 4), strides=[2, 2], pads=[1] * 4)
    yield up(
        "3x3 stride 2 output_padding",
        (1, 64, 32, 32),
        (64, 32, 3, 3),
        strides=[2, 2],
        pads=[1] * 4,
        output_padding=[1, 1],
    )
    yield up("3x3 stride 1", (1, 32, 32, 32), (32, 32, 3, 3), pads=[1] * 4)
    yield up("3x3 stride 3 dilation 2", (1, 32, 32, 32), (32, 16, 3, 3), strides=[3, 3], dilations=[2, 2])
    yield up("to 1 channel", (1, 32, 64, 64), (32, 1, 4, 4), strides=[2, 2], pads=[1] * 4)
    yield up("depthwise 4x4 stride 2", (1, 64, 32, 32), (64, 1, 4, 4), strides=[2, 2], pads=[1] * 4, group=64)
    yield up("2 groups", (1, 64, 32, 32), (64, 16, 4, 4), strides=[2, 2], pads=[1] * 4, group=2)
    yield up("stride 4 kernel 2", (1, 32, 32, 32), (32, 16, 2, 2), strides=[4, 4])
    yield up("1d k16 stride 8", (1, 128, 200), (128, 64, 16), strides=[8], pads=[4, 4])
    yield up("1d k3", (1, 64, 1000), (64, 64, 3), pads=[1, 1])
    yield up("3d 2x2x2 stride 2", (1, 32, 8, 16, 16), (32, 16, 2, 2, 2), strides=[2, 2, 2])
    yield up("large 16x16 stride 8", (1, 21, 32, 32), (21, 21, 16, 16), strides=[8, 8], pads=[4] * 4)


def _deformed_or_integer() -> Iterator[Case]:
    """Yields DeformConv, ConvInteger and QLinearConv."""
    offset = normal(1, 18, 32, 32)
    yield one(
        "DeformConv",
        "3x3",
        normal(1, 32, 32, 32),
        normal(32, 32, 3, 3) / 17,
        offset,
        normal(32),
        positive(1, 9, 32, 32),
        constants=[1, 3],
        pads=[1] * 4,
        opset=22,
    )
    yield one(
        "DeformConv",
        "2 offset groups",
        normal(1, 32, 32, 32),
        normal(32, 32, 3, 3) / 17,
        normal(1, 36, 32, 32),
        constants=[1],
        pads=[1] * 4,
        offset_group=2,
        opset=22,
    )
    yield one(
        "ConvInteger",
        "3x3",
        whole(255, 1, 32, 28, 28, dtype=np.uint8),
        whole(127, 32, 32, 3, 3, dtype=np.uint8),
        np.uint8(128) * np.ones((), np.uint8),
        constants=[1, 2],
        pads=[1] * 4,
    )
    for symmetric in (True, False):
        zero = np.array(0 if symmetric else 7, np.uint8)
        given = [
            whole(255, 1, 32, 28, 28, dtype=np.uint8),
            floats(0.02)[0],
            zero,
            whole(127, 32, 32, 3, 3, dtype=np.int8, low=-127),
            floats(0.01)[0],
            np.array(0, np.int8),
            floats(0.3)[0],
            zero,
        ]
        yield one(
            "QLinearConv", f"3x3 zero {zero}", *(np.asarray(g) for g in given), constants=range(1, 8), pads=[1] * 4
        )
        given[3] = whole(127, 32, 1, 3, 3, dtype=np.int8, low=-127)
        yield one(
            "QLinearConv",
            f"depthwise zero {zero}",
            *(np.asarray(g) for g in given),
            constants=range(1, 8),
            pads=[1] * 4,
            group=32,
        )


def _pools() -> Iterator[Case]:
    """Yields pools."""
    image = normal(1, 64, 56, 56)
    for op in ("MaxPool", "AveragePool"):
        yield one(op, "3x3 stride 2", normal(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        yield one(op, "3x3 stride 1", image, kernel_shape=[3, 3], pads=[1] * 4)
        yield one(op, "2x2", image, kernel_shape=[2, 2], strides=[2, 2])
        yield one(op, "13x13", image, kernel_shape=[13, 13], pads=[6] * 4)
        yield one(op, "31x31 stride 1", normal(1, 16, 64, 64), kernel_shape=[31, 31], pads=[15] * 4)
        yield one(op, "28x28 stride 28", image, kernel_shape=[28, 28], strides=[28, 28])
        yield one(op, "ceil", image, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        yield one(op, "dilations", image, kernel_shape=[3, 3], dilations=[2, 2], pads=[2] * 4)
        yield one(op, "1d 4", normal(4, 64, 4000), kernel_shape=[4], strides=[4])
        yield one(op, "1d 25 stride 1", normal(4, 32, 2000), kernel_shape=[25], pads=[12, 12])
        yield one(op, "3d 2x2x2", normal(1, 32, 16, 32, 32), kernel_shape=[2] * 3, strides=[2] * 3)
        yield one(op, "3d 3x3x3", normal(1, 32, 8, 28, 28), kernel_shape=[3] * 3, pads=[1] * 6)
        yield one(op, "7 channels", normal(8, 7, 56, 56), kernel_shape=[3, 3], strides=[2, 2])
    yield one("AveragePool", "pads counted", image, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    yield one("MaxPool", "indices", image, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    yield one("MaxPool", "uint8", whole(255, 1, 64, 56, 56, dtype=np.uint8), kernel_shape=[2, 2], strides=[2, 2])
    yield one("LpPool", "3x3", image, kernel_shape=[3, 3], strides=[2, 2], p=2)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield one(op, "(1, 64, 56, 56)", image)
        yield one(op, "(16, 512, 7, 7)", normal(16, 512, 7, 7))
    yield one("MaxUnpool", "2x2", normal(1, 64, 28, 28), unpooled(1, 64, 28, 28), kernel_shape=[2, 2], strides=[2, 2])


def unpooled(n: int, c: int, h: int, w: int) -> np.ndarray:
    """Returns indices of maxima in windows of 2x2, as MaxPool returns them."""
    plane, i, j = np.ogrid[: n * c, :h, :w]
    within = whole(2, n * c, h, w) * 2 * w + whole(2, n * c, h, w)
    return np.asarray((plane * 4 * h * w + i * 4 * w + j * 2 + within).reshape(n, c, h, w))
