"""Grouped-query attention: keys and values are not copied per head, and results are the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.attention import Attention
from mgx_core.ops.control import Group
from mgx_core.passes.fuse_attention import FuseAttention
from mgx_core.types.dim import symbol
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.plans import PLANS
from mgx_gpu_hip.plans.attention import emit_generated, emit_library, emit_library_op
from mgx_gpu_hip.target import GpuTarget
from mgx_gpu_hip.tuning import TimedPlan


def attention(queries: int, keys: int, masked: bool, of: Any, batch: int = 1) -> tuple[mgx.Program, dict[str, Any]]:
    """6 heads in 2 groups of 16 elements, as decoders are exported: keys repeated, scores scaled and masked."""
    rng = np.random.default_rng(queries)
    program = mgx.Program()
    m = program.get_main_module()
    dims = {"q": [batch, queries, 96], "k": [batch, 2, keys, 16], "v": [batch, 2, keys, 16]}
    feed = {name: rng.standard_normal(d).astype(of.numpy) for name, d in dims.items()}
    q, k, v = (m.add_parameter(n, mgx.Shape(of, d)) for n, d in dims.items())
    q = m.add(mgx.op("reshape", dims=[batch, queries, 6, 16]), q)
    q = m.add(mgx.op("transpose", permutation=[0, 2, 1, 3]), q)

    def repeated(x: Any) -> Any:
        x = m.add(mgx.op("unsqueeze", axes=[2]), x)
        x = m.add(mgx.op("multibroadcast", out_lens=[batch, 2, 3, keys, 16]), x)
        return m.add(mgx.op("reshape", dims=[batch, 6, keys, 16]), x)

    scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), repeated(k)))
    scale = m.add_literal(np.asarray(0.25, of.numpy))
    whole = [batch, 6, queries, keys]
    scores = m.add(mgx.op("mul"), scores, m.add(mgx.op("multibroadcast", out_lens=whole), scale))
    if masked:
        mask = m.add_parameter("mask", mgx.Shape(of, [batch, 1, queries, keys]))
        feed["mask"] = np.where(rng.random((batch, 1, queries, keys)) < 0.3, -1e4, 0).astype(of.numpy)
        scores = m.add(mgx.op("add"), scores, m.add(mgx.op("multibroadcast", out_lens=whole), mask))
    y = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=3), scores), repeated(v))
    y = m.add(mgx.op("transpose", permutation=[0, 2, 1, 3]), y)
    m.add_return([m.add(mgx.op("reshape", dims=[batch, queries, 96]), y)])
    return program, feed


def kinds_of_steps(program: mgx.Program, feed: dict[str, Any], device: int, atol: float) -> list[str]:
    """Compares the result on an emulated device with the reference; returns the kinds of the kernels that ran."""
    plain = program.clone()
    plain.compile(mgx.get_target("ref"))
    wanted = plain.run(feed)[0].to_numpy().astype(np.float64)
    program.compile(GpuTarget("host", device))
    got = program.run(feed)[0].to_numpy().astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)
    (instance,) = program.executable.instances()
    return [s.name.split("_")[0] for s in instance.runner.schedule.steps]


@pytest.mark.pairs
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize(("queries", "keys", "batch"), [(1, 37, 1), (5, 12, 2), (24, 24, 1)])
def test_shared_keys_are_not_copied(queries: int, keys: int, batch: int, masked: bool, of: str, device: int) -> None:
    program, feed = attention(queries, keys, masked, dt.of(of), batch)
    assert kinds_of_steps(program, feed, device, atol=2e-3 if of == "float16" else 2e-6) == ["attention"]


@pytest.mark.parametrize("queries", [1, 2])
def test_one_kernel_for_all_numbers_of_keys(queries: int) -> None:
    """For heads that do not share queries' rows: the repeat count is an argument, and was a literal in the kernel's source."""
    program = mgx.Program()
    m = program.get_main_module()
    t = symbol("t", 1, 512)
    q = m.add_parameter("q", mgx.Shape("float16", [1, 8, queries, 64]))
    k, v = (m.add_parameter(n, mgx.Shape("float16", [1, 4, t, 64])) for n in "kv")
    mask = m.add_parameter("mask", mgx.Shape("float16", [1, 1, queries, t]))

    def repeated(x: Any) -> Any:
        x = m.add(mgx.op("multibroadcast", out_lens=[1, 4, 2, t, 64]), m.add(mgx.op("unsqueeze", axes=[2]), x))
        return m.add(mgx.op("reshape", dims=[1, 8, t, 64]), x)

    scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), repeated(k)))
    scores = m.add(mgx.op("add"), scores, m.add(mgx.op("multibroadcast", out_lens=[1, 8, queries, t]), mask))
    m.add_return([m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=-1), scores), repeated(v))])
    program.compile(GpuTarget("host", 0))
    rng, names = np.random.default_rng(3), set()
    for keys in (17, 18, 40, 5):
        dims = {"q": [1, 8, queries, 64], "k": [1, 4, keys, 64], "v": [1, 4, keys, 64], "mask": [1, 1, queries, keys]}
        feed = {name: (rng.standard_normal(d) / 4).astype(np.float16) for name, d in dims.items()}
        (found,) = program.run(feed)
        names.add(tuple(s.name for s in program.executable.instances()[-1].plan.steps))
        wide = {n: x.astype(np.float64) for n, x in feed.items()}
        twice = {n: np.repeat(wide[n], 2, axis=1) for n in "kv"}
        e = np.exp(wide["q"] @ twice["k"].swapaxes(-1, -2) + wide["mask"])
        want = e / e.sum(-1, keepdims=True) @ twice["v"]
        np.testing.assert_allclose(np.asarray(found), want, rtol=0, atol=3e-3)
    assert len(names) == 1 and len(next(iter(names))) == 1


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
def test_attention_writes_the_image_that_convolutions_read(batch: int, device: int) -> None:
    """[b, h, y x, c] -> [b, h c, y, x] (MobileNetV5): the convolution copied it to channels last."""
    rng = np.random.default_rng(batch)
    program = mgx.Program()
    m = program.get_main_module()
    feed = {n: rng.standard_normal((batch, 3, 20, 16)).astype(np.float16) for n in "qkv"}
    q, k, v = (m.add_parameter(n, mgx.Shape(dt.float16, x.shape)) for n, x in feed.items())
    scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), k))
    y = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=3), scores), v)
    y = m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), y)
    y = m.add(mgx.op("reshape", dims=[batch, 48, 4, 5]), y)
    weights = m.add_literal(rng.standard_normal((48, 1, 3, 3)).astype(np.float16))
    m.add_return([m.add(mgx.op("convolution", group=48, padding=[1, 1]), y, weights)])
    kinds = kinds_of_steps(program, feed, device, atol=3e-2)
    assert kinds[:2] == ["attention", "convolution"] and len(kinds) == 3  # the last one makes the result row-major


class AttentionTuner:
    """Stands for a library whose attention takes `us` microseconds."""

    def __init__(self, us: float) -> None:
        self.us = us

    def attention(self, problem: Any, exhaustive: bool) -> TimedPlan:
        plan = SimpleNamespace(name=str(problem), problem=problem, workspace=0, choice={"library": "stand-in"})
        return TimedPlan.of(plan, self.us)


def attention_group(m: mgx.Module, q: Any, k: Any, v: Any) -> Any:
    """Adds attention and returns the group that it is fused into."""
    weights = m.add(mgx.op("softmax", axis=3), m.add(mgx.op("dot"), q, k))
    m.add_return([m.add(mgx.op("dot"), weights, v)])
    FuseAttention().apply(m)
    return next(i for i in m if isinstance(i.op, Group))


def emitter(us: float) -> GpuEmitter:
    """Returns an emitter for sm_90 whose library's attention takes `us` microseconds."""
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    vars(context).update(libraries=object(), tuner=AttentionTuner(us))
    return GpuEmitter(PLANS, context)


