"""The kit finds every planted fault, and no fault where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


class Outcome:
    """How a run of the suite ended: its exit code, what it printed, each test's outcome and reason."""

    def __init__(self, folder, words):
        card = folder / "card.json"
        path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--pyargs",
            "mgx_conformance.suite",
            *words,
        ]
        done = subprocess.run(
            [*command, "--mgx-scorecard", str(card)],
            cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.ret, self.text = done.returncode, done.stdout + done.stderr
        tests = json.loads(card.read_text())["tests"] if card.exists() else {}
        self.tests = {t: (r["outcome"], r.get("reason", "")) for t, r in tests.items()}


@pytest.fixture
def kit(tmp_path):
    """Runs the suite on a planted target."""

    def run(target, *arguments, levels="ops", select=None):
        words = ["--mgx-target", f"planted:{target}", "--mgx-level", levels, *arguments]
        outcome = Outcome(tmp_path, words + (["-k", select] if select else []))
        return outcome, outcome.tests

    return run


def failing(tests):
    return {t: why for t, (outcome, why) in tests.items() if outcome == "fail"}


def test_right_target_passes(kit):
    result, tests = kit("Right", levels="ops,contract", select="softmax-last-float32 or (test_contract and not leak)")
    assert result.ret == 0
    assert not failing(tests)
    assert tests["ops/softmax-last-float32/transposed"][0] == "pass"
    assert tests["contract/threads"][0] == "pass"


def test_wrong_for_large_values(kit):
    result, tests = kit("Overflows", select="test_ops and case and (softmax-overflow or softmax-last)")
    assert result.ret == 1
    assert set(failing(tests)) == {"ops/softmax-overflow-float32/contiguous"}
    assert "elements differ" in failing(tests)["ops/softmax-overflow-float32/contiguous"]


def test_forgets_the_tail(kit):
    _, tests = kit("DropsTail", select="test_ops and dot-")
    assert {"ops/dot-matrix-float32/contiguous", "ops/dot-odd-float32/contiguous"} <= set(failing(tests))
    assert tests["ops/dot-large-float32/contiguous"][0] == "pass"  # a multiple of the block


def test_too_little_precision(kit):
    _, tests = kit("HalfPrecision", select="test_ops and dot-")
    assert {"ops/dot-matrix-float32/contiguous", "ops/dot-deep-float32/contiguous"} <= set(failing(tests))


@pytest.mark.parametrize("target", ["WritesInput", "WritesBeyond"])
def test_writes_outside(kit, target):
    # only where the kernel gets the kit's own buffer: elsewhere the fault would hurt the process that looks for it
    _, tests = kit(target, select="test_ops and softmax-last-float32/contiguous")
    assert "overwritten" in failing(tests)["ops/softmax-last-float32/contiguous"]


def test_unstable_result(kit):
    _, tests = kit("Unstable", levels="ops,contract", select="softmax-last-float32/contiguous or repeatable")
    assert "other bits" in failing(tests)["contract/repeatable"]
    assert tests["ops/softmax-last-float32/contiguous"][0] == "pass"


def test_one_buffer_for_all_runs(kit):
    _, tests = kit("OneBuffer", levels="contract", select="outputs")
    assert "contract/outputs_survive" in failing(tests)


def test_leak(kit):
    _, tests = kit("Leaks", levels="contract", select="leak")
    assert "bytes" in failing(tests)["contract/no_leak"]


@pytest.mark.parametrize(
    ("target", "words"),
    [("ClaimsReference", "its kernel is the reference"), ("ClaimsQuietly", "the definition of softmax ran")],
)
def test_false_claim(kit, target, words):
    _, tests = kit(target, levels="ops,contract", select="softmax-last-float32 or honest")
    assert words in failing(tests)["ops/softmax-last-float32/contiguous"]
    if target == "ClaimsReference":
        assert words in failing(tests)["contract/placement_honest"]


def test_claim_that_is_not_kept(kit):
    _, tests = kit("Raises", select="test_ops and softmax-last-float32")
    assert "no such axis" in failing(tests)["ops/softmax-last-float32/contiguous"]


def test_wrong_type(kit):
    _, tests = kit("WrongType", select="test_ops and softmax-last-float32")
    assert "float32[2, 3, 9] required, got float64[2, 3, 9]" in failing(tests)["ops/softmax-last-float32/contiguous"]


def test_fault_in_random_graphs(kit):
    result, tests = kit("DropsTail", levels="graphs", select="dot-float32")
    assert result.ret == 1
    assert set(failing(tests)) == {"graphs/random/dot-float32"}


def test_fault_in_a_model_file(kit, tmp_path):
    from mgx_conformance.networks import perceptron

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "dense.onnx").write_bytes(perceptron())
    words = ["--mgx-models", str(tmp_path / "models")]
    _, tests = kit("DropsTail", *words, levels="models", select="dense")
    assert set(failing(tests)) == {"models/file/dense"}


# the file of expected failures -----------------------------------------------------------------------------------------------


def expecting(folder, *entries):
    path = folder / "expected.toml"
    path.write_text(
        "".join(f'[[expected]]\ntest = "{t}"\n' + (f'reason = "{r}"\n' if r is not None else "") for t, r in entries)
    )
    return ["--mgx-expect", str(path)]


SELECT = "test_ops and softmax-overflow-float32"


def test_expected_failure_passes_the_run(kit, tmp_path):
    known = expecting(tmp_path, ("ops/softmax-overflow-float32/*", "the maximum is not taken off"))
    result, tests = kit("Overflows", *known, select=SELECT)
    assert result.ret == 0
    assert tests["ops/softmax-overflow-float32/contiguous"] == ("expected", "the maximum is not taken off")


def test_stale_line_fails_the_run(kit, tmp_path):
    known = expecting(tmp_path, ("ops/softmax-overflow-float32/contiguous", "the maximum is not taken off"))
    result, tests = kit("Right", *known, select=SELECT)
    assert result.ret == 1
    assert "stale line" in failing(tests)["ops/softmax-overflow-float32/contiguous"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("ops/softmax-overflow-float32/contiguous", None), "has no reason"),
        (("ops/softmax-overflow-float32/contiguous", ""), "has no reason"),
        (("ops/softmaxx-overflow-float32/contiguous", "a slip of the pen"), "no test is called"),
    ],
)
def test_unusable_line_is_refused(kit, tmp_path, entry, words):
    result, _ = kit("Right", *expecting(tmp_path, entry), select=SELECT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.text


def test_target_is_required(tmp_path):
    outcome = Outcome(tmp_path, [])
    assert outcome.ret == pytest.ExitCode.USAGE_ERROR
    assert "--mgx-target" in outcome.text


def test_unknown_level(kit):
    outcome, _ = kit("Right", levels="opps")
    assert outcome.ret == pytest.ExitCode.USAGE_ERROR
    assert "'opps' is no level" in outcome.text


def test_html_scorecard(kit, tmp_path):
    kit("Overflows", "--mgx-scorecard", str(tmp_path / "card.html"), select=SELECT)
    page = (tmp_path / "card.html").read_text()
    assert "<title>mgx conformance: planted:Overflows</title>" in page
    assert "ops/softmax-overflow-float32/contiguous" in page
    assert 'class="fail">1<' in page
    assert "http" not in page
