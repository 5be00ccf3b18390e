"""Checks of states, which persist between runs and keep their extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from .argument import Argument
from .shape import AnyShape, Shape

__all__ = ["open_states", "require_extents"]


def open_states(states: Mapping[str, Any], shapes: Sequence[AnyShape]) -> tuple[str, ...]:
    """Returns the names of states whose next values have extents known only at run time."""
    pairs = zip(states.items(), shapes[len(shapes) - len(states) :], strict=True)
    return tuple(k for (k, v), s in pairs if not isinstance(s, Shape) or tuple(s.dims) != _extents(v))


def require_extents(names: Iterable[str], states: Mapping[str, Any], held: Mapping[str, Argument]) -> None:
    """Errors: ShapeError if a state's next value differs in extents from its initial one."""
    for name in names:
        begins, shape = _extents(states[name]), held[name].shape
        if not isinstance(shape, Shape) or tuple(shape.dims) != begins:
            raise ShapeError(
                f"state {name!r} has extents {list(begins)}, this run gives it {shape}: run the program with inputs of the "
                "extents that its states are made for; they stay as they were before this run"
            )


def _extents(value: Any) -> tuple[int, ...]:
    return np.shape(value.value if isinstance(value, Argument) else value)