@pytest.mark.parametrize(("keys", "values"), [(3, 3), (1, 1), (1, 3), (3, 1)])
def test_the_library_is_not_given_keys_that_are_broadcast_over_heads(keys: int, values: int) -> None:
    """Its strides cannot be 0: heads that share a key read the memory behind it (mobilenetv5_300m, float16, error 0.67)."""
    m = mgx.Module("main")
    q, k, v = (
        m.add_parameter(n, mgx.Shape(dt.float16, [2, h, 16, 16])) for n, h in zip("qkv", (3, keys, values), strict=True)
    )
    turned = m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), k)
    wide = [m.add(mgx.op("multibroadcast", out_lens=[2, 3, 16, 16]), x) for x in (turned, v)]
    group, e = attention_group(m, q, *wide), emitter(0.0)
    args = [e.input(Shape(dt.float16, x.shape.lens()), n) for n, x in enumerate(group.inputs)]
    if keys == values == 3:
        args[1] = args[1].view_at(
            0, Shape(dt.float16, [2, 3, 16, 16], (768, 256, 1, 16))
        )  # the keys before the transpose
        emit_library(e, group.op, group.modules, args)
        assert e.steps[-1].plan.problem.kv_heads == 0
    else:
        with pytest.raises(Refused, match="broadcast along an axis"):
            emit_library(e, group.op, group.modules, args)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "size", "us", "chosen"),
    [
        (1, 1024, 2048, 256, 40.0, "separate"),  # on an H200 the generated kernel took 57 us
        (1, 1024, 2048, 256, 20.0, "library"),
        (1, 1024, 1024, 256, 40.0, "separate"),
        (1, 64, 2048, 256, 40.0, "generated"),
        (8, 1024, 1024, 64, 40.0, "generated"),
        (8, 1024, 1024, 64, 10.0, "library"),
        (12, 197, 197, 64, 20.0, "generated"),
    ],
)
def test_attention_of_few_heads_with_many_keys_runs_as_separate_products(
    heads: int, queries: int, keys: int, size: int, us: float, chosen: str
) -> None:
    m = mgx.Module("main")
    q, k, v = (
        m.add_parameter(name, mgx.Shape(dt.float16, [1, heads, *dims]))
        for name, dims in (("q", (queries, size)), ("k", (size, keys)), ("v", (keys, size)))
    )
    group, e = attention_group(m, q, k, v), emitter(us)
    taken = []
    for name, emit in (("library", emit_library), ("generated", emit_generated)):
        args = [
            e.input(Shape(dt.float16, x.shape.lens(), (0, 0, 1, size) if x is k else None), n)
            for n, x in enumerate(group.inputs)
        ]
        try:
            emit(e, group.op, group.modules, args)
            taken.append(name)
        except Refused:
            continue
    assert (taken or ["separate"])[0] == chosen


