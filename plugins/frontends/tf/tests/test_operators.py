"""Single operators against TensorFlow's results, recorded by `gold/operators.py`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "operators.json").read_text())


def array(entry: dict[str, Any]) -> np.ndarray:
    if entry["kind"] == "string":
        words = [base64.b64decode(w).decode("utf-8", "surrogateescape") for w in entry["data"]]
        out = np.empty(len(words), object)
        out[:] = words
        return out.reshape(entry["dims"])
    return np.frombuffer(base64.b64decode(entry["data"]), entry["kind"]).reshape(entry["dims"])


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str):
    """Floats are compared within 2e-5 of the range; other values must be equal."""
    case = CASES[name]
    names = [f"y{k}" for k in range(len(case["outputs"]))]
    program = mgx.parse_buffer(base64.b64decode(case["graph"]), "tf", output_names=names)
    program.compile(mgx.get_target("ref"))
    found = program.run({f"x{k}": array(x) for k, x in enumerate(case["inputs"])})
    for got, entry in zip(map(np.asarray, found), case["outputs"], strict=True):
        wanted = array(entry)
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            finite = np.isfinite(wanted)
            np.testing.assert_array_equal(got[~finite], wanted[~finite])
            span = np.abs(wanted[finite]).max(initial=0)
            np.testing.assert_allclose(got[finite], wanted[finite], rtol=0, atol=2e-5 * span)
        else:
            np.testing.assert_array_equal(got, wanted)
