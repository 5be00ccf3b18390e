"""Environment variables; the only module that reads them, on each use.

``MGX_PLUGINS``: names of plugins to enable, or to disable (``-gpu``); ``MGX_CACHE_DIR``: folder of compiled kernels, tuning
results, cached programs and the key that seals program files (default: ``mgx`` in ``$XDG_CACHE_HOME`` or ``~/.cache``);
``MGX_KEEP_PROGRAMS``: 0 disables the cache of parsed and compiled programs, 1 caches them from the first compilation on;
``MGX_THREADS``: number of threads of programs whose option ``threads`` is 0; ``MGX_TRACE`` and ``MGX_TIME``: diagnostics (see
`mgx_core.log`).  Targets read and document their own, through `setting`; for example, ``MGX_GPU_DEVICE`` (``cuda:1``) of gpu.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from .errors import ParameterError

__all__ = ["cache_directory", "compilation_variables", "keeps_programs", "setting", "threads"]

# do not affect compilation
UNRELATED: Final = frozenset(("MGX_CACHE_DIR", "MGX_KEEP_PROGRAMS", "MGX_TIME", "MGX_TRACE"))


def setting(name: str) -> str:
    """Returns an environment variable's value; empty if it is not set."""
    return os.environ.get(name, "")


def threads() -> int:
    """Returns the value of ``MGX_THREADS``, 0 if it is not set.  Errors: ParameterError if it is not a number."""
    value = setting("MGX_THREADS")
    if value and not value.isdecimal():
        raise ParameterError(f"MGX_THREADS must be a number of threads, got {value!r}")
    return int(value or 0)


def keeps_programs() -> Literal["always", "again", "never"]:
    """Returns when programs are cached (see `mgx_core.store.program_cache`).

    again: from the second process on that compiles a file.
    Errors: ParameterError for other values of ``MGX_KEEP_PROGRAMS`` than 0 and 1.
    """
    value = setting("MGX_KEEP_PROGRAMS")
    if value not in ("", "0", "1"):
        raise ParameterError(f"MGX_KEEP_PROGRAMS must be 0 or 1, got {value!r}")
    return "never" if value == "0" else "always" if value else "again"


def compilation_variables(*prefixes: str) -> list[tuple[str, str]]:
    """Returns the sorted environment variables with these prefixes that may affect compilation."""
    return sorted((n, v) for n, v in os.environ.items() if n.startswith(prefixes) and n not in UNRELATED)


def cache_directory() -> Path:
    """Returns the user's cache folder, which may not exist; without a home folder, a path that cannot exist."""
    named = setting("MGX_CACHE_DIR")
    if named:
        return Path(named)
    try:
        return Path(setting("XDG_CACHE_HOME") or Path.home() / ".cache") / "mgx"
    except RuntimeError:  # no home folder
        return Path(os.devnull) / "mgx"
