"""The kit finds every planted fault, and none in a correct target.

The suite's functions are called directly on the planted targets; pytest sessions are started only to test options and exit
codes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgx_conformance.claims import false_claims
from mgx_conformance.foreign import FOREIGN
from mgx_conformance.networks import perceptron
from mgx_conformance.programs import layers
from mgx_conformance.suite import test_contract as contract
from mgx_conformance.suite import test_graphs as graphs
from mgx_conformance.suite import test_models as models
from mgx_conformance.trial import attempt, selected
from mgx_core import PluginError, Program, Shape, op

HERE = Path(__file__).parent
LOADED = importlib.util.spec_from_file_location("planted", HERE / "planted.py")
planted = importlib.util.module_from_spec(LOADED)
LOADED.loader.exec_module(planted)

OPS = {f"{case.id}/{layout}": (case, layout) for case, layout in selected()}


def tried(target, case):
    """Returns the failure of a target in a case of the level ops; empty if it passes."""
    try:
        attempt(*OPS[case], target())
    except (AssertionError, NotImplementedError, PluginError) as error:
        return str(error) or type(error).__name__
    return ""


def held(target, promise, *arguments):
    """Returns a target's violation of one rule of the level contract; empty if there is none."""
    program = layers()
    program.compile(target())
    try:
        getattr(contract, f"test_{promise}")(program, *arguments)
    except AssertionError as error:
        return str(error) or "broken"
    return ""


def test_right_target_passes():
    for layout in ("contiguous", "strided", "transposed", "sliced", "broadcast", "symbolic"):
        assert tried(planted.Right, f"softmax-last-float32/{layout}") == ""
    for promise in (
        "right",
        "repeatable",
        "threads",
        "inputs_stay",
        "inputs_in_any_layout",
        "outputs_survive",
        "some_outputs",
        "placement_honest",
    ):
        assert held(planted.Right, promise) == ""


def test_wrong_for_large_values():
    assert "elements differ" in tried(planted.Overflows, "softmax-overflow-float32/contiguous")
    assert tried(planted.Overflows, "softmax-last-float32/contiguous") == ""


def test_forgets_the_tail():
    assert tried(planted.DropsTail, "dot-matrix-float32/contiguous")
    assert tried(planted.DropsTail, "dot-odd-float32/contiguous")
    assert tried(planted.DropsTail, "dot-large-float32/contiguous") == ""  # a multiple of the block size


def test_too_little_precision():
    assert tried(planted.HalfPrecision, "dot-matrix-float32/contiguous")
    assert tried(planted.HalfPrecision, "dot-deep-float32/contiguous")


@pytest.mark.parametrize("target", [planted.WritesInput, planted.WritesBeyond])
def test_writes_outside(target):
    # only if the kernel receives the kit's own buffer: otherwise the fault would corrupt the testing process
    assert "overwritten" in tried(target, "softmax-last-float32/contiguous")


def test_unstable_result():
    assert "other bits" in held(planted.Unstable, "repeatable")
    assert tried(planted.Unstable, "softmax-last-float32/contiguous") == ""


def test_one_buffer_for_all_runs():
    assert held(planted.OneBuffer, "outputs_survive")


def test_other_outputs_than_the_requested_ones():
    assert "other bits" in held(planted.FirstOutputs, "some_outputs")


def test_leak(monkeypatch):
    assert "bytes" in held(planted.Leaks, "no_leak", lambda name, value: None)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (planted.ClaimsReference, "its kernel is the reference"),
        (planted.ClaimsQuietly, "the definition of softmax ran"),
    ],
)
def test_false_claim(target, words):
    assert words in tried(target, "softmax-last-float32/contiguous")
    if target is planted.ClaimsReference:
        assert words in held(target, "placement_honest")


def test_false_claim_next_to_an_equal_op_on_the_host():
    program = Program()
    main = program.get_main_module()
    x, y = (main.add_parameter(name, Shape("float32", (n, n))) for name, n in (("x", 4), ("y", 8)))
    main.add_return([main.add(op("dot"), v, v) for v in (x, y)])
    program.compile(planted.ClaimsSmall())
    (instance,) = program.executable.instances()
    assert sorted(p.place for p in instance.placements if p.op == "dot") == ["host", "target"]
    assert "its kernel is the reference" in false_claims(program.executable, set())


@pytest.mark.parametrize("op", FOREIGN, ids=lambda op: op.name.rpartition(".")[2])
def test_kernels_of_plugins_that_are_not_run(op, monkeypatch):
    contract.test_foreign_kernel_runs(planted.Right(), monkeypatch, op)
    with pytest.raises(AssertionError, match="another kernel ran"):
        contract.test_foreign_kernel_runs(planted.IgnoresPlugins(), monkeypatch, op)


def test_claim_that_is_not_kept():
    assert "no such axis" in tried(planted.Raises, "softmax-last-float32/contiguous")


def test_wrong_type():
    said = tried(planted.WrongType, "softmax-last-float32/contiguous")
    assert (
        "kernel 'planted softmax' of softmax[axis=2] (in planted) must return float32[2, 3, 9], got float64[2, 3, 9]"
        in said
    )


@pytest.mark.parametrize(("target", "wrong"), [(planted.DropsTail, True), (planted.Right, False)])
def test_fault_in_random_graphs(target, wrong, request):
    class Asked:
        config = type("Config", (), {"getoption": staticmethod(lambda name: 25)})

    try:
        graphs.test_random("dot-float32", target(), Asked)
    except AssertionError:
        assert wrong
    else:
        assert not wrong


def test_fault_in_a_model_file(tmp_path):
    (tmp_path / "dense.onnx").write_bytes(perceptron())
    with pytest.raises(AssertionError, match="result 0"):
        models.test_file(tmp_path / "dense.onnx", planted.DropsTail(), lambda name, value: None)


# sessions: options, exit codes, the file of expected failures ---------------------------------------------------------------


class Outcome:
    """Outcome of a run of the suite: its exit code, its output, each test's outcome and reason."""

    def __init__(self, folder, words):
        card = folder / "card.json"
        path = os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))
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
    assert "'opps' is not a level" in outcome.text


def test_html_scorecard(kit, tmp_path):
    kit("Overflows", "--mgx-scorecard", str(tmp_path / "card.html"), select=SELECT)
    page = (tmp_path / "card.html").read_text()
    assert "<title>mgx conformance: planted:Overflows</title>" in page
    assert "ops/softmax-overflow-float32/contiguous" in page
    assert 'class="fail">1<' in page
    assert "http" not in page
