"""The standard output of a command: it holds what the command says and nothing that plugins print."""

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
    """Returns the stream for what the running command says."""
    context = click.get_current_context(silent=True)
    found: TextIO | None = None if context is None else context.meta.get(STREAM)
    return found or sys.stdout


@contextlib.contextmanager
def own_output(context: click.Context) -> Iterator[None]:
    """Keeps standard output for `stdout`: what is printed otherwise, from Python or from C, goes to the error stream."""
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
    """Returns a stream of its own for standard output, whose descriptor becomes that of errors; None where it has none."""
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
    """Gives standard output its descriptor back, once C has written what it holds."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
    os.dup2(stream.fileno(), 1)
    stream.close()
