"""ONNX models as torch modules."""

from __future__ import annotations

from typing import Any

import mgx_core

from ..mgx_module import MGXModule

__all__ = ["from_onnx"]


def from_onnx(path: Any, **options: Any) -> MGXModule:
    """Returns an ONNX file as a module.  Errors: those of `mgx_core.parse_onnx`."""
    return MGXModule(mgx_core.parse_onnx(path, **options))
