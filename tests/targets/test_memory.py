"""Memory plans: values that are alive at the same time do not overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_core.errors import DeviceError
from mgx_core.ir.module import Module
from mgx_core.ir.ordering import captures
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.targets import memory
from mgx_core.targets.memory import (
    MemoryPlan,
    fits_in_memory,
    plan_memory,
    root,
)
from mgx_core.types.memory_limit import ALIGNMENT, static_bytes
from mgx_core.types.shape import SequenceShape, Shape, TupleShape


def read(text: str) -> Module:
    return parse_module(text, STANDARD)


def check(module: Module, plan: MemoryPlan) -> None:
    """Checks the invariants of a plan, recomputed from the module."""
    order = {ins: n for n, ins in enumerate(module)}
    lives = {}
    for ins in module:
        buffer = plan.of.get(ins)
        if buffer is None:
            continue
        needed = [order[ins]]
        for user in module:
            reads = [*user.inputs, *(c for m in user.modules for c in captures(m))]
            if ins in reads:
                needed.append(order[user])
        lives.setdefault(id(buffer), (buffer, []))[1].extend(needed)
        assert buffer.bytes >= static_bytes(root(ins).result)
    for buffer, needed in lives.values():
        assert buffer.first <= min(needed)
        assert buffer.last >= max(needed)
        assert buffer.offset % ALIGNMENT == 0
        assert 0 <= buffer.offset <= buffer.offset + buffer.bytes <= plan.peak
    for i, a in enumerate(plan.buffers):
        for b in plan.buffers[:i]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert apart or not together
    most = max((sum(b.bytes for b in plan.buffers if b.first <= n <= b.last) for n in range(len(order))), default=0)
    assert plan.lower_bound == most
    assert plan.peak >= plan.lower_bound


@st.composite
def modules(draw) -> Module:
    module = Module()
    sizes = st.sampled_from([1, 7, 16, 100, 1000])
    values = [module.add_parameter(f"p{n}", Shape("float", [draw(sizes), 2])) for n in range(2)]
    for _ in range(draw(st.integers(0, 25))):
        x = draw(st.sampled_from(values))
        match draw(st.sampled_from(["relu", "transpose", "reshape", "concat", "slice"])):
            case "relu":
                made = module.add(STANDARD.make("relu"), x)
            case "transpose":
                made = module.add(STANDARD.make("transpose", permutation=[1, 0]), x)
            case "reshape":
                made = module.add(STANDARD.make("reshape", dims=[x.shape.elements(), 1]), x)
            case "slice":
                made = module.add(STANDARD.make("slice", axes=[0], starts=[0], ends=[1]), x)
            case _:
                y = draw(st.sampled_from([v for v in values if v.shape.dims[1] == x.shape.dims[1]]))
                made = module.add(STANDARD.make("concat", axis=0), x, y)
        if made.shape.elements() < 10000:
            values.append(made)
    module.add_return(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))
    return module


@given(modules(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_random_modules(module, reuse):
    plan = plan_memory(module, reuse)
    check(module, plan)
    if not reuse:
        assert plan.peak == sum(b.bytes for b in plan.buffers)
    outside = {root(o) for o in module.outputs}
    for ins in module:
        if not (ins.is_param or ins.is_return or root(ins).is_param or root(ins) in outside):
            assert ins in plan.of


def test_a_chain_needs_two_buffers():
    lines = [
        "module main",
        '  %0 = @param["x"] -> float32[16]',
        *(f"  %{n + 1} = relu(%{n})" for n in range(10)),
        "  @return(%10)",
    ]
    plan = plan_memory(read("\n".join(lines)))
    assert len(plan.buffers) == 9
    assert plan.peak == plan.lower_bound == 2 * 64
    assert plan_memory(read("\n".join(lines)), reuse=False).peak == 9 * 64


def test_views_share_their_sources_buffer_and_keep_it_alive():
    module = read("""
        module main
          %x = @param["x"] -> float32[4, 4]
          %1 = relu(%x)
          %2 = transpose[permutation=[1, 0]](%1)
          %3 = neg(%x)
          %4 = abs(%3)
          %5 = add(%2, %4)
          %6 = exp(%5)
          @return(%6)""")
    _, relu, view, _, _, add, *_ = module
    plan = plan_memory(module)
    assert plan.of[view] is plan.of[relu]
    assert plan.of[relu].members == [relu, view]
    assert plan.of[relu].last == 5
    assert add in plan.of
    check(module, plan)


def test_results_of_the_module_are_outside_the_arena():
    module = read("""
        module main
          %x = @param["x"] -> float32[4, 4]
          %1 = relu(%x)
          %2 = transpose[permutation=[1, 0]](%1)
          %k = @literal(1.0) -> float32[1]
          %3 = neg(%k)
          @return(%2, %3)""")
    assert plan_memory(module).buffers == []
    assert plan_memory(module).peak == 0


def test_captures_of_nested_modules_stay_alive():
    module = read("""
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[16]
          %1 = relu(%x)
          %2 = neg(%x)
          %3 = exp(%2)
          %4 = if(%c){then, else}
          %5 = get_tuple_elem[index=0](%4)
          %6 = add(%5, %3)
          @return(%6)
        module then
          %7 = abs(%1)
          @return(%7)
        module else
          @return(%x)""")
    plan = plan_memory(module)
    relu = next(i for i in module if i.name == "relu")
    assert plan.of[relu].last == 5
    check(module, plan)


def test_values_of_unknown_size_are_listed():
    module = read("""
        module main
          %x = @param["x"] -> float32[4]
          %1 = relu(%x)
          %2 = nonzero(%1)
          %3 = neg(%2)
          @return(%3)""")
    plan = plan_memory(module)
    assert [i.name for i in plan.dynamic] == ["nonzero", "neg"]
    assert [b.owner.name for b in plan.buffers] == ["relu"]


def test_sizes_are_aligned():
    assert static_bytes(Shape("int8", [1])) == 64
    assert static_bytes(Shape("int8", [65])) == 128
    assert static_bytes(Shape("float", [0])) == 0
    assert static_bytes(TupleShape([Shape("int8", [1]), Shape("float", [16])])) == 128
    assert static_bytes(SequenceShape(Shape("float", [1]))) is None


def test_programs_that_no_memory_holds_are_refused(monkeypatch):
    module = read('module main\n  %x = @param["x"] -> float32[1000]\n  %1 = relu(%x)\n  %2 = neg(%1)\n  @return(%2)')
    plan = plan_memory(module)
    fits_in_memory(plan, module)
    monkeypatch.setattr(memory, "machine_memory", lambda: 4096)
    with pytest.raises(DeviceError, match="needs 8064 bytes for simultaneously live values; this machine has 4096"):
        fits_in_memory(plan, module)


def test_many_buffers_are_placed_like_few(monkeypatch):
    random = np.random.default_rng(3)
    for _ in range(60):
        spans = [(int(f), int(f + n), 64 * int(b)) for f, n, b in random.integers(0, (30, 9, 9), (40, 3))]
        both = []
        for few in (1 << 20, 0):
            monkeypatch.setattr(memory, "FEW", few)
            buffers = [memory.Buffer(None, b, f, n) for f, n, b in spans if b]
            _, bound = memory.place(buffers, 50)
            placed = [memory._placed(buffers, order) for order in memory._orders(15)]
            assert all(peak >= bound for peak, _ in placed)
            both.append(placed)
        assert both[0] == both[1]
