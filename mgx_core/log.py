"""Messages for people who look into a program: the logger ``mgx``, and what the environment asks to be shown.

`showing` asks for the same while a block runs, for packages with settings of their own.

``MGX_TRACE``: words joined by commas: ``compile`` (the program after every pass that changed it), ``run`` (every instruction of
every run with its value); ``MGX_TIME``: the times of passes, of compilations and of runs.  Either sends the logger's messages to
the standard error stream where the process has set up no logging of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from .errors import ParameterError
from .settings import setting

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["debugging", "listen", "log", "showing", "timed", "traced"]


class _Log:
    """Stands for the logger, whose library is loaded for the first message."""

    def __getattr__(self, name: str) -> Any:
        from logging import getLogger

        return getattr(getLogger("mgx"), name)


WORDS: Final = ("compile", "run")  # of MGX_TRACE
log: Final = cast("Logger", _Log())
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
    """Returns True if messages of level DEBUG are heard, which they are not in a process that has not loaded logging."""
    return "logging" in sys.modules and log.isEnabledFor(sys.modules["logging"].DEBUG)


def traced(what: str) -> bool:
    """Returns True if ``MGX_TRACE`` or a `showing` block names it."""
    return what in setting("MGX_TRACE").replace(" ", "").split(",") or what in _asked.get()


def timed() -> bool:
    return setting("MGX_TIME") not in ("", "0") or "time" in _asked.get()


def listen() -> None:
    """Sends the messages that are asked for to the standard error stream.

    Errors: ParameterError for a word in ``MGX_TRACE`` that asks for nothing.
    """
    for word in filter(None, setting("MGX_TRACE").replace(" ", "").split(",")):
        if word not in WORDS:
            raise ParameterError(f"MGX_TRACE must be words among {', '.join(WORDS)}, joined by commas, got {word!r}")
    if (_asked.get() or timed() or setting("MGX_TRACE")) and not debugging():
        from logging import DEBUG, StreamHandler

        if not log.hasHandlers():
            log.addHandler(StreamHandler())
        log.setLevel(DEBUG)
