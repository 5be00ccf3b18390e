"""Operations: the base class, and the standard operation set by family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .standard import STANDARD

__all__ = ["STANDARD"]


def __getattr__(name: str) -> Any:
    if name == "STANDARD":  # the families are imported when the set is first asked for
        from .standard import STANDARD

        return STANDARD
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
