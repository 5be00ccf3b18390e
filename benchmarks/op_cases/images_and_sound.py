"""Cases of operators on images and sound."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .case import Case, floats, ints, normal, one, random, whole


def images_and_sound() -> Iterator[Case]:
    """Yields Resize, GridSample, RoiAlign, NonMaxSuppression, Fourier transforms."""
    yield from _resized()
    yield from _sampled()
    yield from _suppressed()
    yield from _sound_and_others()


def _resized() -> Iterator[Case]:
    """Yields Resize."""
    small, large = normal(1, 16, 64, 64), normal(1, 3, 480, 640)
    for mode in ("nearest", "linear", "cubic"):
        for name, x, scales in (
            ("up 2", small, (1, 1, 2, 2)),
            ("up 1.7", small, (1, 1, 1.7, 1.7)),
            ("down 2", large, (1, 1, 0.5, 0.5)),
            ("down 0.35", large, (1, 1, 0.35, 0.35)),
        ):
            yield one("Resize", f"{mode} {name}", x, None, floats(*scales), constants=[2], mode=mode)
        yield one(
            "Resize",
            f"{mode} align_corners",
            small,
            None,
            None,
            ints(1, 16, 96, 96),
            constants=[3],
            mode=mode,
            coordinate_transformation_mode="align_corners",
        )
    for mode in ("linear", "cubic"):
        yield one(
            "Resize", f"{mode} antialias", large, None, floats(1, 1, 0.35, 0.35), constants=[2], mode=mode, antialias=1
        )
    yield one(
        "Resize",
        "nearest asymmetric floor",
        normal(1, 64, 28, 28),
        None,
        floats(1, 1, 2, 2),
        constants=[2],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    yield one(
        "Resize",
        "linear uint8",
        whole(255, 1, 3, 240, 320, dtype=np.uint8),
        None,
        None,
        ints(1, 3, 224, 224),
        constants=[3],
        allowed=1 / 250,  # onnxruntime computes in fixed point
        mode="linear",
    )
    yield one("Resize", "linear NHWC", normal(1, 120, 160, 16), None, floats(1, 2, 2, 1), constants=[2], mode="linear")
    yield one("Resize", "linear 1d", normal(1, 80, 500), None, floats(1, 1, 2), constants=[2], mode="linear")
    yield one(
        "Resize", "linear 3d", normal(1, 4, 16, 32, 32), None, floats(1, 1, 2, 2, 2), constants=[2], mode="linear"
    )
    yield one(
        "Resize", "nearest 3d", normal(1, 4, 16, 32, 32), None, floats(1, 1, 2, 2, 2), constants=[2], mode="nearest"
    )


def _sampled() -> Iterator[Case]:
    """Yields GridSample, AffineGrid, RoiAlign and MaxRoiPool."""
    grid = random.uniform(-1.1, 1.1, (2, 64, 64, 2)).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            yield one("GridSample", f"{mode} {padding}", normal(2, 16, 64, 64), grid, mode=mode, padding_mode=padding)
    yield one(
        "GridSample",
        "linear aligned, many channels",
        normal(1, 256, 32, 32),
        grid[:1, :32, :32],
        mode="linear",
        align_corners=1,
    )
    yield one(
        "GridSample",
        "3d",
        normal(1, 4, 16, 16, 16),
        random.uniform(-1, 1, (1, 16, 16, 16, 3)).astype(np.float32),
        mode="linear",
    )
    yield one("AffineGrid", "(4, 3, 128, 128)", normal(4, 2, 3), ints(4, 3, 128, 128), constants=[1])
    for rois, channels, mode in ((100, 64, "avg"), (1000, 16, "avg"), (100, 64, "max")):
        corner = random.uniform(0, 30, (rois, 2)).astype(np.float32)
        boxes = np.concatenate([corner, corner + random.uniform(2, 20, (rois, 2)).astype(np.float32)], axis=1)
        yield one(
            "RoiAlign",
            f"{rois} of {channels} {mode}",
            normal(1, channels, 50, 50),
            boxes,
            np.zeros(rois, np.int64),
            output_height=7,
            output_width=7,
            sampling_ratio=2,
            mode=mode,
        )
    yield one(
        "RoiAlign",
        "adaptive",
        normal(1, 64, 50, 50),
        boxes,
        np.zeros(100, np.int64),
        output_height=7,
        output_width=7,
        sampling_ratio=0,
    )
    yield one(
        "MaxRoiPool",
        "100",
        normal(1, 64, 50, 50),
        np.concatenate([np.zeros((100, 1), np.float32), boxes], 1),
        pooled_shape=[7, 7],
        opset=21,
    )


def _suppressed() -> Iterator[Case]:
    """Yields NonMaxSuppression."""
    for count, classes, most, iou in (
        (100, 80, 100, 0.5),
        (1000, 1, 100, 0.5),
        (8400, 80, 300, 0.5),
        (20_000, 1, 1000, 0.7),
        (20_000, 20, 100, 0.5),
        (2000, 1, 2000, 0.99),
    ):
        middle = random.uniform(0, 600, (1, count, 2))
        extent = random.uniform(5, 100, (1, count, 2))
        boxes = np.concatenate([middle - extent / 2, middle + extent / 2], axis=2).astype(np.float32)
        scores = random.random((1, classes, count)).astype(np.float32)
        yield one(
            "NonMaxSuppression",
            f"{count}x{classes} most {most} iou {iou}",
            boxes,
            scores,
            ints(most),
            floats(iou),
            floats(0.4),
            constants=[2, 3, 4],
        )


def _sound_and_others() -> Iterator[Case]:
    """Yields Fourier transforms, windows, ranges and losses."""
    for n in (256, 400, 1024, 1000, 997):
        off = 1e-4 if n & (n - 1) == 0 else 1e-3  # onnxruntime's error against float64 is 3e-4, ours is 1e-6
        yield one("DFT", f"(32, {n})", normal(32, n, 1), None, np.array(1), constants=[2], opset=20, allowed=off)
    yield one("DFT", "onesided", normal(32, 512, 1), None, np.array(1), constants=[2], onesided=1, opset=20)
    yield one("DFT", "inverse complex", normal(32, 512, 2), None, np.array(1), constants=[2], inverse=1, opset=20)
    yield one("DFT", "axis 0", normal(256, 64, 2), None, np.array(0), constants=[2], opset=20)
    for frame, step in ((400, 160), (512, 128), (1024, 256)):
        yield one(
            "STFT",
            f"{frame}/{step}",
            normal(1, 16_000, 1),
            np.array(step),
            np.hanning(frame).astype(np.float32),
            constants=[1, 2],
        )
    yield one("MelWeightMatrix", "80", np.array(80), np.array(4096), np.array(16000), floats(0.0)[0], floats(8000.0)[0])
    yield one("HannWindow", "100000", np.array(100_000))
    yield one("Range", "100000", np.array(0), np.array(100_000), np.array(1))
    yield one("EyeLike", "1000", normal(1000, 1000))
    yield one("Col2Im", "3x3", normal(1, 16 * 9, 30 * 30), ints(32, 32), ints(3, 3), constants=[1, 2])
    yield one("CenterCropPad", "crop", normal(3, 480, 640), ints(3, 400, 400), constants=[1])
    yield one("NegativeLogLikelihoodLoss", "(64, 1000)", normal(64, 1000), whole(1000, 64))
    yield one("SoftmaxCrossEntropyLoss", "(64, 1000)", normal(64, 1000), whole(1000, 64), outputs=2)
