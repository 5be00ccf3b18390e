"""``run``, ``compile`` and their inputs."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import (
    Argument,
    OptionalShape,
    Program,
    SequenceShape,
    Shape,
    TupleShape,
    UnsupportedError,
    dim,
    dtype,
    load,
    op,
)
from mgx_core.driver.data import inputs, value_of


def test_results(drive, drive_json, chain, tmp_path):
    data = tmp_path / "x.npy"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(data, x)
    document = drive_json("run", chain("tanh"), "--load-arg", "@x", data, "--target", "host")
    assert document["target"] == "host"
    found = document["outputs"]["y"]
    np.testing.assert_allclose(found["values"], np.tanh(x).ravel(), rtol=1e-6)
    assert found["dims"] == [2, 3]
    assert found["mean"] == pytest.approx(np.tanh(x).mean(), rel=1e-6)
    assert drive("run", chain("tanh"), "--load-arg", "@x", data).startswith("y = float32[2, 3] [[0.")


def test_fills(drive_json, chain):
    assert drive_json("run", chain("exp"), "--fill0", "x")["outputs"]["y"]["values"] == [1.0] * 6
    values = drive_json("run", chain("neg"), "--fill1", "x")["outputs"]["y"]["values"]
    assert values == [-1.0] * 6
    assert (
        drive_json("run", chain("neg"))["outputs"]["y"]["values"]
        == drive_json("run", chain("neg"))["outputs"]["y"]["values"]
    )


def test_seed_changes_the_values(drive_json, chain):
    one = drive_json("run", chain("neg"))["outputs"]["y"]["values"]
    assert one != drive_json("run", chain("neg"), "--seed", "1")["outputs"]["y"]["values"]
    assert len(set(one)) > 1


def test_symbols_use_their_optimal_size(drive_json, chain):
    assert drive_json("run", chain("neg", "n 2"))["outputs"]["y"]["dims"] == [3, 2]
    assert drive_json("run", chain("neg", "n 2"), "--dim-param", "@n", "5")["outputs"]["y"]["dims"] == [5, 2]


def test_default_sizes_are_named_if_they_do_not_fit(drive, tmp_path):
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape.of(dtype.float32, (dim.symbol("n"),)))
    main.add_return([main.add(op("topk", k=4, axis=0), x)])
    program.save(str(tmp_path / "top.mxr"))
    told = drive("run", tmp_path / "top.mxr", "--target", "host", code=2)
    assert "k must lie in [0, 1]" in told and "so n=1; --dim-param and --input-dim choose others" in told
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    told = drive("run", tmp_path / "top.mxr", "--target", "host", "--load-arg", "@x", tmp_path / "x.npy", code=2)
    assert "k must lie in [0, 3]" in told and "--dim-param" not in told


def test_infinities_are_text_in_json(drive_json, chain, tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1e30, np.nan, 0]], np.float32))
    found = drive_json("run", chain("exp", "1 3"), "--load-arg", "@x", tmp_path / "x.npy")["outputs"]["y"]
    assert found["values"] == ["inf", "nan", 1.0]


def test_saved_results(drive, chain, tmp_path):
    for name in ("y.npz", "y.npy"):
        drive("run", chain("exp"), "--fill0", "x", "-o", tmp_path / name)
        loaded = np.load(tmp_path / name)
        array = loaded if name == "y.npy" else loaded["y"]
        assert array.tolist() == np.ones((2, 3), np.float32).tolist()


def test_wrong_inputs(drive, chain, tmp_path):
    assert "there is no parameter 'z'" in drive("run", chain("exp"), "--fill0", "z", code=2)
    np.save(tmp_path / "x.npy", np.zeros(2))
    assert "must be float32[2, 3]" in drive("run", chain("exp"), "--load-arg", "@x", tmp_path / "x.npy", code=2)
    (tmp_path / "bad.npy").write_text("nothing")
    assert "is neither an .npy file" in drive("run", chain("exp"), "--load-arg", "@x", tmp_path / "bad.npy", code=2)
    assert "No such file" in drive("run", chain("exp"), "--load-arg", "@x", tmp_path / "none.npy", code=2)
    assert "'x' is given two values" in drive("run", chain("exp"), "--fill0", "x", "--fill1", "x", code=2)
    assert "-1 is not in the range" in drive("run", chain("exp"), "--seed", "-1", code=2)


def test_values_of_every_kind_of_shape():
    symbols = {}
    n = dim.symbol("n", 2, 9)
    assert np.asarray(value_of(Shape.of(dtype.float32, (n, n * 2)), symbols, None, 0)).shape == (2, 4)
    assert symbols == {"n": 2}
    ids = value_of(Shape("int64", [50]), symbols, None, 0)
    assert set(ids.tolist()) == {0, 1}
    assert value_of(SequenceShape(Shape("float32", [2])), {}, 1, 0)[0].tolist() == [1, 1]
    assert value_of(OptionalShape(Shape("bool", [1])), {}, 0, 0).tolist() == [False]
    assert len(value_of(TupleShape([Shape("float16", [1]), Shape("uint4", [1])]), {}, None, 0)) == 2
    assert value_of(Shape.unranked(dtype.float32), {}, 0, 0).tolist() == [0.0]
    assert value_of(Shape("string", [2]), {}, 0, 0).tolist() == ["0", "0"]


def test_loaded_files_give_symbols_their_values(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 2), np.float32))
    n = dim.symbol("n")
    shapes = {"a": Shape.of(dtype.float32, (n, 2)), "b": Shape.of(dtype.float32, (n,))}
    given = {"load_arg": [f"@a\x1f{tmp_path / 'a.npy'}"], "fill0": [], "fill1": [], "seed": 0}
    assert np.asarray(inputs(shapes, given)["b"]).shape == (4,)


def test_compile_reports(drive, drive_json, chain):
    document = drive_json("compile", chain("identity exp tanh"), "--target", "wrong")
    assert document["target"] == "wrong"
    assert {p["name"] for p in document["passes"]} >= {"normalize", "fold-constants", "lower"}
    text = drive("compile", chain("identity exp tanh"), "--target", "wrong")
    assert "compiled for wrong" in text
    assert "normalize" in text
    assert "\n1 kernel, 0 bytes of memory" in drive("compile", chain("tanh"), "--target", "wrong")


def test_compile_counts_rules(drive, drive_json, chain):
    document = drive_json("compile", chain("neg neg relu relu"), "--target", "wrong")
    (simplify,) = [p for p in document["passes"] if p["name"] == "simplify"]
    fired = {c["rule"]: c["fired"] for c in simplify["rules"]}
    assert fired["cancel-negations"] == 1
    assert fired["apply-once"] == 1
    lines = drive("compile", chain("neg neg relu relu"), "--target", "wrong").split("\n")
    assert ["cancel-negations", "1"] in [line.split() for line in lines]


def test_compile_names_what_the_target_declined(drive, drive_json, chain):
    document = drive_json("compile", chain("exp"), "--target", "wrong")
    (host,) = document["host"]
    assert host["sources"] == ["node0"]
    assert "no exponential here" in host["refused"][0]
    assert "no exponential here" in drive("compile", chain("exp"), "--target", "wrong")


def test_compile_saves(drive, drive_json, chain, tmp_path):
    path = tmp_path / "m.mxr"
    assert "written to" in drive("compile", chain("exp"), "-o", path)
    assert drive_json("run", path, "--fill0", "x")["outputs"]["y"]["values"] == [1.0] * 6


def test_disabled_passes(drive_json, chain):
    document = drive_json("compile", chain("exp"), "--disable-pass", "merge-common")
    assert "merge-common" not in {p["name"] for p in document["passes"]}


def test_two_targets_are_refused(drive, chain):
    assert "one target" in drive("run", chain("exp"), "--cpu", "--gpu", code=2)


def test_values_that_arguments_wrote(drive, chain, tmp_path):
    Argument(np.full((2, 3), 2, np.float32)).save(tmp_path / "x.arg")
    drive("run", chain("neg"), "--load-arg", "@x", tmp_path / "x.arg", "-o", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").tolist() == [[-2.0] * 3] * 2


def test_a_program_that_cannot_be_compiled_is_kept(drive, chain, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def refused(self, *given, **options):
        raise UnsupportedError("not today")

    monkeypatch.setattr(Program, "compile", refused)
    said = drive("run", chain("exp"), code=2)
    (kept,) = tmp_path.glob("*/uncompiled.mxr")
    assert "not today" in said and str(kept) in said
    assert load(kept).get_parameter_names() == ["x"]
