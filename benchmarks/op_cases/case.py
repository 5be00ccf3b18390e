"""Cases of `ops.py`, and random operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Value = np.ndarray | None
random = np.random.default_rng(0)


@dataclass
class Case:
    """One operation: its name in the table, its operands, which of them are constants, its attributes."""

    name: str
    op: str
    inputs: Sequence[Value]
    constants: Sequence[int] = ()  # positions of operands that are initializers
    outputs: int = 1
    opset: int = 21
    domain: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    # tolerance relative to the largest value; larger only where onnxruntime is known to be inexact
    allowed: float = 1e-4


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return random.uniform(0.1, 1.1, shape).astype(np.float32)


def whole(high: int, *shape: int, dtype: Any = np.int64, low: int = 0) -> np.ndarray:
    return random.integers(low, high, shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def one(op: str, note: str, *inputs: Value, **attributes: Any) -> Case:
    """Returns a case; keywords that are fields of `Case` set these, all others are attributes."""
    given = {k: attributes.pop(k) for k in ("constants", "outputs", "opset", "domain", "allowed") if k in attributes}
    return Case(f"{op} {note}", op, inputs, attributes=attributes, **given)
