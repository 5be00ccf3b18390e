"""Networks of keras.applications against TensorFlow's results, if `make gold-tf` has created them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx

FOLDER = Path(os.environ.get("MGX_TF_GOLD", Path(__file__).resolve().parents[4] / ".gold-tf"))
NAMES = sorted(p.stem for p in FOLDER.glob("*.npz")) if FOLDER.is_dir() else []
pytestmark = pytest.mark.slow


def step_of(path: Path) -> float:
    """Returns the quantization step of a .tflite file's result, which its last operator dequantizes."""
    from mgx_tflite.model import read_model

    graph = read_model(path.read_bytes(), 1 << 34).subgraphs[0]
    made = {i: o for o in graph.operators for i in o.outputs}[graph.outputs[0]]
    given = graph.tensors[made.inputs[0]].quantization
    assert given is not None
    return float(given.scale[0])


@pytest.mark.parametrize("form", ["saved", "frozen", "lite", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_network(name: str, form: str):
    """Within 1e-5 of the range (int8: four steps of the logits), for batches of one and two."""
    path = {"saved": name, "frozen": f"{name}.pb", "lite": f"{name}.tflite", "int8": f"{name}_int8.tflite"}[form]
    if not (FOLDER / path).exists():
        pytest.skip("the converter does not support it")
    gold = np.load(FOLDER / f"{name}.npz")
    wanted = gold["out"] if form in ("saved", "frozen") else gold[form]
    span = 4 * step_of(FOLDER / path) if form == "int8" else 1e-5 * np.abs(wanted).max()
    program = mgx.parse(FOLDER / path)
    (parameter,) = program.get_parameter_names()
    program.compile(mgx.get_target("cpu"))
    for count in (1, 2):
        got = np.asarray(program.run({parameter: gold["in"][:count]})[0])
        assert got.shape == wanted[:count].shape
        np.testing.assert_allclose(got, wanted[:count], rtol=0, atol=span)
