"""Networks of keras.applications against TensorFlow's values, where `make gold-tf` has made them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx

FOLDER = Path(os.environ.get("MGX_TF_GOLD", Path(__file__).resolve().parents[4] / ".gold-tf"))
NAMES = sorted(p.stem for p in FOLDER.glob("*.npz")) if FOLDER.is_dir() else []
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("form", ["saved", "frozen", "lite", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_network(name: str, form: str):
    """Within 1e-5 of range (int8: two steps of the probabilities), for batches of one and of two."""
    path = {"saved": name, "frozen": f"{name}.pb", "lite": f"{name}.tflite", "int8": f"{name}_int8.tflite"}[form]
    if not (FOLDER / path).exists():
        pytest.skip("the converter does not make it")
    gold = np.load(FOLDER / f"{name}.npz")
    wanted = gold["out"] if form in ("saved", "frozen") else gold[form]
    program = mgx.parse(FOLDER / path)
    (parameter,) = program.get_parameter_names()
    program.compile(mgx.get_target("cpu"))
    for count in (1, 2):
        got = np.asarray(program.run({parameter: gold["in"][:count]})[0])
        span = np.abs(wanted[:count]).max()
        assert got.shape == wanted[:count].shape
        np.testing.assert_allclose(got, wanted[:count], rtol=0, atol=2 / 256 if form == "int8" else 1e-5 * span)