@pytest.mark.parametrize("turned", ["q", "kv", "qkv"])
@pytest.mark.parametrize(("us", "chosen"), [(10.0, True), (60.0, False)])
def test_the_library_is_given_copies_of_images_with_channels_first(turned: str, us: float, chosen: bool) -> None:
    """Its rows must be adjacent: 16 heads of 64 x 1,024 took 57 us in a generated kernel on an H200."""
    m = mgx.Module("main")
    q, k, v = (
        m.add_parameter(n, mgx.Shape(dt.float16, [8, 2, *dims]))
        for n, dims in (("q", (1024, 64)), ("k", (64, 1024)), ("v", (1024, 64)))
    )
    group, e = attention_group(m, q, k, v), emitter(us)
    args = []
    for n, x in enumerate(group.inputs):
        steps = (1, 1024) if "qkv"[n] in turned else (64, 1)  # between positions, and between channels
        laid = Shape(dt.float16, x.shape.lens(), (131072, 65536, *(reversed(steps) if x is k else steps)))
        args.append(e.input(laid, n).view_at(0, laid))
    if not chosen:
        with pytest.raises(Refused, match="the generated kernel is faster"):
            emit_library(e, group.op, group.modules, args)
        return
    emit_library(e, group.op, group.modules, args)
    problem = e.steps[-1].plan.problem
    assert len(e.steps) == 1 + len(turned)
    assert [problem.q, problem.k, problem.v] == [(131072, 65536, 64, 1)] * 3


