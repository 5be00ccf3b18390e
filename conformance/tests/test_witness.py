"""Every reference implementation is compared with its witnesses: disagreements are explained, explanations are current, and
every op has a witness.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from mgx_conformance.known import OPS
from mgx_conformance.witness.disagreements import Disagreements
from mgx_conformance.witness.engines import WITNESSES, version
from mgx_conformance.witness.judge import unlike, verdicts
from mgx_conformance.witness.questions import questions
from mgx_conformance.witness.unwitnessed import UNWITNESSED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers():
    """Returns each question's verdicts and ops."""
    return {name: verdicts(question) for name, question in questions().items()}


@pytest.fixture(scope="module")
def listed():
    return Disagreements()


@pytest.mark.parametrize("witness", WITNESSES)
def test_no_unexplained_disagreement(answers, listed, witness):
    if not version(witness):
        pytest.skip(f"{witness} is not installed")
    unexplained = {
        name: v.why
        for name, (found, _) in answers.items()
        for v in found
        if v.witness == witness and v.word == "differs" and not listed.find(name, witness)
    }
    assert not unexplained


@pytest.mark.parametrize("witness", WITNESSES)
def test_no_stale_explanation(answers, listed, witness):
    if version(witness) != listed.versions[witness]:
        pytest.skip(f"the explanations are for {witness} {listed.versions[witness]}")
    needed = {
        listed.find(name, witness) for name, (found, _) in answers.items() for v in found
        if v.witness == witness and v.word == "differs"
    }  # fmt: skip
    stale = [line["question"] for line in listed.lines if line["witness"] == witness and line["reading"] not in needed]
    assert not stale


def test_witnesses_mostly_speak(answers):
    """A witness that declines nearly everything would be useless."""
    words = Counter((v.witness, v.word) for found, _ in answers.values() for v in found)
    assert words["onnx.reference", "agrees"] > 1000
    assert words["onnx.reference", "declines"] < 100
    if version("onnxruntime"):
        assert words["onnxruntime", "agrees"] > 800


def test_every_op_has_a_witness_or_a_reason(answers):
    by_op = defaultdict(set)
    for found, ops in answers.values():
        for v in found:
            if v.word == "agrees":
                for op in ops:
                    by_op[op].add(v.witness)
    names = {op.name for op in OPS}
    if not version("onnxruntime"):
        pytest.skip("some ops have onnxruntime as their only witness")
    assert sorted(names - set(by_op)) == sorted(UNWITNESSED)
    assert sum(len(by_op[n]) == 2 for n in names) > 190


def test_a_wrong_definition_is_seen(monkeypatch):
    """A witness that never disagrees would be useless."""
    softmax = OPS.get("softmax")
    right = softmax.compute
    monkeypatch.setattr(softmax, "compute", lambda self, x: right(self, x) * x.dtype.type(1.01))
    found, _ = verdicts(questions()["softmax_axis_1"])
    assert {v.word for v in found} == {"differs"}


def test_unlike_needs_types_to_agree():
    import numpy as np

    one = np.ones(3, np.float32)
    assert not unlike([one], [one + 1e-5], [None])
    assert unlike([one], [one.astype(np.float64)], [None])
    assert unlike([one], [one, one], [None])
