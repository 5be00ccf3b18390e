"""The version of mgx-core, and since when this process has its code."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["IMPORTED", "__version__"]

IMPORTED: Final = time.time_ns()  # when mgx was imported; forked processes have their parent's

__version__ = "0.1.0"
