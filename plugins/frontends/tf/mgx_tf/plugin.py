"""Plugin hooks of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1
# those of formats that are refused, with the reason: cpb, keras, h5
FILES = ("pb", "graphdef", "pbtxt", "cpb", "saved_model.pb", "saved_model.pbtxt", "saved_model.cpb", "keras", "h5")


@hookimpl
def frontends() -> list[Lazy]:
    return [Lazy("tf", "mgx_tf.frontend:TfFrontend", "TensorFlow's frozen graphs and SavedModels", files=FILES)]


@hookimpl
def converters(frontend: str) -> list[Lazy]:
    if frontend != "tflite":
        return []
    return [Lazy("flex", "mgx_tf.flex_table:FLEX", "TensorFlow's operators inside TFLite models")]


@hookimpl
def operations() -> list[Lazy]:
    return [Lazy("tf-ops", "mgx_tf.ops:OPS", "strings, tables, ragged tensors, image crops and boxes")]
