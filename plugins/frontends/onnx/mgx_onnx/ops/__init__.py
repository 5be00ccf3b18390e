"""Operations that only ONNX files have: classical models, text, images, losses and optimisers of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .standard import OPS

__all__ = ["OPS"]


def __getattr__(name: str) -> Any:
    if name == "OPS":  # the families are imported when the set is first asked for
        from .standard import OPS

        return OPS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
