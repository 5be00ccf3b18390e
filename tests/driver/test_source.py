"""Program sources and the options that edit a program after loading."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.driver.option_values import assigned, by_name, json_value, split


def shapes(document):
    return {n: s["dims"] for n, s in document["parameters"].items()}


def test_built_in_example(drive_json):
    assert shapes(drive_json("params", "--test")) == {"a": [4, 5], "b": [5, 3]}


@pytest.mark.parametrize("words", [["--signature", "s"], ["--output-names", "y"], ["--skip-unknown-operators"]])
def test_the_built_in_example_has_no_frontend(drive, words):
    assert f"the built-in example takes no option {words[0]}" in drive("params", "--test", *words, code=2)


def test_frontend_by_extension_and_by_name(drive_json, chain, tmp_path):
    path = chain("tanh", "2 3")
    assert shapes(drive_json("params", path)) == {"x": [2, 3]}
    other = tmp_path / "model.bin"
    other.write_text(path.read_text())
    assert shapes(drive_json("params", other, "--frontend", "chain")) == {"x": [2, 3]}


def test_unknown_extension_lists_the_known(drive, tmp_path):
    path = tmp_path / "model.bin"
    path.touch()
    assert ".chain" in drive("params", path, code=2)


def test_missing_frontend_says_what_to_install(drive, tmp_path):
    path = tmp_path / "model.onnx"
    path.touch()
    assert "pip install mgx-onnx" in drive("params", path, code=2)


@pytest.mark.parametrize(
    ("options", "dims"),
    [
        ([], ["n", 3]),
        (["--batch", "5"], [5, 3]),
        (["--dim-param", "@n", "7"], [7, 3]),
        (["--input-dim", "@x", "4", "6"], [4, 6]),
        (["--input-dim", "@x", "[4,6]"], [4, 6]),
    ],
)
def test_extents(drive_json, chain, options, dims):
    assert shapes(drive_json("params", chain("tanh", "n 3"), *options)) == {"x": dims}


def test_symbols_and_inputs_that_there_are_not(drive, chain):
    said = drive("params", "--test", "--dim-param", "@m", "7", code=2)
    assert "--dim-param: no extent of the model's inputs is called 'm'" in said
    said = drive("params", "--test", "--input-dim", "@c", "7", code=2)
    assert "there is no tensor parameter 'c'" in said


def test_stated_extents_are_not_changed_in_silence(drive, caplog):
    drive("params", "--test", "--input-dim", "@a", "4", "5")
    assert not caplog.records
    drive("params", "--test", "--input-dim", "@a", "2", "5")
    (record,) = caplog.records
    assert record.getMessage() == "input 'a': the extents [4, 5] of the model are overridden by [2, 5]"


@pytest.mark.parametrize(
    ("extents", "batch", "told"),
    [("4 3", 4, False), ("n 3", 5, False), ("1 n", 3, False), ("4 3", 7, True), ("4 3", 3, True), ("1 3", 1, False)],
)
def test_a_batch_option_without_effect_is_reported(extents, batch, told, drive, chain, caplog):
    drive("params", chain("tanh", extents), "--batch", str(batch))
    dims = [int(d) for d in extents.split() if d != "n"]
    wanted = f"states the extents of its inputs, x {dims}; --input-dim sets others"
    assert [r.getMessage().endswith(wanted) for r in caplog.records] == [True] * told


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (["--default-dyn-dim", "[]"], "--default-dyn-dim must be an int or a range"),
        (
            ["--input-dim", "@a", "4", "5", "--dyn-input-dim", "@a", "[4, 5]"],
            "input 'a' is in both --input-dim and --dyn-input-dim",
        ),
        (["-O", "--rule", "no-such-rule=off"], "--rule: there is no rule 'no-such-rule'"),
        (["-O", "--disable-pass", "no-such-pass"], "--disable-pass: there is no pass 'no-such-pass'"),
    ],
)
def test_errors_name_flags(drive, options, flag):
    assert flag in drive("read", "--test", *options, code=2)


def test_bad_extents(drive, chain):
    assert "takes ints" in drive("params", chain("tanh"), "--input-dim", "@x", "one", code=2)
    assert "first" in drive("params", chain("tanh"), "--input-dim", "1", code=2)


def test_trim(drive_json, chain):
    path = chain("tanh exp neg")
    document = drive_json("perf", path, "-n", "1", "-t", "2", "--target", "wrong")
    assert [i["operation"] for i in document["instructions"]] == ["tanh"]


def test_trim_too_much(drive, chain):
    assert "at most 1" in drive("read", chain("tanh exp"), "--graphviz", "-t", "2", code=2)


def test_words():
    assert by_name(["@x\x1f1\x1f2", "@y\x1f3"], "--o") == {"x": ["1", "2"], "y": ["3"]}
    assert split(["a\x1fb", "c"]) == ["a", "b", "c"]
    assert json_value("[{min:1, max:8, optimals:[1,4]}, 3]", "--o") == [{"min": 1, "max": 8, "optimals": [1, 4]}, 3]


def test_passes_by_name(drive, chain):
    path = chain("identity tanh")
    assert "identity" in drive("read", path, "--graphviz")
    assert "identity" not in drive("read", path, "--graphviz", "-p", "normalize")
    assert "did you mean 'fold-constants'" in drive("read", path, "-p", "fold-constant", code=2)
    assert "there is no pass 'nonsense'; " in drive("read", path, "-p", "nonsense", code=2)
    assert "fold-constants" in drive("rules", "--passes")
    assert "limit" in drive("read", path, "-p", "fold-constants:size=3", code=2)
    assert "tanh" in drive("read", path, "--graphviz", "-p", "fold-constants:limit=3", "normalize")


def test_optimize(drive, chain):
    assert "identity" not in drive("read", chain("identity tanh"), "-O", "-g")


def test_files_of_other_forms(drive, chain, tmp_path):
    path, data = chain("tanh exp", "n 3"), tmp_path / "x.npy"
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.save(data, x)
    for name in ("m.mxr", "m.json", "m.txt"):
        drive("read", path, "-o", tmp_path / name)
        drive("run", tmp_path / name, "--load-arg", "@x", data, "-o", tmp_path / "y.npy")
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.exp(np.tanh(x)), rtol=1e-6)
        assert "float32[7, 3]" in drive("params", tmp_path / name, "--batch", "7")
        assert "float32[5, 9]" in drive("params", tmp_path / name, "--input-dim", "@x", "5", "9")


def test_a_program_is_edited_in_place_and_no_other_model_overwritten(drive, chain, tmp_path):
    path = chain("identity tanh")
    before = path.read_bytes()
    for command in ("read", "compile", "run", "quantize"):
        assert "--output would overwrite the model" in drive(command, path, "-o", path, code=2)
    assert path.read_bytes() == before
    drive("read", path, "-o", tmp_path / "m.mxr")
    drive("read", tmp_path / "m.mxr", "-O", "-o", tmp_path / "m.mxr")
    assert "identity" not in drive("read", tmp_path / "m.mxr")


def test_options_of_a_frontend_itself(drive, chain):
    path = chain("tanh", "2 3")
    assert "out" in drive("params", path, "--frontend-option", "alias=out").split()
    assert "takes no option 'name'; known are alias" in drive("params", path, "--frontend-option", "name=1", code=2)
    assert "takes NAME=VALUE, got 'alias'" in drive("params", path, "--frontend-option", "alias", code=2)
    twice = ("--frontend-option", "alias=a", "--frontend-option", "alias=b")
    assert "alias is given twice" in drive("params", path, *twice, code=2)
    assert "dim_params is given by --dim-param" in drive("params", path, "--frontend-option", "dim_params=1", code=2)


def test_values_of_options_are_json_or_text():
    given = ("a=2", "b=[1, 2]", "c=true", "d=text", 'e="3"', "f=x=y")
    assert assigned(given, "-o") == {"a": 2, "b": [1, 2], "c": True, "d": "text", "e": "3", "f": "x=y"}
