"""Checks of values against the types that the program declares for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types.argument import shape_of
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape, matches

__all__ = ["misfit"]


def misfit(declared: AnyShape, value: Any) -> str:
    """Describes a value that does not have the declared type; empty if it does; symbols and unknown ranks match anything."""
    if isinstance(declared, TupleShape):
        if isinstance(value, dict):  # a map
            return ""
        if not isinstance(value, tuple):
            return _described(value)
        if len(value) != len(declared.items):
            return f"{len(value)} results"
        wrong = [misfit(s, v) for s, v in zip(declared.items, value, strict=True)]
        return next((f"{w} as result {n}" for n, w in enumerate(wrong) if w), "")
    if isinstance(declared, SequenceShape):
        if not isinstance(value, list):
            return _described(value)
        return next((f"{w} in the sequence" for w in (misfit(declared.element, v) for v in value) if w), "")
    if isinstance(declared, OptionalShape):
        return "" if value is None else misfit(declared.element, value)
    if value is None or isinstance(value, (tuple, list, dict, str, bool, int, float, complex)):
        return _described(value)
    try:
        found = shape_of(value)
    except Exception:
        return _described(value)
    return "" if matches(declared, found) else str(found.as_standard() if isinstance(found, Shape) else found)


def _described(value: Any) -> str:
    if value is None:
        return "None"
    return (
        f"a {type(value).__name__}"
        if isinstance(value, (tuple, list, dict, np.ndarray))
        else f"{type(value).__name__} {value!r}"
    )
