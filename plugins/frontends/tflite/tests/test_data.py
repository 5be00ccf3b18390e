"""Public models against the results of TFLite's kernels, on the reference, the cpu and the (emulated) gpu (slow)."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_tflite.model import read_model

STEPS = {"attention_lite_int8": 2}  # TFLite's own kernels differ by this much


def data_folder() -> Path | None:
    """Returns the folder with public models and expected results, MGX_TEST_DATA; None if it is not set."""
    folder = Path(os.environ.get("MGX_TEST_DATA", ""))
    return folder / "tf_models" if (folder / "tf_models" / "tflite").is_dir() else None


# the gpu is emulated unless MGX_GPU_DEVICE names a real one
TARGETS = ["ref", "cpu", pytest.param("gpu", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def gpu_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_GPU_DEVICE", os.environ.get("MGX_GPU_DEVICE", "host:1"))


FOLDER = data_folder()
NAMES = sorted(json.loads((FOLDER / "index.json").read_text())["tflite"]) if FOLDER else []


def cases(path: Path) -> dict[str, dict[str, dict[str, dict[str, np.ndarray]]]]:
    found: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    with np.load(path) as file:
        for key in file.files:
            signature, case, side, name = key.split("|")
            found[signature][case][side][name] = file[key]
    return found


def steps(path: Path, signature: str) -> dict[str, float]:
    """Returns the permitted error of each quantized output: one step, in the units of the output."""
    model = read_model(path.read_bytes(), 1 << 30)
    found = model.signatures[signature]
    graph = model.subgraphs[found.subgraph]
    maker = {i: o for o in graph.operators for i in o.outputs}
    out = {}
    for name, index in found.outputs.items():
        tensor = graph.tensors[index]
        if tensor.quantization is not None and tensor.dtype is not None and not tensor.dtype.is_float:
            out[name] = 1.0
        elif index in maker and maker[index].name == "DEQUANTIZE":
            given = graph.tensors[maker[index].inputs[0]].quantization
            if given is not None:
                out[name] = float(given.scale[0])
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_model(name: str, target: str):
    assert FOLDER is not None
    path = FOLDER / "tflite" / f"{name}.tflite"
    for signature, by_case in cases(path.with_suffix(".npz")).items():
        allowed = steps(path, signature)
        program = mgx.parse(path, signature=signature)
        program.compile(mgx.get_target(target))
        for case in sorted(by_case, key=int):
            given, wanted = by_case[case]["in"], by_case[case]["out"]
            results = program.run({k: v for k, v in given.items() if k in program.get_parameter_names()})
            assert program.get_output_names() == sorted(wanted)
            for output, got in zip(program.get_output_names(), results, strict=True):
                value, gold = np.asarray(got), wanted[output]
                assert value.shape == gold.shape and value.dtype == gold.dtype, output
                span = max(float(np.abs(gold.astype(np.float64)).max(initial=0)), 1e-30)
                step = allowed.get(output, 0.0) * STEPS.get(name, 1)
                close = 1e-5 * span if gold.dtype.kind == "f" else 0
                worst = float(np.abs(value.astype(np.float64) - gold.astype(np.float64)).max(initial=0))
                assert worst <= step * 1.001 + close, f"{output}: off by {worst}, a step is {step}"


@pytest.mark.skipif(FOLDER is None, reason="the public TFLite models are not available (set MGX_TEST_DATA)")
def test_states_are_set_back():
    assert FOLDER is not None
    path = FOLDER / "tflite" / "stateful_counter.tflite"
    (signature, by_case), *_ = cases(path.with_suffix(".npz")).items()
    program = mgx.parse(path, signature=signature)
    program.compile(mgx.get_target("ref"))
    first = by_case["0"]["in"]
    runs = [[np.asarray(r) for r in program.run(first)] for _ in range(2)]
    assert any(not np.array_equal(a, b) for a, b in zip(*runs, strict=True))
    program.reset_state()
    again = [np.asarray(r) for r in program.run(first)]
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], again, strict=True))
    with pytest.raises(mgx.StoreError, match="states"):
        mgx.save_buffer(program)


@pytest.mark.skipif(FOLDER is None, reason="the public TFLite models are not available (set MGX_TEST_DATA)")
def test_damaged_files_are_refused_or_read():
    """A file that is truncated anywhere, or has any byte changed, is parsed or raises an error of mgx's tree."""
    assert FOLDER is not None
    random = np.random.default_rng(0)
    for name in ("dense_stack_int8io", "pruned_dense_sparse", "while_if", "lstm_one_int8"):
        data = (FOLDER / "tflite" / f"{name}.tflite").read_bytes()
        for _ in range(60):
            broken = bytearray(data)
            if random.random() < 0.3:
                del broken[int(random.integers(0, len(data))) :]
            for _ in range(int(random.integers(1, 6))):
                if broken:
                    broken[int(random.integers(0, len(broken)))] = int(random.integers(0, 256))
            try:
                mgx.parse_buffer(bytes(broken), "tflite", limit_bytes=1 << 24)
            except mgx.PluginError:
                raise
            except mgx.MgxError:
                pass
