"""Keeps a command's standard output free of anything that plugins or libraries print."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Final, TextIO

import click

__all__ = ["own_output", "stdout"]

STREAM: Final = "mgx.output"  # in the context's `meta`


def stdout() -> TextIO:
    """Returns the stream for the running command's output."""
    context = click.get_current_context(silent=True)
    found: TextIO | None = None if context is None else context.meta.get(STREAM)
    return found or sys.stdout


@contextlib.contextmanager
def own_output(context: click.Context) -> Iterator[None]:
    """Reserves standard output for `stdout`: all other output, from Python or C, is redirected to stderr."""
    stream = _apart()
    context.meta[STREAM] = stream or sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        del context.meta[STREAM]
        if stream is not None:
            _back(stream)


def _apart() -> TextIO | None:
    """Returns a stream on a duplicate of stdout's descriptor and redirects the original to stderr; None if it has none."""
    try:
        sys.stdout.flush()
        if sys.stdout.fileno() != 1 or sys.stderr.fileno() != 2:
            return None
        kept = os.dup(1)
    except (AttributeError, OSError, ValueError):
        return None
    os.dup2(2, 1)
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    return io.TextIOWrapper(os.fdopen(kept, "wb"), encoding, errors, line_buffering=sys.stdout.isatty())


def _back(stream: TextIO) -> None:
    """Restores stdout's descriptor after flushing C's buffers."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
    os.dup2(stream.fileno(), 1)
    stream.close()
