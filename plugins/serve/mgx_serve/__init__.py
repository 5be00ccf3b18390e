"""Serves compiled models by the Open Inference Protocol (version 2), over HTTP and gRPC, in one process.

`Settings` and `Server` are for programs; ``mgx-serve`` is the command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .server import Server
    from .settings import ModelSettings, Settings

__all__ = ["ModelSettings", "Server", "Settings"]

_MODULES: Final = {"ModelSettings": "settings", "Server": "server", "Settings": "settings"}


# gRPC is imported when something that needs it is, for the command chooses how it polls before that
def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = found
    return found
