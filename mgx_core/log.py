"""Messages for people who look into a program: the logger ``mgx``, and what the environment asks to be shown.

`showing` asks for the same while a block runs, for packages with settings of their own.

``MGX_TRACE``: words joined by commas: ``compile`` (the program after every pass that changed it), ``run`` (every instruction of
every run with its value); ``MGX_TIME``: the times of passes, of compilations and of runs.  Either sends the logger's messages to
the standard error stream where the process has set up no logging of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from .settings import setting

__all__ = ["debugging", "listen", "log", "showing", "timed", "traced"]

log: Final = logging.getLogger("mgx")
_asked: ContextVar[frozenset[str]] = ContextVar("asked", default=frozenset())


@contextmanager
def showing(words: Iterable[str]) -> Iterator[None]:
    """Asks for what ``MGX_TRACE`` names by these words, and for times by ``time``, while the block runs.

    Programs that are compiled or loaded in it show their runs later as well.
    """
    token = _asked.set(_asked.get() | frozenset(words))
    try:
        yield
    finally:
        _asked.reset(token)


def debugging() -> bool:
    return log.isEnabledFor(logging.DEBUG)


def traced(what: str) -> bool:
    """Returns True if ``MGX_TRACE`` or a `showing` block names it."""
    return what in setting("MGX_TRACE").replace(" ", "").split(",") or what in _asked.get()


def timed() -> bool:
    return setting("MGX_TIME") not in ("", "0") or "time" in _asked.get()


def listen() -> None:
    """Sends the messages that are asked for to the standard error stream."""
    if (_asked.get() or timed() or setting("MGX_TRACE")) and not debugging():
        if not log.hasHandlers():
            log.addHandler(logging.StreamHandler())
        log.setLevel(logging.DEBUG)
