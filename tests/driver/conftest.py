"""A driver without installed plugins: two targets and a frontend defined here, one command, and a runner."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
from click.testing import CliRunner

from mgx_core import Frontend, HostKernel, Kernels, No, Program, Reference, Shape, Target, dim, dtype, op
from mgx_core.driver import main
from mgx_core.errors import ParseError
from mgx_core.ir.graph import Graph
from mgx_core.plugins.manager import Lazy, Plugins


class Given(Lazy):
    """A record of a plugin whose object is already loaded."""

    def load(self):
        return OBJECTS[self.path]


class HostTarget(Target):
    """Runs each op with its reference implementation."""

    name = "host"

    def kernels(self, context):
        plans = Kernels(self.name)
        plans.plan()(lambda op, shapes, context, modules=(): Reference(op))
        return plans


class WrongTarget(HostTarget):
    """A target whose kernel for tanh is wrong and which has none for exp."""

    name = "wrong"

    def kernels(self, context):
        plans = Kernels(self.name)

        @plans.plan(type(op("tanh")))
        def off(op, shapes, context):
            return HostKernel("tanh plus a tenth", lambda x: (np.tanh(x) + np.float32(0.1)).astype(np.float32))

        @plans.plan()
        def definition(op, shapes, context, modules=()):
            if modules:
                return No("one op at a time")
            return No("no exponential here") if op.name == "exp" else Reference(op)

        return plans


class ChainFrontend(Frontend):
    """Reads ``.chain`` files: the extents of x on the first line (words are symbols), unary ops on the second."""

    def parse(self, path, dim_params=None, default_dim_value=0, map_input_dims=None, alias="y"):
        lines = Path(path).read_text().split("\n")
        if len(lines) < 2:
            raise ParseError(f"{path}: two lines are required,\ngot {len(lines)}")
        known = dict(dim_params or {})

        def extent(word):
            if word.isdigit():
                return int(word)
            return known.get(word) or default_dim_value or dim.symbol(word, 1, 64, [3])

        dims = (map_input_dims or {}).get("x") or [extent(w) for w in lines[0].split()]
        graph = Graph()
        x = graph.main.add_parameter("x", Shape.of(dtype.float32, dims))
        for n, word in enumerate(lines[1].split()):
            x = graph.main.add(op(word), x, sources=[f"node{n}"])
        graph.main.add_return([x])
        return Program(graph, [alias])

    def operators(self):
        return []


@click.command("hello")
def hello():
    """Prints hello."""
    click.echo("hello from a plugin")


OBJECTS = {"host": HostTarget, "wrong": WrongTarget, "chain": ChainFrontend, "hello": hello}


@pytest.fixture
def plugins(monkeypatch):
    """Installs a plugin manager that has only the plugins of this file."""
    made = Plugins(discover=False)
    plugin = SimpleNamespace(
        __name__="testing",
        targets=lambda: [Given("host", "host", rank=1), Given("wrong", "wrong")],
        frontends=lambda: [Given("chain", "chain")],
        commands=lambda: [Given("hello", "hello", "Says hello.")],
    )
    from mgx_core.plugins.manager import hookimpl

    for hook in ("targets", "frontends", "commands"):
        setattr(plugin, hook, hookimpl(getattr(plugin, hook)))
    made.register(plugin, "testing")
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [made])
    return made


@pytest.fixture
def drive(plugins):
    """Runs the driver and returns its output; code: the expected exit status."""

    def call(*args, code=0):
        result = CliRunner().invoke(main, [str(a) for a in args])
        assert result.exit_code == code, result.output
        if code and result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return call


@pytest.fixture
def drive_json(drive):
    def call(*args, code=0):
        text = drive(*args, "--json", code=code)
        return json.loads(text)

    return call


@pytest.fixture
def chain(tmp_path):
    """Writes a `.chain` model; returns its path."""

    def write(ops, dims="2 3", name="model"):
        path = tmp_path / f"{name}.chain"
        path.write_text(f"{dims}\n{ops}")
        return path

    return write
