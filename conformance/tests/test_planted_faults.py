"""The kit finds every planted fault, and no fault where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def kit(pytester, monkeypatch):
    """Runs the suite on a planted target; returns each test's outcome and reason."""
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    monkeypatch.setenv("PYTHONPATH", path)

    def run(target, *arguments, levels="ops", select=None):
        card = pytester.path / "card.json"
        words = ["--pyargs", "mgx_conformance.suite", "-p", "no:cacheprovider", "--mgx-target", f"planted:{target}"]
        words += ["--mgx-level", levels, "--mgx-scorecard", str(card), *arguments]
        if select:
            words += ["-k", select]
        result = pytester.runpytest_subprocess(*words)
        tests = json.loads(card.read_text())["tests"] if card.exists() else {}
        return result, {t: (r["outcome"], r.get("reason", "")) for t, r in tests.items()}

    return run


def failing(tests):
    return {t: why for t, (outcome, why) in tests.items() if outcome == "fail"}


def test_right_target_passes(kit):
    result, tests = kit("Right", levels="ops,contract", select="softmax or test_contract")
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
    _, tests = kit("Unstable", levels="ops,contract", select="(test_ops and softmax-last-float32) or test_contract")
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


# the file of expected failures -----------------------------------------------------------------------------------------------


def expecting(pytester, *entries):
    path = pytester.path / "expected.toml"
    path.write_text(
        "".join(f'[[expected]]\ntest = "{t}"\n' + (f'reason = "{r}"\n' if r is not None else "") for t, r in entries)
    )
    return ["--mgx-expect", str(path)]


SELECT = "test_ops and softmax-overflow-float32"


def test_expected_failure_passes_the_run(kit, pytester):
    known = expecting(pytester, ("ops/softmax-overflow-float32/*", "the maximum is not taken off"))
    result, tests = kit("Overflows", *known, select=SELECT)
    assert result.ret == 0
    assert tests["ops/softmax-overflow-float32/contiguous"] == ("expected", "the maximum is not taken off")


def test_stale_line_fails_the_run(kit, pytester):
    known = expecting(pytester, ("ops/softmax-overflow-float32/contiguous", "the maximum is not taken off"))
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
def test_unusable_line_is_refused(kit, pytester, entry, words):
    result, _ = kit("Right", *expecting(pytester, entry), select=SELECT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in "\n".join((*result.errlines, *result.outlines))


def test_target_is_required(pytester):
    result = pytester.runpytest_subprocess("--pyargs", "mgx_conformance.suite", "-p", "no:cacheprovider", "-k", "cost")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--mgx-target*"])


def test_unknown_level(kit):
    result, _ = kit("Right", levels="opps")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'opps' is no level*"])


def test_html_scorecard(kit, pytester):
    kit("Overflows", "--mgx-scorecard", str(pytester.path / "card.html"), select=SELECT)
    page = (pytester.path / "card.html").read_text()
    assert "<title>mgx conformance: planted:Overflows</title>" in page
    assert "ops/softmax-overflow-float32/contiguous" in page
    assert 'class="fail">1<' in page
    assert "http" not in page
