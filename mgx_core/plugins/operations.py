"""Operations by name, of the standard set or of any installed plugin."""

from __future__ import annotations

from typing import Any

from ..ops.operation import Operation

__all__ = ["make_op"]


def make_op(name: str, /, **attributes: Any) -> Operation:
    """Returns an operation by name, of the standard set or of any installed plugin.

    Errors: UnsupportedError for unknown names; ParameterError for bad attributes.
    """
    from ..ops.standard import STANDARD

    if name in STANDARD:  # no plugin is loaded for an op that none may replace
        return STANDARD.make(name, **attributes)
    from .manager import manager

    return manager().opset().make(name, **attributes)
