"""Structurally equal bodies are detected and copied once."""

from __future__ import annotations

import numpy as np

import mgx_core as mgx
from mgx_core.compile.plan import lower_module
from mgx_core.ir.equality import equal_bodies, signature
from mgx_core.ir.module import Module, nested
from mgx_core.options import CompileOptions
from mgx_core.types.dim import symbol


def layers(count: int, ops: list[str]) -> mgx.Program:
    """A chain of products, each followed by a fused group of two pointwise ops, the second of which differs between layers."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [symbol("n", 1, 64), 4]))
    random = np.random.default_rng(0)
    for n in range(count):
        weights = main.add_literal(random.random((4, 4), np.float32) / 4)
        x = main.add(mgx.op("dot"), x, weights, sources=[f"product {n}"])
        x = main.add(mgx.op("neg"), x, sources=[f"neg {n}"])
        x = main.add(mgx.op(ops[n % len(ops)]), x, sources=[f"other {n}"])
    main.add_return([x])
    return program


def compiled(program: mgx.Program, target: str = "ref") -> mgx.Program:
    program.compile(mgx.get_target(target))
    return program


def test_layers_share_one_body():
    program = compiled(layers(6, ["tanh", "exp"]))
    executable = program.executable
    found = equal_bodies(executable.module)
    fused = [ins.modules[0] for ins in executable.module if ins.modules]
    assert len(fused) == 6
    assert [found[m] for m in fused] == [fused[0], fused[1]] * 3
    assert any(i.name == "tanh" for i in nested_instructions(fused[0]))
    assert any(i.name == "exp" for i in nested_instructions(fused[1]))


def nested_instructions(module: Module) -> list[mgx.Instruction]:
    return [i for m in nested(module) for i in m]


def test_a_lowered_copy_holds_each_once_and_keeps_the_sources_of_the_launches():
    program = compiled(layers(6, ["tanh"]))
    executable = program.executable
    shapes = {"x": mgx.Shape("float32", [3, 4])}
    lowered = lower_module(lambda: executable.module, shapes, executable.target, executable.context, CompileOptions())
    bodies = [m for ins in lowered.module for m in ins.modules]
    assert len(bodies) == 6
    assert len(set(bodies)) == 1
    assert bodies[0].runners == 6 + 1  # and further copies reuse it
    assert {s for ins in lowered.module if ins.modules for s in ins.sources} >= {f"neg {n}" for n in range(6)}
    assert not any(i.sources for i in bodies[0])
    before = [i.sources for m in nested(executable.module) for i in m if i.name == "neg"]
    assert before == [(f"neg {n}",) for n in range(6)]  # the optimized module keeps its own body


def test_results_are_those_of_the_program_as_it_was():
    given = {"x": np.random.default_rng(1).random((5, 4), np.float32)}
    expected = layers(6, ["tanh", "abs"])
    expected.compile(mgx.get_target("ref"), optimize=False)
    for target in ("ref", "cpu"):
        (found,) = compiled(layers(6, ["tanh", "abs"]), target).run(given)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected.run(given)[0]), rtol=2e-6)


def test_constants_are_compared():
    def body(value: float) -> Module:
        module = Module("body")
        x = module.add_parameter("x", mgx.Shape("float32", [2]))
        module.add_return([module.add(mgx.op("add"), x, module.add_literal(np.full(2, value, np.float32)))])
        return module

    assert signature(body(1.0)) == signature(body(1.0))
    assert signature(body(1.0)) != signature(body(2.0))
    assert signature(body(0.0)) != signature(body(-0.0))


def test_a_body_that_reads_from_outside_is_nobodys_like():
    outer = Module()
    x = outer.add_parameter("x", mgx.Shape("float32", [2]))
    body = Module("body")
    body.add_return([body.add(mgx.op("neg"), x)])
    assert signature(body) is None
