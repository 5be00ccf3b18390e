"""Emission on a small numpy target: whose steps are in a schedule, their placements, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mgx_core import (
    HostKernel,
    Kernel,
    Kernels,
    Module,
    No,
    ParameterError,
    PluginError,
    Program,
    Runner,
    Shape,
    ShapeError,
    Target,
    UnsupportedError,
    dim,
    op,
)
from mgx_core.errors import Refused
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.norm import RmsNorm
from mgx_core.ops.pointwise import Add, Exp, Mul
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.trigonometry import Sin, Tanh
from mgx_core.targets.emission import Emitter
from mgx_core.targets.kernel_emission import Results, emit_view
from mgx_core.targets.schedule import Schedule, Step
from mgx_core.targets.values import Buffer, Value

Arrays = dict[Buffer, Any]


@dataclass(eq=False, slots=True)
class Function(Step):
    """A numpy function on values."""

    function: Callable[..., Any] = field(kw_only=True)
    given: Sequence[Value] = field(kw_only=True)
    outputs: Sequence[Value] = field(kw_only=True)


class NumpyEmitter(Emitter):
    alignment = 32

    def call_numpy(self, name: str, function: Callable[..., Any], given: Sequence[Value], lens: Sequence[int]) -> Value:
        out = self.allocate(given[0].dtype, lens)
        self.repeatable(lambda e, values: e.add_function(name, function, values[:-1], values[-1:]), [*given, out])
        return out

    def add_function(self, name: str, function: Callable[..., Any], given: Any, outputs: Any) -> None:
        reads, writes = [v.buffer for v in given], [v.buffer for v in outputs]
        self.add(Function(name, reads, writes, function=function, given=given, outputs=outputs))

    def copy_into(self, source: Value, target: Value) -> None:
        self.repeatable(lambda e, v: e.add_function("copy", lambda x: x, v[:1], v[1:]), [source, target])

    def host_step(self, name: str, function: Any, given: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.add_function(name, lambda *arrays: function(arrays)[0], given, outputs)


class NumpyRunner(Runner):
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.allocated = 0
        self.called: list[str] = []

    def run(self, args: Sequence[Any]) -> list[Any]:
        plan = self.schedule
        arena = np.empty(plan.peak, np.uint8)
        self.allocated, self.called = arena.nbytes, []
        memory: Arrays = {b: arena[b.offset : b.offset + b.bytes] for b in plan.buffers}
        memory |= {b: b.array.reshape(-1).view(np.uint8) for b in plan.literals if b.array is not None}
        memory |= {v.buffer: np.empty(v.buffer.bytes, np.uint8) for v in plan.outputs}
        for value in plan.inputs:
            if value is not None:
                memory[value.buffer] = np.ascontiguousarray(args[value.buffer.index]).reshape(-1).view(np.uint8)

        def seen(v: Value) -> Any:
            flat = memory[v.buffer]
            flat = flat[: flat.nbytes // v.dtype.size * v.dtype.size].view(v.dtype.numpy)[v.offset :]
            return np.lib.stride_tricks.as_strided(flat, v.lens, [s * v.dtype.size for s in v.strides])

        for step in plan.steps:
            assert isinstance(step, Function)
            seen(step.outputs[0])[...] = step.function(*map(seen, step.given))
            self.called.append(step.kernel)
        return [seen(v) for v in plan.outputs]


class Numpy(Kernel):
    def __init__(self, name: str, emit: Callable[..., Results | No]) -> None:
        self.name = name
        self.emit = emit


class NumpyTarget(Target):
    name = "numpy"

    def __init__(self) -> None:
        self.table = Kernels("numpy")
        self.emitted: list[str] = []
        self.offer("dot", Dot, lambda a, b: a @ b, lambda a, b: [*a[:-1], b[-1]])
        for function, cls in ((np.add, Add), (np.multiply, Mul), (np.tanh, Tanh), (np.sin, Sin)):
            self.offer(function.__name__, cls, function, lambda *lens: lens[0])
        self.table.plan(Transpose)(lambda o, shapes, context: Numpy("view transpose", emit_view))

    def offer(self, name: str, cls: Any, function: Any, lens: Callable[..., Sequence[int]], no: str = "") -> None:
        def emit(e: NumpyEmitter, o: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results | No:
            self.emitted.append(name)
            if no.startswith("raise "):
                raise Refused(no.removeprefix("raise "))
            if no:
                e.call_numpy("never", function, args, lens(*(a.lens for a in args)))
                return No(no)
            return e.call_numpy(name, function, args, lens(*(a.lens for a in args)))

        def plan(o: Any, shapes: Any, context: Any, modules: Any = ()) -> Kernel:
            return Numpy(f"numpy {name}", emit)

        plan.__name__ = name
        self.table.plan(cls)(plan)

    def kernels(self, context: Any) -> Kernels:
        return self.table

    def emitter(self, kernels: Kernels, context: Any, options: Any) -> NumpyEmitter:
        return NumpyEmitter(kernels, context, options.memory_reuse)

    def assemble(self, schedule: Schedule, emitter: Any, context: Any, options: Any) -> NumpyRunner:
        return NumpyRunner(schedule)


def ran(target: NumpyTarget, build: Callable[..., Any], **options: Any) -> tuple[Any, NumpyRunner, Any]:
    """Runs the module that `build` makes of a 4 x 4 matrix x and weights w; returns the first result after comparing it with
    the reference.
    """
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4, 4]))
    w = main.add_literal(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4))
    main.add_return([build(main, x, w)])
    given = {"x": np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)}
    exact = Program()
    exact.get_main_module().add_return(
        exact.get_main_module().inline(main, [exact.get_main_module().add_parameter("x", Shape("float32", [4, 4]))])
    )
    exact.compile(Target_of_definitions())
    program.compile(target, validate=True, **options)
    (got,), (wanted,) = program.run(given), exact.run(given)
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5, atol=1e-6)
    assert program.executable is not None
    instance = program.executable.instances()[0]
    assert isinstance(instance.runner, NumpyRunner)
    return np.asarray(got), instance.runner, instance


class Target_of_definitions(Target):
    name = "definitions"


def network(m: Module, x: Any, w: Any) -> Any:
    for _ in range(4):
        x = m.add(op("tanh"), m.add(op("dot"), x, m.add(op("transpose", permutation=[1, 0]), w)))
    return x


def test_the_arena_is_the_plan() -> None:
    _, runner, instance = ran(NumpyTarget(), network, optimize=False)
    assert instance.plan is runner.schedule
    assert runner.allocated == instance.plan.peak == 2 * 64  # operands and results
    assert instance.plan.lower_bound == 2 * 64
    _, runner, instance = ran(NumpyTarget(), network, optimize=False, memory_reuse=False)
    assert runner.allocated == instance.plan.peak == 7 * 64  # the last result is outside the arena


def test_layers_are_emitted_once() -> None:
    target = NumpyTarget()
    _, runner, _ = ran(target, network, optimize=False)
    assert len(runner.called) == 8
    # the first product reads a parameter, the others the arena
    assert target.emitted == ["dot", "tanh", "dot"]


def test_the_kernel_of_the_launch_runs_first() -> None:
    target = NumpyTarget()
    other = NumpyTarget()
    other.table = Kernels("numpy")
    other.offer("foreign tanh", Tanh, np.tanh, lambda lens: lens)
    target.table = other.table + target.table
    _, runner, instance = ran(target, lambda m, x, w: m.add(op("tanh"), x), optimize=False)
    assert runner.called == ["numpy foreign tanh"]
    assert [(p.kernel, p.place, p.refused) for p in instance.placements] == [("numpy foreign tanh", "target", ())]


@pytest.mark.parametrize("no", ["not today", "raise not today"])
def test_the_next_plan_follows_one_that_declines(no: str) -> None:
    target = NumpyTarget()
    first = NumpyTarget()
    first.table = Kernels("numpy")
    first.offer("choosy", Tanh, np.tanh, lambda lens: lens, no)
    target.table = first.table + target.table
    _, runner, instance = ran(target, lambda m, x, w: m.add(op("tanh"), x, sources=["layer"]), optimize=False)
    assert runner.called == ["numpy tanh"]  # steps that it added before it declined are removed
    assert [(p.kernel, p.refused) for p in instance.placements] == [("numpy tanh", ("not today",))]
    assert instance.plan.notes == ["layer: numpy choosy: not today"]


def test_a_python_function_is_called_by_its_name() -> None:
    target = NumpyTarget()
    own = Kernels("numpy")
    own.plan(Tanh)(lambda o, shapes, context: HostKernel("my tanh", np.tanh))
    target.table = own + target.table
    _, runner, instance = ran(target, lambda m, x, w: m.add(op("tanh"), m.add(op("sin"), x)), optimize=False)
    assert runner.called == ["numpy sin", "my tanh"]
    assert [s.name for s in instance.plan.steps if s.host] == ["my tanh"]
    assert [(p.kernel, p.place) for p in instance.placements] == [("numpy sin", "target"), ("my tanh", "host")]


def test_declined_ops_are_decomposed_or_run_on_the_host() -> None:
    target = NumpyTarget()
    target.offer("choosy", RmsNorm, np.tanh, lambda lens: lens, "never")
    target.offer("choosy", Exp, np.tanh, lambda lens: lens, "never")
    _, runner, instance = ran(
        target, lambda m, x, w: m.add(op("rmsnorm"), m.add(op("exp"), x), sources=["norm"]), optimize=False
    )
    assert runner.called[0] == "reference exp"
    assert [p.refused for p in instance.placements if p.op.startswith("exp")] == [("never",)]
    assert not any(p.op.startswith("rmsnorm") for p in instance.placements)  # its decomposition ran
    assert len(runner.called) > 3
    assert "numpy multiply" in runner.called


def test_an_error_of_the_host_states_its_reason_once() -> None:
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4]))
    small = main.add(op("less"), x, main.add_literal(np.ones(4, np.float32)))
    main.add_return([main.add(op("require", message="x is too large"), x, small, sources=["check"])])
    program.compile(NumpyTarget())
    with pytest.raises(ParameterError, match=r"^node 'check': require: x is too large$"):
        program.run({"x": np.full(4, 2, np.float32)})


def test_control_flow_that_an_emitter_declares_must_be_defined() -> None:
    emitter: Any = NumpyEmitter.__new__(NumpyEmitter)
    with pytest.raises(UnsupportedError, match=r"^NumpyEmitter declares `branches`, but does not define branch_steps$"):
        emitter.branch_steps(None)
    with pytest.raises(UnsupportedError, match=r"^NumpyEmitter declares `loops`, but does not define loop_steps$"):
        emitter.loop_steps()


def test_a_result_that_is_no_value_is_named() -> None:
    target = NumpyTarget()
    own = Kernels("numpy")
    own.plan(Tanh)(lambda o, shapes, context: Numpy("wrong tanh", lambda *args: np.zeros(3)))
    target.table = own + target.table
    with pytest.raises(
        PluginError, match=r"kernel 'wrong tanh' of tanh.* must emit a value, a tuple of values or a No"
    ):
        ran(target, lambda m, x, w: m.add(op("tanh"), x), optimize=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "failed: KeyError: 'grid'"),
        (None, "failed: TypeError"),
        ("abc", "failed: TypeError"),
    ],
)
def test_errors_of_emit_name_kernel_plan_package_and_node(given: Any, said: str) -> None:
    def emit(e: Any, op: Any, modules: Any, args: Any) -> Any:
        return given["grid"]

    target = NumpyTarget()
    own = Kernels("numpy")

    @own.plan(Tanh)
    def acme(op: Any, shapes: Any, context: Any) -> Kernel:
        return Numpy("wrong tanh", emit)

    target.table = own + target.table
    with pytest.raises(PluginError) as caught:
        ran(target, lambda m, x, w: m.add(op("tanh"), x, sources=["layer7"]), optimize=False)
    message = str(caught.value)
    package = __name__.partition(".")[0]
    assert "node 'layer7': kernel 'wrong tanh' of tanh(float32[" in message
    assert f"from plan 'acme' of package {package} for target 'numpy'" in message
    assert said in message


def test_a_view_that_does_not_fit_the_extents_of_a_run_is_named() -> None:
    target = NumpyTarget()
    target.table.plan(Reshape)(lambda o, shapes, context: Numpy("view reshape", emit_view))
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [dim.symbol("n", 1, 9)]))
    main.add_return([main.add(op("tanh"), main.add(op("reshape", dims=[2, 3]), x, sources=["fold"]))])
    program.compile(target)
    program.run({"x": np.ones(6, np.float32)})
    with pytest.raises(ShapeError, match=r"^node 'fold': .*7 elements\) cannot be reshaped to \[2, 3\]$"):
        program.run({"x": np.ones(7, np.float32)})
