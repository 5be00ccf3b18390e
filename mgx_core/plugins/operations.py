"""Creates operations by name, from the standard op set or from plugins."""

from __future__ import annotations

from typing import Any

from ..ops.operation import Operation

__all__ = ["make_op"]


def make_op(name: str, /, **attributes: Any) -> Operation:
    """Creates an operation by name, from the standard op set or from plugins.

    Errors: UnsupportedError for unknown names; ParameterError for bad attributes.
    """
    from ..ops.standard import STANDARD

    if name in STANDARD:  # plugins cannot replace standard ops, so none are loaded
        return STANDARD.make(name, **attributes)
    from .manager import manager

    return manager().opset().make(name, **attributes)
