"""Multi-layer perceptrons as JSON: ``[{"weights": [[..]], "bias": [..], "activation": "relu"}, ...]``."""

from __future__ import annotations

import json

import numpy as np

import mgx_core as mgx


class LayersFrontend(mgx.Frontend):
    """Parses programs of x float32[batch, n]; the batch remains symbolic, and mgx fixes it on request."""

    def parse_buffer(self, data: bytes) -> mgx.Program:
        layers = json.loads(data)
        if not layers or not isinstance(layers, list) or not all("weights" in layer for layer in layers):
            raise mgx.ParseError("a list of layers is required, each with weights")
        program = mgx.Program(output_names=["y"])
        main = program.get_main_module()
        inputs = len(layers[0]["weights"])
        x = main.add_parameter("x", mgx.Shape.of(mgx.dtype.float32, [mgx.dim.symbol("batch"), inputs]))
        for n, layer in enumerate(layers):
            source = [f"layer{n}"]  # the name in errors, reports and traces
            weights, bias = (main.add_literal(np.asarray(layer[k], np.float32)) for k in ("weights", "bias"))
            x = main.add(mgx.op("dot"), x, weights, sources=source)
            wide = main.add(mgx.op("multibroadcast", out_lens=x.shape.dims), bias)
            x = main.add(mgx.op("add"), x, wide, sources=source)
            if "activation" in layer:
                x = main.add(mgx.op(layer["activation"]), x, sources=source)
        main.add_return([x])
        return program
