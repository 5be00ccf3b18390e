"""The PyTorch frontend: exported programs, ``torch.compile(model, backend="mgx")`` and `lower_to_mgx`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explaining import Explanation, explain
    from .exported import from_exported
    from .lowering import MgxModule, lower_to_mgx

__all__ = ["Explanation", "MgxModule", "explain", "from_exported", "lower_to_mgx"]

PLACES = {
    "Explanation": "explaining", "explain": "explaining", "from_exported": "exported", "MgxModule": "lowering",
    "lower_to_mgx": "lowering",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # lazy, since these import torch
    if name in PLACES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
