"""Migrates metadata of older file formats to the current one, one version at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["FORMAT", "migrated"]

FORMAT: Final = 2  # raised when an older mgx could not read the file any more


def migrated(metadata: Any, number: int) -> Any:
    """Returns the content of a file of format `number` in the present format."""
    while number < FORMAT:
        metadata = MIGRATIONS[number](metadata)
        number += 1
    return metadata


def _from_1(metadata: Any) -> Any:
    """Format 1 kept the program as it was before it was compiled, and of compiling only the target and the options."""
    compiled = metadata["compiled"]
    if compiled is not None:
        compiled = {**compiled, "optimised": False, "machine": "", "passes": [], "instances": b"", "seal": b""}
    return {**metadata, "compiled": compiled}


MIGRATIONS: Final[dict[int, Callable[[Any], Any]]] = {1: _from_1}
