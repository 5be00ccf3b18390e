"""A model to run on all witnesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Question"]


class Question(NamedTuple):
    """A model and values of its inputs; `op` is set if the model computes one op on them."""

    name: str
    model: Any
    inputs: Sequence[Any]
    op: Any = None
