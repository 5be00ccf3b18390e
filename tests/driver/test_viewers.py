"""``--report``, ``--trace``, ``--memory`` and ``--netron``."""

from __future__ import annotations

import json
from xml.etree import ElementTree


def test_report(drive, chain, tmp_path):
    text = drive("compile", chain("tanh exp", "n 3"), "--target", "wrong", "--report", tmp_path / "out.html")
    assert "report written to" in text
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<title>model.chain \u2013 mgx report</title>" in page
    assert "no exponential here" in page
    assert "node1" in page


def test_report_beside_a_program_file(drive, chain, tmp_path):
    drive("compile", chain("tanh"), "-o", tmp_path / "m.mxr", "--report", tmp_path / "out.html")
    assert (tmp_path / "m.mxr").stat().st_size > 0
    assert (tmp_path / "out.html").stat().st_size > 0


def test_trace(drive, drive_json, chain, tmp_path):
    drive("compile", chain("tanh exp"), "--trace", tmp_path / "c.json")
    names = [e["name"] for e in json.loads((tmp_path / "c.json").read_text())["traceEvents"]]
    assert {"parse", "normalize", "lower", "plan-memory"} <= set(names)
    drive_json("run", chain("tanh exp"), "--trace", tmp_path / "r.json")
    launches = [e for e in json.loads((tmp_path / "r.json").read_text())["traceEvents"] if e.get("cat") == "launch"]
    assert [s for e in launches for s in e["args"]["sources"]] == ["node0", "node1"]
    drive("perf", chain("tanh exp"), "-n", "3", "--trace", tmp_path / "p.json")
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert sum(1 for e in events if e.get("cat") == "run") == 3


def test_memory(drive, drive_json, chain, tmp_path):
    model = chain("tanh exp exp", "n 16")
    text = drive("read", model, "--memory")
    assert text.startswith("arena peak   384 bytes")  # n defaults to 3: 2 values of 3 x 16 floats are alive at once
    assert drive("read", "--memory", model) == text
    document = drive_json("read", model, "--memory")
    assert (document["peak"], document["lower_bound"], len(document["buffers"])) == (384, 384, 2)
    drive("read", model, "--memory", tmp_path / "m.svg")
    drive("read", model, "--memory-svg", tmp_path / "n.svg")
    assert (tmp_path / "m.svg").read_text() == (tmp_path / "n.svg").read_text()
    ElementTree.parse(tmp_path / "m.svg")
    drive("read", model, "--memory", tmp_path / "m.html")
    assert (tmp_path / "m.html").read_text().startswith("<!DOCTYPE html>")


def test_two_memory_pictures_are_refused(drive, chain, tmp_path):
    args = ("read", chain("tanh"), "--memory", tmp_path / "a.svg", "--memory-svg", tmp_path / "b.svg")
    assert "exclude each other" in drive(*args, code=2)


def test_netron_needs_a_frontend_that_exports(drive, chain, tmp_path, plugins):
    assert "there is no frontend 'onnx'" in drive("read", chain("tanh"), "--netron", tmp_path / "n.onnx", code=2)
