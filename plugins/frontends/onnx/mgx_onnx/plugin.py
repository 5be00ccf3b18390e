"""Plugin hooks of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def frontends() -> list[Lazy]:
    return [Lazy("onnx", "mgx_onnx.frontend:OnnxFrontend", "ONNX models, opsets 1 to 28")]


@hookimpl
def operations() -> list[Lazy]:
    return [
        Lazy("onnx", "mgx_onnx.deferred:OPS", "a node whose ranks are known only at run time"),
        Lazy("onnx-ops", "mgx_onnx.ops:OPS", "classical models, text, images, losses and optimizers"),
    ]
