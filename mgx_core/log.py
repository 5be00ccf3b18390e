"""Messages for people who look into a program: the logger ``mgx``, and what the environment asks to be shown.

``MGX_TRACE``: words joined by commas: ``compile`` (the program after every pass that changed it), ``run`` (every instruction of
every run with its value); ``MGX_TIME``: the times of passes, of compilations and of runs.  Either sends the logger's messages to
the standard error stream where the process has set up no logging of its own.
"""

from __future__ import annotations

import logging
from typing import Final

from .settings import setting

__all__ = ["debugging", "listen", "log", "timed", "traced"]

log: Final = logging.getLogger("mgx")


def debugging() -> bool:
    return log.isEnabledFor(logging.DEBUG)


def traced(what: str) -> bool:
    """Returns True if ``MGX_TRACE`` names it."""
    return what in setting("MGX_TRACE").replace(" ", "").split(",")


def timed() -> bool:
    return setting("MGX_TIME") not in ("", "0")


def listen() -> None:
    """Sends the messages that the environment asks for to the standard error stream."""
    if (timed() or setting("MGX_TRACE")) and not debugging():
        if not log.hasHandlers():
            log.addHandler(logging.StreamHandler())
        log.setLevel(logging.DEBUG)
