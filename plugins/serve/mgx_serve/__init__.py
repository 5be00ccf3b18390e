"""Serves compiled models by the Open Inference Protocol (version 2), over HTTP and gRPC, in one process.

`Settings` and `Server` are for programs; ``mgx-serve`` is the command.
"""

from .server import Server
from .settings import ModelSettings, Settings

__all__ = ["ModelSettings", "Server", "Settings"]
