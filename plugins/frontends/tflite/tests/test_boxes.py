"""Postprocessing of detectors, compared with its definition in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tflite.model import Model, Operator, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model

OPTIONS = {
    "max_detections": 6, "max_classes_per_detection": 2, "detections_per_class": 3, "nms_score_threshold": 0.25,
    "nms_iou_threshold": 0.4, "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip


def detected(given: list[np.ndarray], options: dict[str, Any], target: str = "ref") -> list[np.ndarray]:
    tensors = [Tensor(f"x{k}", dt.float32, list(x.shape), None, None) for k, x in enumerate(given)]
    tensors += [Tensor(f"y{k}", dt.float32, [], None, None) for k in range(4)]
    custom = bytes(flexbuffers.Dumps(options))
    operator = Operator("CUSTOM:TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], [], None, custom, 0)
    program = parse_model(Model([Subgraph("main", tensors, [operator], [0, 1, 2], [3, 4, 5, 6])]), TfliteOptions())
    program.compile(mgx.get_target(target))
    return [np.asarray(r) for r in program.run({f"x{k}": x for k, x in enumerate(given)})]


def selected(corners: np.ndarray, scores: np.ndarray, most: int) -> list[int]:
    """Returns boxes by descending score of at least the threshold, without those that overlap an earlier one."""

    def overlap(a: np.ndarray, b: np.ndarray) -> float:
        both = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
        return float(both / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both))

    found: list[int] = []
    for k in np.argsort(-scores, kind="stable"):
        if scores[k] < np.float32(OPTIONS["nms_score_threshold"]) or len(found) == most:
            break
        if all(overlap(corners[k], corners[f]) <= OPTIONS["nms_iou_threshold"] for f in found):
            found.append(int(k))
    return found


def expected(boxes: np.ndarray, scores: np.ndarray, anchors: np.ndarray, regular: bool) -> list[np.ndarray]:
    centers = boxes[:, :2] / np.float32(10) * anchors[:, 2:] + anchors[:, :2]
    halves = np.exp(boxes[:, 2:4] / np.float32(5)) * anchors[:, 2:] / 2
    corners, own = np.concatenate([centers - halves, centers + halves], 1), scores[:, 1:]
    if regular:
        found = [(k, c) for c in range(3) for k in selected(corners, own[:, c], 3)]
        found = sorted(found, key=lambda f: -own[f])[:6]
    else:
        found = [(k, int(c)) for k in selected(corners, own.max(1), 6) for c in np.argsort(-own[k], kind="stable")[:2]]
    places, kinds, values = np.zeros((1, 12, 4)), np.zeros((1, 12)), np.zeros((1, 12))
    for at, (k, c) in enumerate(found):
        places[0, at], kinds[0, at], values[0, at] = corners[k], c, own[k, c]
    return [places, kinds, values, np.array([len(found)])]


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("count", [40, 4])
@pytest.mark.parametrize("regular", [False, True])
def test_detections_are_the_best_boxes_after_suppression(regular: bool, count: int, target: str) -> None:
    r = np.random.default_rng(1)
    boxes, scores = r.standard_normal((1, count, 4)), r.uniform(0, 0.6, (1, count, 4))
    scores[0, ::5, 1] = 0.25  # the threshold
    anchors = np.concatenate([r.uniform(0.2, 0.8, (count, 2)), r.uniform(0.1, 0.3, (count, 2))], 1)
    given = [v.astype(np.float32) for v in (boxes, scores, anchors)]
    found = detected(given, {**OPTIONS, "use_regular_nms": regular}, target)
    wanted = expected(given[0][0], given[1][0], given[2], regular)
    assert 0 < wanted[3][0] <= 12
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


def test_detection_of_other_ranks_is_rejected() -> None:
    with pytest.raises(mgx.ParseError, match=r"anchors \[n, 4\]"):
        detected([np.zeros((1, 4, 4), np.float32), np.zeros((4, 3), np.float32), np.zeros((4, 4), np.float32)], OPTIONS)
