"""A target may decline anything: one that declines everything passes the kit without expected failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mgx_conformance.cases import all_cases
from mgx_conformance.empty_target import EmptyTarget
from mgx_conformance.onnx_nodes import judge, node_tests
from mgx_conformance.trial import attempt
from mgx_core import HostKernel, Kernels
from mgx_core.ops.linear import Dot


def kit(folder: Path, *words: str) -> dict[str, dict[str, int]]:
    """Runs the suite on the empty target; returns outcomes by level."""
    card = folder / "card.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "mgx_conformance.suite"]
    done = subprocess.run(
        [*command, "--mgx-target", "mgx_conformance.empty_target:EmptyTarget", "--mgx-scorecard", str(card), *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    levels: dict[str, dict[str, int]] = json.loads(card.read_text())["levels"]
    assert not any(counts["fail"] or counts["expected"] for counts in levels.values())
    return levels


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_parts_of_parts_are_rounded_one_by_one(layout):
    (case,) = (c for c in all_cases() if c.id == "gqa_rotary_embedding-halves-float16")
    attempt(case, layout, EmptyTarget())


@pytest.mark.slow  # onnx takes eight seconds to create its tests
@pytest.mark.parametrize("name", ["4d_causal_fp16", "4d_causal_fp16_expanded", "4d_gqa_with_past_and_present_fp16"])
def test_node_tests_with_separately_rounded_parts(name):
    judge(node_tests()[f"attention_{name}"], EmptyTarget())


class RoughTarget(EmptyTarget):
    """Rounds products far more coarsely than 16 bits do."""

    def kernels(self, context):
        plans = Kernels(self.name)

        @plans.plan(Dot)
        def rough(op, inputs, context):
            return HostKernel("rough", lambda a, b: ((a @ b) * a.dtype.type(1.01)).astype(a.dtype))

        return plans


@pytest.mark.slow
def test_narrow_node_tests_still_detect_errors_beyond_rounding():
    with pytest.raises(AssertionError, match="elements differ"):
        judge(node_tests()["attention_4d_causal_fp16"], RoughTarget())


@pytest.mark.slow
def test_everything(tmp_path):
    levels = kit(tmp_path)
    assert levels["ops"]["pass"] > 4500
    assert levels["onnx"]["pass"] > 1800
