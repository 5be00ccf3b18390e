"""Migrates metadata of older file formats to the current one, one version at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["FORMAT", "migrated"]

FORMAT: Final = 3  # incremented when older versions of mgx cannot read the file


def migrated(metadata: Any, number: int) -> Any:
    """Migrates the content of a file of format `number` to the current format."""
    while number < FORMAT:
        metadata = MIGRATIONS[number](metadata)
        number += 1
    return metadata


def _from_1(metadata: Any) -> Any:
    """Format 1 stored the uncompiled program, and only the target and options of the executable."""
    compiled = metadata["compiled"]
    if compiled is not None:
        compiled = {**compiled, "optimised": False, "machine": "", "passes": [], "instances": b"", "seal": b""}
    return {**metadata, "compiled": compiled}


def _from_2(metadata: Any) -> Any:
    """Format 2 stored the main module as a part of the metadata in msgpack too, as JSON still does."""
    return metadata


MIGRATIONS: Final[dict[int, Callable[[Any], Any]]] = {1: _from_1, 2: _from_2}
