"""`migraphx.compile_modes`."""

from __future__ import annotations

import enum

__all__ = ["compile_modes"]


class compile_modes(enum.Enum):
    """The trade-off between compile time and run time."""

    eager = 0
    balanced = 50
    max = 100
