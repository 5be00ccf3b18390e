"""Watched constants: each run uses the current contents of memory owned by the caller."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Module, ParameterError, Program, Shape, StoreError
from mgx_core.ir.graph import Graph
from mgx_core.types.dim import symbol
from mgx_gpu_hip.context import GpuContext
from mgx_gpu_hip.runner import GpuRunner
from mgx_gpu_hip.runtime.conditional_graph import ConditionalGraph
from mgx_gpu_hip.watch import DeviceWatch

RNG = np.random.default_rng(0)
W, B = (RNG.standard_normal(s).astype(np.float32) for s in ((8, 8), (8,)))


def network(rows=4) -> Program:
    """x (rows, 8) -> tanh(x (w * b)) and x (w * b)."""
    module = Module("main")
    x, w, b = (
        module.add_parameter(n, Shape.of(mgx.dtype.float32, s))
        for n, s in (("x", (rows, 8)), ("w", (8, 8)), ("b", (8,)))
    )
    scaled = module.add(mgx.op("mul"), w, module.add(mgx.op("multibroadcast", out_lens=(8, 8)), b))
    out = module.add(mgx.op("dot"), x, scaled)
    module.add_return([module.add(mgx.op("tanh"), out), out])
    return Program(Graph(module))


@pytest.fixture(params=["host:0", "host:1"], ids=["wave 64", "wave 32"])
def context(request, monkeypatch):
    monkeypatch.setenv("MGX_GPU_DEVICE", request.param)
    return mgx.get_target("gpu").get_context()


def compiled(context, rows=4):
    held = {"w": context.upload(W), "b": context.upload(B)}
    program = network(rows)
    program.compile(context, offload_copy=False, watched=held)
    return program, held


def checked(program, x, w, b=B, call=None):
    found = [r.to_numpy() for r in (call or program.run)({"x": x})]
    want = (x if isinstance(x, np.ndarray) else x.to_host()) @ (w * b)
    np.testing.assert_allclose(found[1], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[0], np.tanh(want), rtol=1e-5, atol=1e-5)


def test_writes_are_seen(context):
    program, held = compiled(context)
    assert list(program.executable.parameters) == ["x"]
    x, w = context.upload(RNG.standard_normal((4, 8)).astype(np.float32)), W.copy()
    for n in range(4):
        checked(program, x, w)
        assert program.outdated is (n > 1)
        if n == 1:
            w[3, 5] += 1
            context.copy(w, held["w"])


def test_written_files_are_restored_unchanged(context):
    program, held = compiled(context)
    x = context.upload(RNG.standard_normal((4, 8)).astype(np.float32))
    checked(program, x, W)
    context.copy(W + 1, held["w"])
    context.copy(W, held["w"])
    checked(program, x, W)
    assert not program.outdated


def test_arguments_at_many_addresses_and_on_the_host(context):
    program, held = compiled(context)
    xs = [context.upload(RNG.standard_normal((4, 8)).astype(np.float32)) for _ in range(7)]
    for x in [*xs, *xs]:
        checked(program, x, W)
        checked(program, x, W, call=lambda p: program.run_async(p))
    checked(program, RNG.standard_normal((4, 8)).astype(np.float32), W)
    context.copy(W * 2, held["w"])
    for x in xs:
        checked(program, x, W * 2, call=lambda p: program.run_async(p))


def test_open_extents(context):
    program, held = compiled(context, symbol("n", 1, 64))
    for rows, factor in ((3, 1), (5, 1), (3, 2), (9, 2)):
        context.copy(W * factor, held["w"])
        checked(program, context.upload(RNG.standard_normal((rows, 8)).astype(np.float32)), W * factor)


def test_a_captured_stream_reads_the_current_contents(context):
    program, held = compiled(context)
    device = context.device
    x = context.upload(RNG.standard_normal((4, 8)).astype(np.float32))
    stream = device.stream()
    program.run_async({"x": x}, stream.handle)
    with device.capture(stream) as capture:
        results = program.run_async({"x": x}, stream.handle)
    graph = capture.instantiate()
    for factor in (1, 3):
        context.copy(W * factor, held["w"])
        graph.launch(stream.handle)
        stream.wait()
        np.testing.assert_allclose(results[1].to_numpy(), x.to_host() @ (W * factor * B), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 70001])
def test_every_byte_counts(context, size):
    data = RNG.integers(0, 256, size + 16, np.uint8)
    whole = context.upload(data)
    shape = Shape.of(mgx.dtype.uint8, (size,))
    for at in (0, 3):
        array = context.borrow(shape, whole.address + at)
        for place in {0, size // 2, size - 1}:
            watch = DeviceWatch(context.device, [array])
            other = data.copy()
            other[at + place] ^= 1 << int(RNG.integers(8))
            for bytes_there, differs in ((data, False), (other, True)):
                context.copy(bytes_there, whole)
                for call in watch.checks(ConditionalGraph(context.device)):
                    call(0)
                context.finish()
                assert watch.changed is differs
            context.copy(data, whole)


@pytest.mark.parametrize(("of", "name"), [(GpuContext, "watch"), (GpuRunner, "watching")])
def test_a_target_without_version_accepts_existing_entries(context, monkeypatch, of, name):
    monkeypatch.setattr(of, name, lambda *_: None)
    program, held = compiled(context)
    x = context.upload(RNG.standard_normal((4, 8)).astype(np.float32))
    for factor in (1, 2):
        context.copy(W * factor, held["w"])
        checked(program, x, W * factor)
        for _ in range(2):  # the second call is a prepared one
            checked(program, x, W * factor, call=lambda p: program.run_async(p))
    assert not program.outdated
    (instance,) = program.executable.instances()
    assert len(program.executable.time({"x": x}, 1, 0)) == len(instance.plan.steps)


def test_bad_arguments(context):
    program, held = network(), {"w": context.upload(W)}
    with pytest.raises(ParameterError, match="no parameter 'v' to watch; known are x, w, b"):
        program.compile(context, watched={"v": held["w"]})
    with pytest.raises(ParameterError, match="'w' must be in memory of target 'gpu'"):
        program.compile(context, watched={"w": W})
    with pytest.raises(ParameterError, match=r"'b' must be .*float32\[8\].*got .*float32\[8, 8\]"):
        program.compile(context, watched={"b": held["w"]})
    with pytest.raises(ParameterError, match="exclude"):
        program.compile([context], watched=held)
    program.compile(context, offload_copy=False, watched=held)
    with pytest.raises(StoreError, match="save it before compiling"):
        mgx.save_buffer(program)
