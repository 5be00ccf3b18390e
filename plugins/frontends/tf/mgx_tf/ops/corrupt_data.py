"""Converts Python exceptions raised while reading corrupt data to ShapeError."""

from __future__ import annotations

import csv
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import DecodeError

from mgx_core import MgxError
from mgx_core.errors import ShapeError

__all__ = ["reading"]

DAMAGED: Final = (
    ArithmeticError, DecodeError, EOFError, LookupError, OSError, TypeError, ValueError, csv.Error, struct.error, zlib.error,
)  # fmt: skip


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Errors: ShapeError for Python exceptions raised by corrupt data; an MgxError propagates unchanged."""
    try:
        yield
    except MgxError:
        raise
    except DAMAGED as error:
        raise ShapeError(f"damaged {what}: {type(error).__name__}: {error}") from None
