"""Plugin hooks of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def frontends() -> list[Lazy]:
    return [Lazy("tflite", "mgx_tflite.frontend:TfliteFrontend", "TFLite models, float and quantized")]


@hookimpl
def operations() -> list[Lazy]:
    return [Lazy("tflite-ops", "mgx_tflite.ops:OPS", "detection postprocessing, soft non-maximum suppression, lookups")]
