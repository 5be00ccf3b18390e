"""Strings: elements of tensors are `str`; bytes that are not UTF-8 are kept in them as surrogates, and come back unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ParameterError

__all__ = ["as_strings", "decoded", "encoded"]


def decoded(data: bytes) -> str:
    """Returns the string that stands for bytes."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Returns the bytes that a string stands for."""
    return text.encode("utf-8", "surrogateescape")


def as_strings(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array of strings or bytes, of any of numpy's kinds, as an object array of `str`; the same one if it is that.

    Errors: ParameterError for elements that are neither.
    """
    made = array if array.dtype == object else array.astype(object)
    items = made.ravel().tolist()
    if all(isinstance(v, str) for v in items):
        return made
    out = np.empty(len(items), object)
    for n, item in enumerate(items):
        if not isinstance(item, (str, bytes)):
            raise ParameterError(f"strings are required, got an element of type {type(item).__name__}")
        out[n] = decoded(item) if isinstance(item, bytes) else item
    return out.reshape(array.shape)
