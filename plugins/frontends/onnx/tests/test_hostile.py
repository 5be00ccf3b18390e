"""Hostile models: each raises an exception of mgx's tree, or runs if it is legal, in bounded time and memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HOSTILE = Path(__file__).parent / "hostile"
PARTS = 8  # each starts two processes that import onnx
KINDS = {
    "bytes", "structure", "attributes", "shapes", "indices", "integers", "empty", "memory", "images", "expressions", "initializers",
    "external", "sparse", "control", "depth", "length", "functions", "names",
}  # fmt: skip


def answers(folder: Path, *flags: str) -> dict[str, Any]:
    file = folder / "answers.json"
    subprocess.run([sys.executable, str(HOSTILE), "--json", str(file), *flags], check=False, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_part(part: int, tmp_path: Path) -> None:
    found = answers(tmp_path, "--part", f"{part}/{PARTS}")
    assert len(found) > 800 / PARTS
    assert not {name: a["wrong"] for name, a in found.items() if a["wrong"]}
    assert {name.partition("/")[0] for name in found} <= KINDS


MESSAGES = {
    "memory/Tile, late": "compile option limit_bytes",
    "memory/Tile, known": "option limit_bytes",
    "memory/Loop that gathers rows": "compile option limit_bytes",
    "memory/Loop that doubles": "option limit_max_iterations",
    "memory/Loop that doubles, 1000 trips": "compile option limit_bytes",
    "control/loop without end": "option limit_max_iterations",
    "depth/loops 20 deep that grow": "parsed (option limit_nodes)",
    "functions/2^35 nodes": "option limit_nodes",
    "functions/calls itself": "own::F calls itself",
    "functions/2,000 deep": "option limit_depth",
    "structure/unknown operator": "no converter for operator ai.onnx::Frobnicate (opset 20)",
    "structure/cycle": "cycle",
    "external/up, in initializer": "leads outside the model's folder",
    "structure/too many inputs": "takes 1 input (x), got 3",
    "attributes/axis is a word": "attribute 'axis' must be of type INT, got STRING",
}


def test_messages_suggest_a_solution(tmp_path: Path) -> None:
    found = answers(tmp_path, "--match", f"^({'|'.join(map(re.escape, MESSAGES))})$")
    assert {name for name, words in MESSAGES.items() if words not in found[name]["error"]} == set()


def test_every_kind_is_tried() -> None:
    """The corpus contains ten cases of each kind, with fewer deep ones and images."""
    done = subprocess.run([sys.executable, str(HOSTILE), "--list"], check=True, capture_output=True, text=True)
    kinds = Counter(name.partition("/")[0] for name in done.stdout.splitlines())
    assert set(kinds) == KINDS
    assert {kind for kind, count in kinds.items() if count < 10} <= {"depth", "images"}
    assert kinds.total() > 800


@pytest.mark.slow
def test_the_slow_ones(tmp_path: Path) -> None:
    found = answers(tmp_path, "--slow", "--match", "^length/")
    assert not {name: a["wrong"] for name, a in found.items() if a["wrong"]}
