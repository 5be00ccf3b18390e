"""Equal instructions are emitted once and replayed; differences between them must be respected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.targets.emission_cache import Recording, operand_key
from mgx_core.targets.schedule import Schedule
from mgx_core.targets.values import Buffer, Value
from mgx_cpu_dnnl.emitter import CpuEmitter
from mgx_cpu_dnnl.plans import PLANS
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget

LENS = [4, 64]


def ran(build: Callable[[mgx.Module, mgx.Instruction], list[mgx.Instruction]], x: Any) -> tuple[list[Any], Schedule]:
    """Returns the results of the module that `build` makes of parameter x, and the schedule."""
    program = mgx.Program()
    main = program.get_main_module()
    given = main.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
    main.add_return(build(main, given))
    program.compile(CpuTarget(), validate=True)
    got = [np.asarray(r) for r in program.run({"x": x})]
    return got, program.executable.instances()[0].plan


def layers(weights: list[Any]) -> Callable[[mgx.Module, mgx.Instruction], list[mgx.Instruction]]:
    def build(m: mgx.Module, x: mgx.Instruction) -> list[mgx.Instruction]:
        for w in weights:
            x = m.add(mgx.op("tanh"), m.add(mgx.op("dot"), x, m.add_literal(w)))
        return [x]

    return build


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_layers_with_their_own_weights(rows: int, planned: list[str]) -> None:
    """Some weights are representable in bfloat16, which few rows read at half the size: the layers are then equal only in
    shape.
    """
    rng = np.random.default_rng(3)
    weights = [(rng.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(8)]
    for n in (1, 2, 5):
        weights[n] = (weights[n].view(np.uint32) & 0xFFFF0000).view(np.float32)
    x = rng.standard_normal((rows, 64)).astype(np.float32)
    (got,), e = ran(layers(weights), x)
    exact = x.astype(np.float64)
    for w in weights:
        exact = np.tanh(exact @ w.astype(np.float64))
    np.testing.assert_allclose(got, exact, atol=2e-6)
    assert len(e.steps) == 8
    if rows > 3 and not shared().engine.wide:
        assert len(planned) <= 2, planned  # the first layer reads a parameter, the others the previous layer's result


def test_operand_information_available_to_a_plan() -> None:
    shape = mgx.shape(type="float32", lens=LENS)
    one, other, shared = (Buffer("arena", 1024, readers=n) for n in (1, 1, 2))
    weights, packed = Buffer("literal", 1024, array=np.zeros(LENS, np.float32)), Buffer("literal", 1024)
    a, b, c, w, p = (Value(shape, buffer) for buffer in (one, other, shared, weights, packed))
    last = Value(mgx.shape(type="float32", lens=[1, 64]), one, 192)
    cases = [[a, b], [a, a], [a, c], [c, a], [a, w], [a, p], [w, a], [a, None], [a], [a, last], [b, last]]
    found = [operand_key(case) for case in cases]
    assert len(set(found)) == len(cases)
    assert operand_key([b, a]) == operand_key([a, b])
    assert operand_key([a, (b, c)]) is None


def test_memory_is_reused_only_after_its_last_reader() -> None:
    """The first sums may be written over their operands, the last may not: its operand is also a result."""

    def build(m: mgx.Module, x: mgx.Instruction) -> list[mgx.Instruction]:
        w = [m.add_literal(np.eye(64, dtype=np.float32) * n) for n in (2, 3, 4)]
        values = []
        for one in w:
            x = m.add(mgx.op("dot"), x, one)
            values.append(x)
        kept = values[1]
        return [m.add(mgx.op("softmax", axis=1), m.add(mgx.op("add"), values[0], values[2])), kept, x]

    x = np.random.default_rng(6).standard_normal(LENS).astype(np.float32)
    got, _ = ran(build, x)
    total = 2.0 * x.astype(np.float64) + 24.0 * x
    spread = np.exp(total - total.max(1, keepdims=True))
    np.testing.assert_allclose(got[0], spread / spread.sum(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(got[1], 6 * x, rtol=1e-6)
    np.testing.assert_allclose(got[2], 24 * x, rtol=1e-6)


def test_names_and_sources_are_each_their_own() -> None:
    def build(m: mgx.Module, x: mgx.Instruction) -> list[mgx.Instruction]:
        for n in range(6):
            w = m.add_literal(np.full((64, 64), 1 / 64, np.float32) * (n + 1))
            x = m.add(mgx.op("dot"), x, w, sources=[f"layer{n}"])
        return [x]

    got, e = ran(build, np.ones((16, 64), np.float32))
    assert [s.sources for s in e.steps] == [(f"layer{n}",) for n in range(6)]
    if not shared().engine.wide:  # otherwise oneDNN runs them
        assert [s.name for s in e.steps] == [f"gemm layer{n}" for n in range(6)]
    assert len({id(s.instruction) for s in e.steps}) == 6
    np.testing.assert_allclose(got[0], 720.0, rtol=1e-5)


def test_a_constant_that_is_an_operand_here_and_of_the_body_everywhere() -> None:
    scale, rng = mgx.Argument(np.array([3.0], np.float32)), np.random.default_rng(0)
    added = [mgx.Argument(np.array([5.0], np.float32)), scale, mgx.Argument(np.array([7.0], np.float32))]
    weights = [(rng.standard_normal((64, 64)) / 8).astype(np.float32) for _ in added]

    def body(name: str) -> mgx.Module:
        one, last = mgx.Module(name), mgx.Module(f"{name}_last")
        a, b, c = (last.add_parameter(n, mgx.shape(type="float32", lens=[16, 64])) for n in "abc")
        last.add_return([last.add(mgx.op("add"), last.add(mgx.op("mul"), a, b), c)])
        x, w, c = (
            one.add_parameter(n, mgx.shape(type="float32", lens=lens))
            for n, lens in (("x", [16, 64]), ("w", [64, 64]), ("c", [1]))
        )
        wide = [one.add(mgx.op("multibroadcast", out_lens=[16, 64]), v) for v in (one.add_literal(scale), c)]
        one.add_return([one.add(mgx.op("pointwise"), one.add(mgx.op("dot"), x, w), *wide, modules=[last])])
        return one

    program = mgx.Program()
    main = program.get_main_module()
    y = main.add_parameter("x", mgx.shape(type="float32", lens=[16, 64]))
    results = []
    for n, (w, c) in enumerate(zip(weights, added, strict=True)):
        y = main.add(mgx.op("group", tag="dot"), y, main.add_literal(w), main.add_literal(c), modules=[body(f"g{n}")])
        results.append(y)
    main.add_return(results)
    program.compile(CpuTarget(), optimize=False)
    x = rng.standard_normal((16, 64)).astype(np.float32)
    exact = x.astype(np.float64)
    for got, w, c in zip(program.run({"x": x}), weights, (5.0, 3.0, 7.0), strict=True):
        exact = exact @ w.astype(np.float64) * 3.0 + c
        np.testing.assert_allclose(np.asarray(got), exact, rtol=1e-4, atol=1e-3)


def test_operands_that_pack_to_the_same_here_need_not_elsewhere() -> None:
    shape, e = mgx.shape(type="float32", lens=LENS), CpuEmitter(PLANS, threads=1)
    weights = np.zeros((2, *LENS), np.float32)
    both = [Value(shape, Buffer("literal", 1024, array=weights[0])) for _ in range(2)]
    packed = Buffer("literal", 1024)
    for again, cacheable in ((both[0], True), (both[1], False)):
        recording = Recording(both)
        for value in (both[0], again):
            recording.derived(value.buffer, packed, "way", lambda emitter, buffer: packed)
        assert recording.cacheable == cacheable
    turned = weights[0].T
    assert e._permuted_literal(turned).buffer is e._permuted_literal(turned).buffer
