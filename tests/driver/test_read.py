"""``read``: output formats of a program."""

from __future__ import annotations

import json

import pytest


def test_brief(drive, drive_json, chain):
    document = drive_json("read", chain("tanh exp exp"), "--brief")
    assert document["instructions"] == 3
    assert document["operations"] == {"exp": 2, "tanh": 1}
    assert "3 instructions in 1 module" in drive("read", chain("tanh exp exp"), "--brief")


def test_graphviz(drive, chain, tmp_path):
    text = drive("read", chain("tanh exp"), "-g")
    assert text.startswith("digraph")
    assert text.count("->") == 3
    drive("read", chain("tanh exp"), "-o", tmp_path / "m.dot")
    assert (tmp_path / "m.dot").read_text() == text


def test_text(drive, chain):
    text = drive("read", chain("tanh exp"))
    assert "tanh" in text
    assert "exp" in text
    assert text == drive("read", chain("tanh exp"), "--text")


def test_json_is_the_program_file(drive, chain, tmp_path):
    text = drive("read", chain("tanh"), "--json")
    json.loads(text)
    (tmp_path / "m.json").write_text(text)
    assert "tanh" in drive("read", tmp_path / "m.json", "-g")


def test_two_forms_are_refused(drive, chain):
    assert "only one output format" in drive("read", chain("tanh"), "--text", "-g", code=2)


def test_why_names_the_rules(drive, chain):
    said = drive("read", chain("tanh"), "--why", "no-such-rule", code=2)
    assert "there is no rule 'no-such-rule'" in said
    assert "mgx-driver rules lists them all" in said
    assert len(said) < 300


@pytest.mark.parametrize("words", [("--rule", "gelu=off"), ("--disable-pass", "simplify")])
def test_optimizer_options_are_rejected_without_optimizing(drive, chain, words):
    assert "add -O" in drive("read", chain("tanh"), *words, code=2)
    drive("read", chain("tanh"), "-O", *words)


def test_rules_are_switched_when_reading(drive, chain):
    path = chain("neg neg tanh")
    assert "neg" not in drive("read", path, "-O")
    assert "neg" in drive("read", path, "-O", "--rule", "cancel-negations=off")
    assert "neg" in drive("read", path, "-O", "--disable-pass", "simplify")


def test_refusals_are_those_under_the_options(drive, chain):
    assert "no rule 'x'" in drive("read", chain("tanh"), "--why", "x", "--disable-fast-math", code=2)
