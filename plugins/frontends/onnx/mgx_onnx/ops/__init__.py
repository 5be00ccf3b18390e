"""ONNX-specific operations: classical ML, text, images, losses and optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .standard import OPS

__all__ = ["OPS"]


def __getattr__(name: str) -> Any:
    if name == "OPS":  # imported lazily
        from .standard import OPS

        return OPS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
