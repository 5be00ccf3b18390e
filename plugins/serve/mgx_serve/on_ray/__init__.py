"""Scale-out on Ray: models in many processes, on many GPUs and machines, scheduled, scaled and restarted by Ray Serve.

Needs ``mgx-serve[ray]``.  A single-process server imports nothing of this package.
"""

from .backend import OnRay
from .replica import application

__all__ = ["OnRay", "application"]
