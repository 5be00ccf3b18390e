"""Models by name, each a function that builds one with its cases; shared code of their builders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

R = np.random.default_rng(0)
MODELS: dict[str, Callable[[], tuple[Any, list[list[Any]]]]] = {}


def model(build: Callable[[], tuple[Any, list[list[Any]]]]) -> Callable[[], tuple[Any, list[list[Any]]]]:
    MODELS[build.__name__] = build
    return build


def f(*dims: int) -> np.ndarray:
    return R.standard_normal(dims).astype(np.float32)


class Call(tf.Module):
    """A function with given input types as a module."""

    def __init__(self, function: Any, *specs: Any, held: Any = None) -> None:
        super().__init__()
        self.held = held
        self.names = [s.name for s in specs]
        self.call = tf.function(function, input_signature=specs)


def spec(*dims: int | None, dtype: Any = tf.float32, name: str | None = None) -> Any:
    return tf.TensorSpec(list(dims), dtype, name=name)
