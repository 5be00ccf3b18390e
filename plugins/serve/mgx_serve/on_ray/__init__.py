"""Models in many processes, on many GPUs and machines: Ray starts, routes, scales, replaces and restarts them.

Needs ``mgx-serve[ray]``.  Nothing here is imported by a server in one process.
"""

from .backend import OnRay
from .replica import application

__all__ = ["OnRay", "application"]
