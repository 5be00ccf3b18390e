"""Emission cache: equal layers are emitted once; steps and reports are the same as without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.targets import kernel_emission
from mgx_gpu_hip.target import GpuTarget


def attention(m: mgx.Module, x: mgx.Instruction, n: int) -> mgx.Instruction:
    """A layer with products, a softmax and an activation, with its own constants."""
    rng = np.random.default_rng(n)

    def weight(*lens: int) -> mgx.Instruction:
        return m.add_literal((rng.standard_normal(lens) / 6).astype(np.float32))

    def add(name: str, *inputs: mgx.Instruction, **attributes: Any) -> mgx.Instruction:
        return m.add(mgx.op(name, **attributes), *inputs, sources=[f"{name} of layer {n}"])

    q, k = (add("dot", x, weight(16, 16)) for _ in range(2))
    scores = add("softmax", add("dot", q, add("transpose", k, permutation=[1, 0])), axis=-1)
    return add("relu", add("add", add("dot", scores, x), x))


def convolutions(m: mgx.Module, x: mgx.Instruction, n: int) -> mgx.Instruction:
    rng = np.random.default_rng(n)
    w = m.add_literal((rng.standard_normal((8, 8, 3, 3)) / 9).astype(np.float32))
    op = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y = m.add(mgx.op("relu"), m.add(op, x, w, sources=[f"convolution {n}"]), sources=[f"relu {n}"])
    return m.add(mgx.op("add"), x, y, sources=[f"sum {n}"])


def compiled(build: Callable[..., Any], lens: list[int], target: GpuTarget) -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", lens))
    for n in range(4):
        x = build(main, x, n)
    main.add_return([x])
    program.compile(target)
    return program


@pytest.mark.parametrize(("build", "lens"), [(attention, [6, 16]), (attention, [1, 16]), (convolutions, [2, 8, 6, 6])])
def test_repeated_layers_run_and_are_reported_as_emitted_ones(
    build: Callable[..., Any], lens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[int] = []
    ask = kernel_emission.KernelEmitter.run_kernel

    def counting(self: Any, *given: Any) -> Any:
        emitted[-1] += 1
        return ask(self, *given)

    monkeypatch.setattr(kernel_emission.KernelEmitter, "run_kernel", counting)
    programs = []
    for cached in (True, False):
        if not cached:
            monkeypatch.setattr(kernel_emission, "operand_key", lambda args: None)
        emitted.append(0)
        programs.append(compiled(build, lens, GpuTarget("host", 0)))
    assert emitted[0] < emitted[1]
    x = np.random.default_rng(9).standard_normal(lens).astype(np.float32)
    got, want = (np.asarray(p.run({"x": x})[0]) for p in programs)
    np.testing.assert_array_equal(got, want)
    repeated, each = (p.executable.instances()[0] for p in programs)
    assert list(repeated.placements) == list(each.placements)
    assert [s.name for s in repeated.plan.steps] == [s.name for s in each.plan.steps]
    assert repeated.plan.notes == each.plan.notes and repeated.plan.peak == each.plan.peak