@pytest.mark.parametrize(
    ("changes", "groups", "us", "chosen"),
    [
        ({}, 4, 1.0, True),
        ({"causal": True, "scale": 0.5}, 2, 1.0, True),
        ({}, 4, 1000.0, False),
        ({"causal": True, "offset": 3}, 4, 1.0, False),
        ({"softcap": 2.0}, 4, 1.0, False),
        ({"left_window_size": 8}, 4, 1.0, False),
    ],
)
def test_the_library_computes_the_op_if_every_query_has_a_key(
    changes: dict[str, Any], groups: int, us: float, chosen: bool
) -> None:
    """Models from torch have the op, those from ONNX a group: only the latter used the library."""
    e, op = emitter(us), Attention(**changes)
    args = [e.input(Shape(dt.float16, [2, h, 64, 32]), n) for n, h in enumerate((4, groups, groups))]
    if not chosen:
        with pytest.raises(Refused):
            emit_library_op(e, op, (), args)
        return
    out = emit_library_op(e, op, (), args)
    problem = e.steps[-1].plan.problem
    assert (out.lens, problem.causal, problem.groups) == ([2, 4, 64, 32], op.causal, groups)
    assert problem.scale == pytest.approx(op.scale or 32**-0.5) and problem.k[:2] == (groups * 2048, 2048)


def test_the_library_is_given_no_masks_of_the_op() -> None:
    e = emitter(1.0)
    args = [e.input(Shape(dt.float16, [2, 4, 64, 32]), n) for n in range(3)]
    with pytest.raises(Refused, match="no masks"):
        emit_library_op(e, Attention(), (), [*args, e.input(Shape(dt.float16, [64, 64]), 3)])


@pytest.mark.parametrize(
    ("of", "keys", "why"), [("bfloat16", 64, "operands and a result of one type"), ("float16", 0, "an extent is 0")]
)
def test_the_library_is_given_values_of_the_same_type_and_some_keys(of: str, keys: int, why: str) -> None:
    e = emitter(1.0)
    types = (("float16", 64), ("float16", keys), (of, keys))
    args = [e.input(Shape(dt.of(t), [2, 4, rows, 32]), n) for n, (t, rows) in enumerate(types)]
    with pytest.raises(Refused, match=why):
        emit_library_op(e, Attention(), (), args)


@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize(("size", "masked", "launches"), [(264, False, 5), (264, True, 6), (256, False, 1)])
def test_the_parts_of_attention_with_large_heads_are_fused(size: int, masked: bool, launches: int, device: int) -> None:
    """Each of nine parts was a launch of its own, among them conversions of the scores."""
    rng, program = np.random.default_rng(size), mgx.Program()
    m = program.get_main_module()
    dims = {"q": [1, 2, 5, size], "k": [1, 2, 7, size], "v": [1, 2, 7, size]}
    feed = {name: rng.standard_normal(d).astype(np.float16) for name, d in dims.items()}
    if masked:
        feed["mask"] = rng.random((5, 7)) < 0.5
        feed["mask"][0] = False  # a query without keys
    given = [m.add_parameter(name, mgx.Shape(dt.of(x.dtype), x.shape)) for name, x in feed.items()]
    m.add_return([m.add(mgx.op("attention"), *given)])
    kinds = kinds_of_steps(program, feed, device, atol=4e-3)
    assert len(kinds) <= launches and ("attention" in kinds) == (size == 256)
