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
    m.add_return(
        [m.add(op("dot"), m.add_parameter("x", Shape("float32", [2, 64])), m.add_literal(W), sources=["dense"])]
    )
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


def test_verify_by_ratio_of_signal_to_noise(drive, drive_json, model: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out.mxr"
    data.mkdir()
    rng = np.random.default_rng(6)
    for n in range(3):
        np.savez(data / f"{n}.npz", x=rng.normal(size=(2, 64)).astype(np.float32))
    told = drive_json("quantize", model, "--data", data, "--target", "host", "--time", "-o", out)
    assert min(told["seconds"]) > 0
    assert sum(told["layers"][0]["histogram"]) == 3 * 128
    x = np.concatenate([np.load(data / f"{n}.npz")["x"] for n in range(3)]).astype(np.float64)
    program = mgx.load(out)
    got = np.concatenate(
        [Interpreter().run(program.get_main_module(), [v.astype(np.float32)])[0] for v in np.split(x, 3)]
    )
    wanted = x @ W
    ratio = 10 * np.log10((wanted**2).sum() / ((got - wanted) ** 2).sum())
    found = drive_json("verify", model, "--quantized", out, "--data", data, "--target", "host")
    assert found["ok"]
    assert found["outputs"][0]["sqnr"] == pytest.approx(ratio, abs=0.1)
    assert "FAILED" in drive("verify", model, "--quantized", out, "--sqnr", "90", "--target", "host", code=1)
    assert "requires --quantized" in drive("verify", model, "--data", data, code=2)


def test_names_in_and_out(drive, drive_json, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 64), np.float32))
    for option in ("--only", "--skip"):
        call = ["quantize", model, "--data", tmp_path / "x.npz", "-o", tmp_path / "out.mxr", option]
        assert bool(drive_json(*call, "dense")["layers"][0]["kept"]) == (option == "--skip")
        said = drive(*call, "dnese", code=2)
        assert f"{option}: no product (convolution or dot) has 'dnese' in its name; did you mean 'dense'?" in said


def test_targets_are_named_as_in_other_commands(drive, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 64), np.float32))
    call = ["quantize", model, "--data", tmp_path / "x.npz", "-o", tmp_path / "out.mxr", "--target", "host"]
    assert "only one target may be selected, got ref and host" in drive(*call, "--ref", code=2)


def test_options_of_another_kind_are_refused(drive, model: Path, tmp_path: Path) -> None:
    call = ["quantize", model, "-o", tmp_path / "out.mxr", "--kind"]
    assert "--skip requires --kind int8 or fp8 or dynamic, got int4-weights" in drive(
        *call, "int4-weights", "--skip", "dense", code=2
    )
    assert "--group-size requires --kind int4-weights, got dynamic" in drive(
        *call, "dynamic", "--group-size", 32, code=2
    )
    assert "--time requires inputs: add --data" in drive(*call, "dynamic", "--time", code=2)
    assert not (tmp_path / "out.mxr").exists()


@pytest.mark.parametrize("kind", ["int8", "int4-weights"])
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"x": np.ones((2, 63), np.float32)}, "must be float32[2, 64]"),
        ({"y": np.ones((2, 64), np.float32)}, "no value of 'x'"),
        ({"x": np.full((2, 64), np.nan, np.float32)}, "finite"),
    ],
)
def test_bad_data_is_found_by_its_file_and_batch(
    drive, model: Path, tmp_path: Path, kind: str, bad: dict, why: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "good.npz", x=np.ones((2, 64), np.float32))
    np.savez(data / "not.npz", **bad)
    method = ["--method", "gptq"] if kind == "int4-weights" else []
    given = ["--kind", kind, *method, "--data", data, "--target", "host", "-o", tmp_path / "out.mxr"]
    told = drive("quantize", model, *given, code=2)
    assert why in told and "batch 1 " in told and str(data / "not.npz") in told


def test_data_that_ends_early(drive, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 64), np.float32))
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:200])
    told = drive("quantize", model, "--data", tmp_path / "x.npz", "-o", tmp_path / "out.mxr", code=2)
    assert "cannot be read" in told


def test_a_folder_without_data_is_named(drive, model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = drive("quantize", model, "--data", tmp_path / "empty", "-o", tmp_path / "out.mxr", code=2)
    assert f"--data: there are no .npz files in {tmp_path / 'empty'}" in " ".join(told.split())


def test_data_in_another_format_is_named(drive, model: Path, tmp_path: Path) -> None:
    data = tmp_path / "x.npy"
    np.save(data, np.ones((2, 64), np.float32))
    told = drive("quantize", model, "--data", data, "-o", tmp_path / "out.mxr", code=2)
    assert f"{data} cannot be read: it is no .npz file" in told and "pickle" not in told
