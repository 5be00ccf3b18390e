"""``mgx-driver onnx``: the ONNX operators that the installed frontend reads."""

from __future__ import annotations

from .operators import operators_command

__all__ = ["command"]


def names() -> list[str]:
    from ..api import get_onnx_operators

    return get_onnx_operators()


command = operators_command("onnx", "ONNX", "Conv", names)
