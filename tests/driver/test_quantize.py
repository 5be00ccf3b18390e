"""``mgx-driver quantize``: calibration data from files, the report, the saved program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Program, Shape, op
from mgx_core.ir.interpreter import Interpreter

W = np.random.default_rng(5).normal(size=(64, 64)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    program = Program()
    m = program.get_main_module()
    m.add_return([m.add(op("dot"), m.add_parameter("x", Shape("float32", [2, 64])), m.add_literal(W))])
    mgx.save(program, tmp_path / "model.mxr")
    return tmp_path / "model.mxr"


@pytest.mark.parametrize("kind", ["int8", "fp8", "dynamic", "int4-weights"])
def test_quantized_file_runs(drive_json, model: Path, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    x = np.random.default_rng(6).normal(size=(2, 64)).astype(np.float32)
    np.savez(data / "one.npz", x=x)
    out, page = tmp_path / "out.mxr", tmp_path / "page.html"
    told = drive_json("quantize", model, "--kind", kind, "--data", data, "--target", "host", "-o", out, "--page", page)
    assert [layer["op"] for layer in told["layers"]] == ["dot"]
    assert told["bytes"][1] < 0.4 * told["bytes"][0]
    assert "<table>" in page.read_text()
    program = mgx.load(out)
    (found,) = Interpreter().run(program.get_main_module(), [x])
    wanted = x @ W
    assert 0 < np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 0.15
