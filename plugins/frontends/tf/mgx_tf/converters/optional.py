"""Optional values, with which a branch passes intermediates to its gradient."""

from __future__ import annotations

from typing import Any

from mgx_core import dtype as dt

from ..converter import converts_values
from ..node import Node
from ..values import Optional, Value


def _optional(n: Node, value: Value) -> Optional:
    if not isinstance(value, Optional):
        n.fail(f"an optional value is required, got a {type(value).__name__}")
    return value


@converts_values("OptionalFromValue")
def from_value(n: Node, *held: Value) -> Value:
    return Optional(n.literal(True, dt.bool_), held)


@converts_values("OptionalNone")
def none(n: Node) -> Value:
    return Optional(n.literal(False, dt.bool_), None)


@converts_values("OptionalHasValue")
def has_value(n: Node, given: Value) -> Value:
    return _optional(n, given).there


@converts_values("OptionalGetValue")
def get_value(n: Node, given: Value) -> Any:
    """Returns the values; zeros if they are absent, where TensorFlow raises an error."""
    held = _optional(n, given).held
    if held is None:
        n.fail("an optional is read that never has a value")
    return held
