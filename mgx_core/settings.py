"""Environment variables of the process, read here and nowhere else, when asked for.

``MGX_PLUGINS``: names of plugins to take, or to leave out (``-gpu``); ``MGX_CACHE_DIR``: the folder of compiled kernels,
tuning choices, kept programs and the key that seals program files (default: ``mgx`` in ``$XDG_CACHE_HOME`` or ``~/.cache``);
``MGX_KEEP_PROGRAMS``: 0 to keep nothing of what was parsed and compiled, 1 to keep it the first time; ``MGX_THREADS``: threads of
programs whose option ``threads`` is 0;
``MGX_TRACE`` and ``MGX_TIME``: what is logged (see `mgx_core.log`).  Targets read their own through `setting` and list them in
their documentation; ``MGX_GPU_DEVICE`` (``cuda:1``) is the gpu target's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from .errors import ParameterError

__all__ = ["cache_directory", "keeps_programs", "of_code", "setting", "threads"]

ASIDE: Final = frozenset(("MGX_CACHE_DIR", "MGX_KEEP_PROGRAMS", "MGX_TIME", "MGX_TRACE"))  # those that change no code


def setting(name: str) -> str:
    """Returns an environment variable's value; empty if it is not set."""
    return os.environ.get(name, "")


def threads() -> int:
    """Returns the number of ``MGX_THREADS``, 0 if it is not set.  Errors: ParameterError for what is not a number."""
    value = setting("MGX_THREADS")
    if value and not value.isdecimal():
        raise ParameterError(f"MGX_THREADS must be a number of threads, got {value!r}")
    return int(value or 0)


def keeps_programs() -> Literal["always", "again", "never"]:
    """Returns which parsed and compiled programs are kept between processes (see `mgx_core.store.program_cache`).

    again: those of files that an earlier process compiled as well.

    Errors: ParameterError for a ``MGX_KEEP_PROGRAMS`` other than 0 and 1.
    """
    value = setting("MGX_KEEP_PROGRAMS")
    if value not in ("", "0", "1"):
        raise ParameterError(f"MGX_KEEP_PROGRAMS must be 0 or 1, got {value!r}")
    return "never" if value == "0" else "always" if value else "again"


def of_code(*prefixes: str) -> list[tuple[str, str]]:
    """Returns the environment variables of these prefixes that may change what a model is compiled to, sorted."""
    return sorted((n, v) for n, v in os.environ.items() if n.startswith(prefixes) and n not in ASIDE)


def cache_directory() -> Path:
    """Returns the folder of caches that outlive a process; it may not exist yet, and for a user without a home it never does."""
    named = setting("MGX_CACHE_DIR")
    if named:
        return Path(named)
    try:
        return Path(setting("XDG_CACHE_HOME") or Path.home() / ".cache") / "mgx"
    except RuntimeError:  # there is no home
        return Path(os.devnull) / "mgx"
