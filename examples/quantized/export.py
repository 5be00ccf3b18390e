"""Exports a trained network to a file without traces of the machine it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch


def export(model: torch.nn.Module, example: torch.Tensor, path: Path, given: str) -> None:
    """Writes a network with one input, named `given`, and one output, logits; the batch stays symbolic.

    The exporter records the source line of every node, with file paths: these are removed.
    """
    open_batch = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(
        model, (example,), path, input_names=[given], output_names=["logits"], dynamic_shapes=open_batch,
        external_data=False,
    )  # fmt: skip
    written = onnx.load(path)
    _forget(written)
    for function in written.functions:
        _forget(function)
        for node in function.node:
            _forget(node)
    _forget_sources(written.graph)
    onnx.save(written, path)


def _forget_sources(graph: onnx.GraphProto) -> None:
    parts: list[Any] = [graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info]
    for part in parts:
        _forget(part)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                _forget_sources(inner)


def _forget(part: Any) -> None:
    part.ClearField("doc_string")
    part.ClearField("metadata_props")
