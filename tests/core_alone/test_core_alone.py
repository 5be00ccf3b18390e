"""The core without other packages: programs can be built, edited and stored; anything that needs a package names it.

Runs in an environment without plugins (`make core-alone`); skipped elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from types import ModuleType

import numpy as np
import pytest

import mgx_core as mgx

pytestmark = pytest.mark.skipif(bool(entry_points(group="mgx")), reason="needs an environment without plugins")


def small_program() -> mgx.Program:
    """relu(x + (2 + 1)) for x: float32 [n, 3]."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float", [mgx.dim.symbol("n", 1, 8), 3]))
    two = main.add_literal(np.float32([2, 2, 2]))
    one = main.add_literal(np.float32([1, 1, 1]))
    three = main.add_instruction(mgx.op("add"), [two, one])
    wide = main.add_instruction(mgx.op("multibroadcast"), [three, x])
    main.add_return([main.add_instruction(mgx.op("relu"), [main.add_instruction(mgx.op("add"), [x, wide])])])
    return program


def test_importing_is_light():
    code = (
        "import sys, mgx_core; heavy = {'onnx', 'torch', 'scipy', 'pluggy', 'rich', 'click', 'msgpack'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_are_built_by_hand():
    program = small_program()
    assert program.get_parameter_names() == ["x"]
    (shape,) = program.get_output_shapes()
    assert str(shape) == "float32[n, 3]"
    assert not program.is_compiled()


def test_programs_are_optimized():
    before = small_program()
    after = mgx.optimize(before)
    assert len(after.get_main_module()) < len(before.get_main_module())
    assert str(after.get_output_shapes()) == str(before.get_output_shapes())


def test_programs_are_stored():
    program = small_program()
    assert mgx.load_buffer(mgx.save_buffer(program)) == program
    assert mgx.parse_program(program.text(full=True)) == program


def test_running_needs_compiling():
    with pytest.raises(mgx.ParameterError, match="is not compiled"):
        small_program().run({"x": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("ask", "package"),
    [
        (lambda: mgx.get_target("ref"), "mgx-ref"),
        (mgx.best_target, "mgx-cpu-dnnl or mgx-gpu-hip"),
        (lambda: mgx.parse_onnx("model.onnx"), "mgx-onnx"),
        (lambda: mgx.parse_onnx_buffer(b""), "mgx-onnx"),
        (mgx.get_onnx_operators, "mgx-onnx"),
    ],
)
def test_errors_name_the_package_to_install(ask, package):
    with pytest.raises(mgx.UnsupportedError, match=f"installed: none.*pip install {package}"):
        ask()


def test_a_target_of_ones_own(monkeypatch):
    plans = mgx.Kernels("mine")

    @plans.plan()
    def anything(op, inputs, context, modules=()):
        return mgx.Reference(op)

    class Mine(mgx.Target):
        name = "mine"

        def kernels(self, context):
            return plans

    from mgx_core.plugins import manager as plugins

    monkeypatch.setattr(plugins, "_manager", [plugins.Plugins()])
    plugin = ModuleType("mine")
    plugin.Mine = Mine
    plugin.targets = mgx.hookimpl(lambda: [mgx.Lazy("mine", "mine:Mine")])
    monkeypatch.setitem(sys.modules, "mine", plugin)
    mgx.plugin_manager().register(plugin)
    assert mgx.best_target() == "mine"

    program = small_program()
    program.compile(mgx.get_target("mine"))
    x = np.float32([[-5, 0, 1], [2, -3, -4]])
    (got,) = program.run({"x": x})
    np.testing.assert_array_equal(np.asarray(got), np.maximum(x + 3, 0))
