"""Diagnostics: the logger ``mgx`` and the environment variables that enable traces.

``MGX_TRACE``: comma-separated: ``compile`` (the program after every pass that changed it), ``run`` (every instruction of every
run with its value); ``MGX_TIME``: times of passes, compilations and runs.  If the process has not configured logging, either
sends messages to stderr.  `showing` enables the same for a block of code, for packages with their own settings.
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
    """Proxy of the logger; `logging` is imported with the first message."""

    _logger: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._logger is None:
            from logging import getLogger

            self._logger = getLogger("mgx")
        return getattr(self._logger, name)


TRACES: Final = ("compile", "run")  # values of MGX_TRACE
log: Final = cast("Logger", _Log())
_enabled: ContextVar[frozenset[str]] = ContextVar("enabled", default=frozenset())


@contextmanager
def showing(traces: Iterable[str]) -> Iterator[None]:
    """Context manager: enables traces (see ``MGX_TRACE``), and times with ``time``.

    Programs compiled or loaded inside the block also trace their later runs.
    """
    token = _enabled.set(_enabled.get() | frozenset(traces))
    try:
        yield
    finally:
        _enabled.reset(token)


def debugging() -> bool:
    """Returns True if messages of level DEBUG are enabled; False if `logging` is not loaded."""
    return "logging" in sys.modules and log.isEnabledFor(sys.modules["logging"].DEBUG)


def traced(what: str) -> bool:
    """Returns True if ``MGX_TRACE`` or a `showing` block enables a trace."""
    return what in setting("MGX_TRACE").replace(" ", "").split(",") or what in _enabled.get()


def timed() -> bool:
    """Returns True if ``MGX_TIME`` or a `showing` block enables times."""
    return setting("MGX_TIME") not in ("", "0") or "time" in _enabled.get()


def listen() -> None:
    """Sends enabled messages to stderr, unless the process has configured logging.

    Errors: ParameterError for an unknown value in ``MGX_TRACE``.
    """
    for word in filter(None, setting("MGX_TRACE").replace(" ", "").split(",")):
        if word not in TRACES:
            raise ParameterError(f"MGX_TRACE must be a comma-separated list of {', '.join(TRACES)}, got {word!r}")
    if (_enabled.get() or timed() or setting("MGX_TRACE")) and not debugging():
        from logging import DEBUG, StreamHandler

        if not log.hasHandlers():
            log.addHandler(StreamHandler())
        log.setLevel(DEBUG)
