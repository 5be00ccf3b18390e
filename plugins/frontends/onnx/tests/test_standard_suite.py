"""ONNX's own test suite on the reference target, in one process; excluded tests are listed in a file with reasons."""

from __future__ import annotations

import tomllib
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgx_onnx.backend import RefBackend

FILE = tomllib.loads((Path(__file__).parent / "conformance_exceptions.toml").read_text())
GROUPS = {"Node": 32, "Simple": 1, "PyTorchConverted": 1, "PyTorchOperator": 1, "Real": 1}  # and in how many parts


Cases = dict[str, Callable[[Any], None]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cases]:
    """Returns the suite's test functions by group and name."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("ONNX_HOME", str(tmp_path_factory.mktemp("onnx")))  # where the suite unpacks its own models
        import onnx.backend.test

        found = onnx.backend.test.BackendTest(RefBackend, __name__).test_cases
    return {
        group: {
            name.removesuffix("_cpu"): getattr(found[f"OnnxBackend{group}ModelTest"], name)
            for name in sorted(dir(found[f"OnnxBackend{group}ModelTest"]))
            if name.startswith("test_") and name.endswith("_cpu")
        }
        for group in GROUPS
    }


@pytest.mark.filterwarnings("default")  # the suite's own code emits warnings
@pytest.mark.parametrize(("group", "part"), [(group, part) for group, parts in GROUPS.items() for part in range(parts)])
def test_group(group: str, part: int, cases: dict[str, Cases], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))
    wrong: list[str] = []
    expected, either = FILE["exceptions"], FILE["rounding"] | FILE["random"]
    for name, case in [*cases[group].items()][part :: GROUPS[group]]:
        try:
            case(None)
        except unittest.SkipTest as skipped:
            wrong.append(f"{name} was skipped: {skipped}")
        except Exception as error:
            if name not in expected and name not in either:
                wrong.append(f"{name}: {type(error).__name__}: {str(error).strip()[:300]}")
        else:
            if name in expected:
                wrong.append(f"{name} passes: its line in conformance_exceptions.toml is stale")
    assert not wrong, "\n".join(wrong)


def test_the_exceptions_exist(cases: dict[str, Cases]) -> None:
    names = {name for group in cases.values() for name in group}
    assert not {name for table in FILE.values() for name in table} - names
    assert len(names) > 1500
