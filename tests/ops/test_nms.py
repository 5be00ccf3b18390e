"""Non-maximum suppression."""

from __future__ import annotations

import warnings

import numpy as np

from mgx_core import op


def test_infinite_boxes_are_kept_without_warnings() -> None:
    boxes = np.array([[[0, 0, np.inf, 2], [0, 0, np.inf, 2], [0, 0, 1, 1], [0, 0, 1, 0.9]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = op("nonmaxsuppression").compute(boxes, scores, np.array([4]), np.array([0.5], np.float32))
    assert kept[:, 2].tolist() == [0, 1, 2]
