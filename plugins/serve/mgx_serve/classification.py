"""The classification extension: returns the largest elements of an output instead of the whole output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import BadRequest
from .tensors import Array, Tensor

__all__ = ["classified", "classes_wanted"]


def classes_wanted(parameters: Mapping[str, Any], name: str) -> int:
    """Returns the number of classes that an output's parameters request, 0 for the plain output.  Errors: BadRequest."""
    given = parameters.get("classification", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 31:
        raise BadRequest(f"output {name!r}: classification must be a number of classes from 0 on, got {given!r}")
    return given


def classified(tensor: Tensor, array: Array, most: int, rows: bool) -> tuple[Tensor, Array]:
    """Returns the largest elements in descending order as BYTES ``value:index``, values with six decimals.

    most: maximum number of elements; rows: classify each row of the first axis separately.
    Errors: BadRequest for a non-numeric output.
    """
    if array.dtype.hasobject:
        raise BadRequest(
            f"output {tensor.name!r}: numbers are required for a classification, it holds {tensor.datatype}"
        )
    apart = rows and array.ndim > 0
    count = array.shape[0] if apart else 1
    lines = array.reshape(count, math.prod(array.shape[1:] if apart else array.shape))
    found = np.empty((count, min(most, lines.shape[1])), object)
    for n, line in enumerate(lines):
        found[n] = _largest(line, most)
    made = found if apart else found[0]
    return Tensor(tensor.name, "BYTES", made.shape), made


def _largest(line: Array, most: int) -> list[str]:
    wide = line if line.dtype.kind in "biu" else line.astype(np.float64)
    key = np.where(np.isnan(wide), -np.inf, wide) if wide.dtype.kind == "f" else wide
    # stable: among equal values the lowest index comes first
    order = len(key) - 1 - np.argsort(key[::-1], kind="stable")[::-1]
    return [f"{wide[n]:.6f}:{n}" if wide.dtype.kind == "f" else f"{int(wide[n])}:{n}" for n in order[:most]]
