"""Views before attention become part of its groups."""

from __future__ import annotations

from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import Module, Program, Shape
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.absorb_views import AbsorbViews

rng = np.random.default_rng(2)


def heads(shared: bool = False) -> Program:
    """Queries, keys and values sliced from one tensor, and attention on them; shared: the keys are also a result."""
    program = Program()
    m = program.get_main_module()
    length = symbol("length", 1, 64)
    x = m.add_parameter("x", Shape("float32", [2, length, 96]))

    def part(n: int, order: list[int]) -> Any:
        cut = m.add(mgx.op("slice", axes=[2], starts=[32 * n], ends=[32 * n + 32]), x, sources=[f"cut {n}"])
        split = m.add(mgx.op("reshape", dims=[2, length, 4, 8]), cut)
        return m.add(mgx.op("transpose", permutation=order), split)

    q, k, v = part(0, [0, 2, 1, 3]), part(1, [0, 2, 3, 1]), part(2, [0, 2, 1, 3])
    weights = m.add(mgx.op("softmax", axis=3), m.add(mgx.op("dot"), q, k))
    m.add_return([m.add(mgx.op("dot"), weights, v), *([k] if shared else [])])
    return program


def compiled(program: Program, **options: Any) -> tuple[list[str], Any]:
    program.compile(mgx.get_target("cpu"), **options)
    return [i.name for i in program.executable.module if not i.name.startswith("@")], program


def test_one_instruction_is_left() -> None:
    names, program = compiled(heads())
    assert names == ["group"]
    (group,) = [i for i in program.executable.module if i.name == "group"]
    assert {"cut 0", "cut 1", "cut 2"} <= set(group.sources)
    body: Module = group.modules[0]
    assert [i.name for i in body].count("slice") == 3
    assert len(body.parameters) == 1
    x = rng.standard_normal((2, 17, 96)).astype(np.float32)
    expected = heads()
    expected.compile(mgx.get_target("ref"), optimize=False)
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), np.asarray(expected.run({"x": x})[0]), atol=2e-6)
    runner = program.executable.instances()[-1].runner
    assert [s.name.split()[0] for s in runner.schedule.steps] == ["attention"]


def test_values_with_other_readers_stay_outside() -> None:
    names, program = compiled(heads(shared=True))
    assert sorted(names) == ["group", "reshape", "slice", "transpose"]
    x = rng.standard_normal((2, 9, 96)).astype(np.float32)
    expected = heads(shared=True)
    expected.compile(mgx.get_target("ref"), optimize=False)
    for ours, theirs in zip(program.run({"x": x}), expected.run({"x": x}), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=2e-6)


def test_nothing_to_do() -> None:
    program = Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", Shape("float32", [2])))])
    assert not AbsorbViews().apply(m)
