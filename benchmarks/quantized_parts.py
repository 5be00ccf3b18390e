"""Compares a quantized ONNX model with onnxruntime part by part on equal bytes, which detects faults without amplified
rounding.

    python benchmarks/quantized_parts.py MODEL.onnx INPUTS.npz [--target cpu] [--json FILE]

If a value is half way between two bytes, a difference in its last bit rounds it to the other one, and later layers amplify this
until two correct programs have nothing in common.  Here the model is cut at its quantizations: every part between them reads
the bytes, scales and zero points that onnxruntime computed, and every quantization the floats.  Printed are the differences of
the parts' floats relative to their largest magnitude, and how many bytes differ where the floats were equal.  Operators that
round internally (QLinearConv, DynamicQuantizeLSTM) are not cut: they belong to parts.  Exit status 1 if a difference exceeds
1e-5 or a byte differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
from onnx import NodeProto, ValueInfoProto, helper

import mgx_core as mgx

QUANTIZERS: Final = frozenset({"DynamicQuantizeLinear", "QuantizeLinear"})
MOST: Final = 1e-5

Feeds = dict[str, Any]


def results(model: onnx.ModelProto, feeds: Feeds) -> Feeds:
    """Returns onnxruntime's values by name, computed without its fusions."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = {i.name for i in session.get_inputs()}
    found = session.run(None, {name: value for name, value in feeds.items() if name in wanted})
    return dict(zip(names, found, strict=True))


def quantizations(model: onnx.ModelProto) -> list[NodeProto]:
    """Returns the nodes that quantize computed values, not constants."""
    made = {name for node in model.graph.node for name in node.output}
    return [n for n in model.graph.node if n.op_type in QUANTIZERS and n.input[0] in made]


def given(name: str, value: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Returns a copy that also returns the given values."""
    out, known = onnx.ModelProto(), {o.name for o in model.graph.output}
    out.CopyFrom(model)
    out.graph.output.extend(ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in known)
    return out


def cut(model: onnx.ModelProto, values: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """Returns the model in parts and their inputs: results and operands of quantizations are inputs, computed values are
    outputs.
    """
    nodes = quantizations(model)
    read, made = dict.fromkeys(n.input[0] for n in nodes), [o for n in nodes for o in n.output]
    out = with_outputs(model, list(read))
    del out.graph.node[:]
    out.graph.node.extend(n for n in model.graph.node if n not in nodes)
    feeds = {name: values[name] for name in made} | {f"{name}.given": values[name] for name in read}
    for node in nodes:
        twin = NodeProto()
        twin.CopyFrom(node)
        twin.input[0] = f"{node.input[0]}.given"
        twin.output[:] = [f"{o}.again" for o in node.output]
        out.graph.node.append(twin)
    out.graph.input.extend(given(name, value) for name, value in feeds.items())
    return with_outputs(out, [f"{name}.again" for name in made]), feeds


def apart(ours: Any, wanted: Any) -> float:
    """Returns the largest difference over the largest finite magnitude; NaN and infinities must be equal."""
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=np.finfo(np.float32).tiny)
    with np.errstate(invalid="ignore"):
        between = np.abs(ours.astype(np.float64) - wanted)
    same = (ours == wanted) | (np.isnan(ours) & np.isnan(wanted))
    return float(np.where(same, 0.0, np.nan_to_num(between, nan=np.inf)).max() / size)


def compared(model: onnx.ModelProto, inputs: Feeds, target: str) -> dict[str, float]:
    """Returns, by name, the differences of the parts' floats and the numbers of differing bytes."""
    read = [n.input[0] for n in quantizations(model)]
    made = [o for n in quantizations(model) for o in n.output]
    parts, feeds = cut(model, results(with_outputs(model, [*made, *read]), inputs))
    feeds |= inputs
    theirs = results(parts, feeds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "parts.onnx"
        onnx.save(parts, path)
        program = mgx.parse_onnx(path)
    program.compile(mgx.get_target(target))
    found = program.run({name: feeds[name] for name in program.get_parameter_names()})
    out: dict[str, float] = {}
    for name, ours in zip(program.get_output_names(), map(np.asarray, found), strict=True):
        wanted = theirs[name]
        if wanted.dtype.kind != "f":
            out[name] = float((ours != wanted).sum())
        elif wanted.size:
            out[name] = apart(ours, wanted)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with np.load(options.inputs) as held:
        inputs = {name: held[name] for name in held.files}
    found = compared(onnx.load(options.model), inputs, options.target)
    wrong = sorted((v, name) for name, v in found.items() if v > MOST)
    floats = [v for v in found.values() if v < 1]
    print(
        f"{options.model.name}: {len(found)} values, floats differ by at most {max(floats, default=0.0):.1e}, {len(wrong)} wrong"
    )
    for value, name in reversed(wrong[-10:]):
        print(f"  {name}: {value:.3g}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
