"""`migraphx.compile_modes`."""

from __future__ import annotations

import enum

__all__ = ["compile_modes"]


class compile_modes(enum.Enum):
    """Says how much time compiling may take for programs that run faster."""

    eager = 0
    balanced = 50
    max = 100
