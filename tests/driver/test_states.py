"""Models with states: commands start from the initial states, and other calls of the program accept states like `run`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mgx_core import Frontend, Program, Shape, get_target, op
from mgx_core.ir.graph import Graph
from mgx_core.plugins.manager import hookimpl

from .conftest import OBJECTS, Given


def counting() -> Program:
    """Returns tanh of 2 plus the sum of all inputs so far."""
    graph = Graph()
    shape = Shape("float32", [3])
    x, total = graph.main.add_parameter("x", shape), graph.main.add_parameter("state.total", shape)
    after = graph.main.add(op("add"), x, total)
    graph.main.add_return([graph.main.add(op("tanh"), after), after])
    return Program(graph, states={"state.total": np.full(3, 2, np.float32)})


class CountingFrontend(Frontend):
    """Parses any file as `counting`."""

    def parse(self, path):
        return counting()


@pytest.fixture
def model(plugins, monkeypatch, tmp_path):
    """Writes a file that is parsed as `counting`."""
    monkeypatch.setitem(OBJECTS, "count", CountingFrontend)
    plugin = SimpleNamespace(__name__="counting", frontends=hookimpl(lambda: [Given("count", "count")]))
    plugins.register(plugin, "counting")
    path = tmp_path / "model.count"
    path.write_text("")
    return path


def test_run_begins_with_the_first_states(drive_json, model):
    outputs = drive_json("run", model, "--fill1", "x")["outputs"]
    assert list(outputs) == ["output_0"]
    np.testing.assert_allclose(outputs["output_0"]["values"], np.tanh(np.full(3, 3, np.float32)), rtol=1e-6)


def test_verify_compares_results_and_states(drive, drive_json, model):
    found = drive_json("verify", model)["outputs"]
    assert [(d["name"], d["ok"]) for d in found] == [("output_0", True), ("state.total", True)]
    found = drive_json("verify", model, "--target", "wrong", code=1)["outputs"]
    assert [d["ok"] for d in found] == [False, True]
    assert "tanh" in drive("verify", model, "--target", "wrong", "--bisect", code=1)


def test_perf_accepts_states(drive, model):
    assert "total" in drive("perf", model, "-n", "1")


def test_other_calls_than_run_accept_states(plugins):
    program = counting()
    program.compile(get_target("host"))
    x = {"x": np.ones(3, np.float32)}
    assert program.get_output_names() == ["output_0"]
    assert program.dry_run(x) == [Shape("float32", [3])]
    seen = []
    for total in (3, 4):  # a traced run counts as a run: it passes its states to the next one
        (y,) = program.run_trace(x, lambda ins, value: seen.append(value))
        np.testing.assert_allclose(y, np.tanh(np.full(3, total, np.float32)), rtol=1e-6)
    assert seen
    np.testing.assert_allclose(program.run(x)[0], np.tanh(np.full(3, 5, np.float32)), rtol=1e-6)
