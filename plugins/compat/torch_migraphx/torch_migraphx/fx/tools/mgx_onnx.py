"""ONNX models as modules of torch."""

from __future__ import annotations

from typing import Any

import mgx_core

from ..mgx_module import MGXModule

__all__ = ["from_onnx"]


def from_onnx(path: Any, **options: Any) -> MGXModule:
    """Returns the model of a file as a module.  Errors: those of `mgx_core.parse_onnx`."""
    return MGXModule(mgx_core.parse_onnx(path, **options))
