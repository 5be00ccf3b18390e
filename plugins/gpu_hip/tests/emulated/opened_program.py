"""Opens programs for changing extents."""

from __future__ import annotations

from typing import Any

import mgx_core as mgx

__all__ = ["opened"]


def opened(program: mgx.Program, **known: int) -> Any:
    """Returns the program opened for extents of all symbols, or None."""
    made: Any = program.executable
    return made.target.open_program(made.parameters, known, frozenset(known), made._lowered)
