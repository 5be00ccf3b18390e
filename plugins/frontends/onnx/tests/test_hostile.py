"""Hostile models: each refused by an exception of mgx's tree, or run where it is legal, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOSTILE = Path(__file__).parent / "hostile"
KINDS = (
    "bytes", "structure", "attributes", "shapes", "indices", "integers", "empty", "memory", "images", "expressions", "initializers",
    "external", "sparse", "control", "depth", "length", "functions", "names",
)  # fmt: skip


def answers(folder: Path, *flags: str) -> dict[str, Any]:
    file = folder / "answers.json"
    subprocess.run([sys.executable, str(HOSTILE), "--json", str(file), *flags], check=False, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answers(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind: str, found: dict[str, Any]) -> None:
    mine = {name: a for name, a in found.items() if name.startswith(f"{kind}/")}
    assert len(mine) >= 10 or kind in ("depth", "images")
    assert not {name: a["wrong"] for name, a in mine.items() if a["wrong"]}


def test_every_kind_is_tested(found: dict[str, Any]) -> None:
    assert {name.partition("/")[0] for name in found} == set(KINDS)
    assert len(found) > 800


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("memory/Tile, late", "compile option limit_bytes"),
        ("memory/Tile, known", "option limit_bytes"),
        ("memory/Loop that gathers rows", "compile option limit_bytes"),
        ("control/loop without end", "option limit_max_iterations"),
        ("functions/2^35 nodes", "option limit_nodes"),
        ("functions/calls itself", "own::F calls itself"),
        ("functions/2,000 deep", "option limit_depth"),
        ("structure/unknown operator", "no converter for operator ai.onnx::Frobnicate (opset 20)"),
        ("structure/cycle", "cycle"),
        ("external/up, in initializer", "leads outside the model's folder"),
        ("structure/too many inputs", "takes 1 inputs (x), got 3"),
        ("attributes/axis is a word", "attribute 'axis' must be of type INT, got STRING"),
    ],
)
def test_messages_say_what_to_do(name: str, words: str, found: dict[str, Any]) -> None:
    assert words in found[name]["error"]


@pytest.mark.slow
def test_the_slow_ones(tmp_path: Path) -> None:
    found = answers(tmp_path, "--slow", "--match", "^length/")
    assert not {name: a["wrong"] for name, a in found.items() if a["wrong"]}
