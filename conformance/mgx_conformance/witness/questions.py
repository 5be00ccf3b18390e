"""Questions for the witnesses: the ONNX node tests on new values, and models of operators without a node test."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from mgx_core import dtype
from mgx_core.ops.scalar import widen

from ..onnx_nodes import node_tests, out_of_reach, values_of
from .question import Question

__all__ = ["questions"]


# inputs with a special meaning, for which other values would be invalid or select another computation
KEPT: Final = ("roi", "scale", "loop", "scan", "if_", "range", "resize", "upsample", "nonmax", "image_decoder", "center_crop",
               "optional", "sequence", "dropout", "mel", "window", "affine_grid", "quantize", "dequantize", "cast", "bitcast",
               "random", "training", "identity", "adam", "adagrad", "momentum", "det", "tree_ensemble", "onehot",
               "split")  # fmt: skip
RANDOM: Final = ("bernoulli", "training_dropout")


@cache
def questions() -> dict[str, Question]:
    """Returns every question by name."""
    from .direct import direct
    from .models import models

    found = {}
    for name, test in node_tests().items():
        if (
            name in out_of_reach()
            or any(w in name for w in RANDOM)
            or name.endswith("_expanded")
            or "_expanded_" in name
        ):
            continue
        (inputs, _), *_ = test.data_sets
        found[name] = Question(name, test.model, tuple(refreshed(name, inputs)))
    for question in (*models(), *direct()):
        found[question.name] = question
    return found


def refreshed(name: str, inputs: Sequence[Any]) -> Iterator[Any]:
    """Yields shuffled and slightly scaled float data, which stays in its range; other data are unchanged."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for n, value in enumerate(values_of(inputs)):
        if n and any(word in name for word in KEPT):
            yield value
        elif (
            isinstance(value, np.ndarray)
            and value.dtype != object
            and dtype.of(value.dtype).kind == "f"
            and value.size > 1
        ):
            wide = widen(value).astype(np.float64)
            if np.all(np.isfinite(wide)):
                wide = rng.permutation(wide.reshape(-1)).reshape(wide.shape) * rng.uniform(0.9, 1.0, wide.shape)
            yield wide.astype(value.dtype)
        else:
            yield value
