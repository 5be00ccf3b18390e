"""Maps element types between torch and mgx."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from mgx_core import DType, UnsupportedError
from mgx_core import dtype as dt

__all__ = ["dtype_of", "torch_dtype"]

# torch's types by mgx's names, where they differ
RENAMED = {"bool": "bool_"}
COMPLEX = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


@cache
def _table() -> dict[torch.dtype, DType]:
    names = (
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
        "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    )  # fmt: skip
    types: Any = {n: t for n, t in vars(torch).items() if isinstance(t, torch.dtype)}
    ours = vars(dt)
    return {types[n]: ours[RENAMED.get(n, n)] for n in names if n in types}


def dtype_of(dtype: torch.dtype) -> DType:
    """Returns the element type for a torch dtype; for complex ones that of their parts.

    Errors: UnsupportedError for types that mgx does not have.
    """
    found = _table().get(COMPLEX.get(dtype, dtype))
    if found is None:
        raise UnsupportedError(f"mgx has no element type for {dtype}")
    return found


@cache
def torch_dtype(dtype: DType) -> torch.dtype:
    """Returns the torch dtype of an element type.  Errors: UnsupportedError if torch has none."""
    for theirs, ours in _table().items():
        if ours is dtype:
            return theirs
    raise UnsupportedError(f"torch has no element type for {dtype}")
