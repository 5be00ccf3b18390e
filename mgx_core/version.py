"""The version of mgx-core, and the time of its import."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["IMPORTED", "__version__"]

IMPORTED: Final = time.time_ns()  # nanoseconds since the epoch; forked processes inherit it

__version__ = "0.1.0"
