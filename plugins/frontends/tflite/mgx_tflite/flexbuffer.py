"""The attributes of custom operators: a FlexBuffer whose root is a map."""

from __future__ import annotations

import struct
from typing import Any

from mgx_core import ParseError

__all__ = ["read_map"]


def read_map(data: bytes) -> dict[str, Any]:
    """Returns the numbers, booleans and strings of a map by name; other values are omitted.  Errors: ParseError if invalid."""
    if not data:
        return {}
    try:
        from flatbuffers import flexbuffers

        root = flexbuffers.Loads(data)
    except (struct.error, IndexError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise ParseError(f"damaged attributes of a custom operator: {error}") from None
    if not isinstance(root, dict):
        raise ParseError("the attributes of a custom operator must be a map")
    return {str(k): v for k, v in root.items() if isinstance(v, (bool, int, float, str))}
