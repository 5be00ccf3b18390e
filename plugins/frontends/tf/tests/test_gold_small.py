"""Small models of many kinds against TensorFlow's results, if `make gold-tf` has created them."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

FOLDER = Path(os.environ.get("MGX_TF_GOLD", Path(__file__).resolve().parents[4] / ".gold-tf")) / "small"
NAMES = sorted(p.stem for p in FOLDER.glob("*.npz")) if FOLDER.is_dir() else []
pytestmark = pytest.mark.slow


def words(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "S":
        return array
    out = np.empty(array.size, object)
    out[:] = [w.decode("utf-8", "surrogateescape") for w in array.reshape(-1).tolist()]
    return out.reshape(array.shape)


def tolerance(form: str, path: Path, wanted: np.ndarray) -> float:
    """Returns the permitted error: 1e-5 of the range, 3e-3 with 8-bit weights, 3 steps if fully quantized."""
    span = float(np.abs(np.nan_to_num(wanted)).max(initial=0))
    if form != "int8":
        return span * (3e-3 if form == "dynamic" else 1e-5)
    from mgx_tflite.model import read_model

    graph = read_model(path.read_bytes(), 1 << 34).subgraphs[0]
    made = {i: o for o in graph.operators for i in o.outputs}
    last = [made[i].inputs[0] for i in graph.outputs if i in made and made[i].name == "DEQUANTIZE"]
    steps = [q.scale.max() for q in (graph.tensors[i].quantization for i in last) if q is not None]
    return 3 * float(max(steps, default=span / 255))


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("form", ["out", "lite", "flex", "dynamic", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_small_model(name: str, form: str, target: str):
    """Compares case by case, in order, within `tolerance`; results that are not floats must be equal."""
    frozen = (FOLDER / f"{name}.pb").exists()
    file = f"{name}.tflite" if form == "lite" else f"{name}.{form}.tflite"
    path = FOLDER / (file if form != "out" else f"{name}.pb" if frozen else name)
    form = "out" if form == "flex" and path.exists() else form
    cases: Any = defaultdict(lambda: defaultdict(dict))
    with np.load(FOLDER / f"{name}.npz") as gold:
        for key in gold.files:
            case, side, label = key.split("|")
            cases[case][side][label] = words(gold[key])
    if not path.exists() or form not in cases["0"]:
        pytest.skip("the converter does not support it")
    program = mgx.parse(path)
    program.compile(mgx.get_target(target))
    for case in sorted(cases):
        given = {k: v for k, v in cases[case]["in"].items() if k in program.get_parameter_names()}
        got = dict(zip(program.get_output_names(), map(np.asarray, program.run(given)), strict=True))
        assert got.keys() == cases[case][form].keys()
        for label, wanted in cases[case][form].items():
            assert got[label].shape == wanted.shape, label
            if wanted.dtype.kind == "f":
                bound = tolerance(form, path, wanted)
                np.testing.assert_allclose(got[label], wanted, rtol=0, atol=bound, err_msg=label)
            else:
                assert (got[label] == wanted).all(), label
