"""Public models against TensorFlow's results, on the reference, the cpu and the (emulated) gpu (slow)."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx


def data_folder() -> Path | None:
    """Returns the folder with public models and expected results, MGX_TEST_DATA; None if it is not set."""
    folder = Path(os.environ.get("MGX_TEST_DATA", ""))
    return folder if (folder / "tf_models").is_dir() else None


@pytest.fixture(scope="session")
def data() -> Path:
    found = data_folder()
    if found is None:
        pytest.skip("the public TensorFlow models are not available (set MGX_TEST_DATA)")
    return found


# the gpu is emulated unless MGX_GPU_DEVICE names a real one
TARGETS = ["ref", "cpu", pytest.param("gpu", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def gpu_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_GPU_DEVICE", os.environ.get("MGX_GPU_DEVICE", "host:1"))


FOLDER = data_folder()
INDEX = json.loads((FOLDER / "tf_models" / "index.json").read_text()) if FOLDER else {"saved": {}, "frozen": {}}
# Keras draws new random weights when it freezes: these files have other weights than those of the expected results
OTHER_WEIGHTS = {
    "bert_tiny", "cnn_bn", "conv3d", "decoder_causal", "fully_convolutional", "gru_masked", "mobilenet_tiny", "resnet_tiny",
    "tcn_conv1d", "unet_tiny",
}  # fmt: skip
LOST_TABLES = {"lookup_table", "text_classifier"}  # freezing turns tables into inputs that cannot be provided
TOLERANCE = {"bf16": 2.0**-8}


def cases(path: Path) -> dict[str, dict[str, dict[str, dict[str, np.ndarray]]]]:
    found: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    with np.load(path) as file:
        for key in file.files:
            signature, case, side, name = key.split("|")
            found[signature][case][side][name] = words(file[key])
    return found


def words(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "S":
        return array
    out = np.empty(array.size, object)
    out[:] = [w.decode() for w in array.reshape(-1).tolist()]
    return out.reshape(array.shape)


def assert_close(name: str, got: Any, wanted: np.ndarray) -> None:
    value = np.asarray(got)
    assert value.shape == wanted.shape, name
    if wanted.dtype.kind == "f":
        span = max(float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)), 1e-30)
        np.testing.assert_allclose(
            value.astype(np.float32), wanted, rtol=0, atol=TOLERANCE.get(name, 1e-5) * span, err_msg=name
        )
    else:
        assert value.dtype == wanted.dtype and (value == wanted).all(), name


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(INDEX["saved"]))
def test_saved_model(name: str, target: str, data: Path):
    folder = data / "tf_models" / "saved"
    for signature, by_case in cases(folder / f"{name}.npz").items():
        program = mgx.parse(folder / name, signature=signature)
        program.compile(mgx.get_target(target))
        for case in by_case.values():
            taken = program.get_parameter_names()
            results = program.run({k: v for k, v in case["in"].items() if k in taken})
            assert program.get_output_names() == sorted(case["out"])
            for output, got in zip(program.get_output_names(), results, strict=True):
                assert_close(output, got, case["out"][output])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(set(INDEX["frozen"]) - OTHER_WEIGHTS - LOST_TABLES))
def test_frozen(name: str, target: str, data: Path):
    facts = INDEX["frozen"][name]
    by_case = cases(data / "tf_models" / "saved" / f"{name}.npz")[facts["signature"]]
    program = mgx.parse(data / "tf_models" / "frozen" / f"{name}.pb", output_names=facts["output_tensors"])
    program.compile(mgx.get_target(target))
    inputs = [t.partition(":")[0] for t in facts["input_tensors"]]
    for case in by_case.values():
        given = {t: case["in"][k] for t, k in zip(inputs, facts["inputs_in_sorted_order"], strict=True)}
        for output, got in zip(facts["outputs_in_sorted_order"], program.run(given), strict=True):
            assert_close(output, got, case["out"][output])


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("name", sorted(OTHER_WEIGHTS & set(INDEX["frozen"])))
def test_frozen_with_other_weights(name: str, target: str, data: Path):
    """Compares extents and types with the expected ones, and values with the reference."""
    facts = INDEX["frozen"][name]
    by_case = cases(data / "tf_models" / "saved" / f"{name}.npz")[facts["signature"]]
    path = data / "tf_models" / "frozen" / f"{name}.pb"
    programs = [mgx.parse(path, output_names=facts["output_tensors"]) for _ in range(2)]
    for program, on in zip(programs, ("ref", target), strict=True):
        program.compile(mgx.get_target(on))
    inputs = [t.partition(":")[0] for t in facts["input_tensors"]]
    for case in by_case.values():
        given = {t: case["in"][k] for t, k in zip(inputs, facts["inputs_in_sorted_order"], strict=True)}
        first, second = (p.run(given) for p in programs)
        for output, a, b in zip(facts["outputs_in_sorted_order"], first, second, strict=True):
            assert np.asarray(a).shape == case["out"][output].shape
            assert_close(output, b, np.asarray(a))


@pytest.mark.parametrize("name", sorted(LOST_TABLES & set(INDEX["frozen"])))
def test_lost_tables_are_named(name: str, data: Path):
    with pytest.raises(mgx.UnsupportedError, match="parse the SavedModel"):
        mgx.parse(data / "tf_models" / "frozen" / f"{name}.pb")


@pytest.mark.parametrize("target", TARGETS[1:])
def test_single_operators(target: str, data: Path):
    """Graphs of single operators are parsed and return the reference's results; arithmetic returns numpy's."""
    files = sorted((data / "tf").glob("*.pb"))
    assert len(files) == 31
    random = np.random.default_rng(0)
    for path in files:
        programs = [mgx.parse_tf(path) for _ in range(2)]
        given = {
            k: (np.abs(random.standard_normal(s.lens())) * 2 + 0.5).astype(s.dtype.numpy)
            for k, s in programs[0].get_parameter_shapes().items()
        }
        for program, on in zip(programs, ("ref", target), strict=True):
            program.compile(mgx.get_target(on))
        first, second = (p.run(given) for p in programs)
        for a, b in zip(first, second, strict=True):
            assert_close(path.stem, b, np.asarray(a))
        numpy_of = {
            "add": np.add,
            "addv2": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "pow": np.power,
        }
        word = path.stem.partition("_")[0]
        if word in numpy_of and path.stem == f"{word}_test":
            assert_close(
                path.stem, first[0], np.asarray(numpy_of[word](*given.values())).astype(np.asarray(first[0]).dtype)
            )
