"""String elements are `str`; bytes that are not UTF-8 are stored as surrogate escapes and round-trip unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ParameterError

__all__ = ["as_strings", "decoded", "encoded"]


def decoded(data: bytes) -> str:
    """Decodes bytes to a string."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Encodes a string to bytes."""
    return text.encode("utf-8", "surrogateescape")


def as_strings(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array of strings or bytes of any numpy kind as an object array of `str`; unchanged if it is one.

    Errors: ParameterError for elements that are neither.
    """
    made = array if array.dtype == object else array.astype(object)
    items = made.ravel().tolist()
    kinds = set(map(type, items))
    if all(issubclass(k, str) for k in kinds):
        return made
    out = np.empty(len(items), object)
    for n, item in enumerate(items):
        if not isinstance(item, (str, bytes)):
            raise ParameterError(f"strings are required, got an element of type {type(item).__name__}")
        out[n] = decoded(item) if isinstance(item, bytes) else item
    return out.reshape(array.shape)
