"""Recurrent layers with one launch per step or for all, compared with the reference on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import run, same, tensor, traits, values
from opened_program import opened

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.types.dim import symbol
from mgx_gpu_hip.codegen.recurrent import recurrent
from mgx_gpu_hip.codegen.recurrent_fma import resident_fma
from mgx_gpu_hip.codegen.recurrent_resident import resident
from mgx_gpu_hip.codegen.source import KernelSource
from mgx_gpu_hip.target import GpuTarget

LIMITS = {"float16": 0.01, "float32": 2e-5}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("of", "hidden", "vector"), [("float16", 136, 8), ("float32", 66, 2), ("float16", 76, 4)])
def test_weights_are_read_as_vectors(of: str, hidden: int, vector: int, constant: bool) -> None:
    """The last vectors of a row are read by some of the threads; constant weights are read before the previous step has ended."""
    directions, steps, sequences, width = 2, 3, 2, 4
    rng = np.random.default_rng(4)

    def part(*dims: int) -> Any:
        return (values(rng, dt.of(of), dims) * dt.of(of).numpy.type(0.25)).astype(dt.of(of).numpy)

    given = [part(steps, sequences, width), part(directions, 4 * hidden, width), part(directions, 4 * hidden, hidden)]
    given += [
        part(directions, 8 * hidden),
        None,
        part(directions, sequences, hidden),
        part(directions, sequences, hidden),
    ]
    inputs = [None if g is None else tensor(of, g.shape) for g in given]
    inputs[2] = inputs[2]._replace(constant=constant)
    outputs = [tensor(of, (steps, directions, sequences, hidden)), tensor(of, (directions, sequences, hidden))]
    op = Lstm(hidden_size=hidden, direction="bidirectional")
    source = recurrent(op, inputs, outputs, traits(32))
    assert isinstance(source, KernelSource)
    load = f"ldv<{'half_t' if of == 'float16' else 'float'}, {vector}>(p2"
    step = source.text[source.text.index("float* states") :]
    assert (step.index(load) < step.index("grid_wait")) is constant
    same(run(source, given, inputs, outputs), op.compute(*given)[:2], tolerance=LIMITS[of])


@pytest.mark.parametrize("kind", [Lstm, Gru])
@pytest.mark.parametrize(("of", "hidden", "units"), [("float16", 136, 1), ("float32", 300, 1), ("float32", 66, 80)])
def test_a_wave_processes_several_sequences(kind: type[Any], of: str, hidden: int, units: int) -> None:
    """Weights are read once for up to four sequences, the last of which may be missing, if enough waves remain."""
    steps, sequences, width = 3, 5, 4
    rng = np.random.default_rng(5)
    op = kind(hidden_size=hidden, **({"linear_before_reset": True} if kind is Gru else {}))

    def part(*dims: int) -> Any:
        return (values(rng, dt.of(of), dims) * dt.of(of).numpy.type(0.25)).astype(dt.of(of).numpy)

    given = [part(steps, sequences, width), part(1, op.gates * hidden, width), part(1, op.gates * hidden, hidden)]
    given += [part(1, 2 * op.gates * hidden), np.array([3, 1, 2, 3, 2], np.int32), part(1, sequences, hidden)]
    given += [part(1, sequences, hidden)] if kind is Lstm else []
    inputs = [tensor(g.dtype.name, g.shape) for g in given]
    outputs = [tensor(of, (steps, 1, sequences, hidden)), tensor(of, (1, sequences, hidden))][
        : 2 if kind is Lstm else 1
    ]
    source = recurrent(op, inputs, outputs, traits(32)._replace(sm_count=units))
    assert isinstance(source, KernelSource)
    together = 4 if units == 1 else 1
    assert source.launches[-1].grid[0] == -(-hidden * -(-sequences // together) // 8)
    result = op.compute(*given)
    wanted = result[:2] if kind is Lstm else result[:1] if isinstance(result, tuple) else [result]
    same(run(source, given, inputs, outputs), [np.asarray(w) for w in wanted][: len(outputs)], tolerance=LIMITS[of])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(("kind", "steps"), [(Lstm, 5), (Gru, 4), (Gru, 1)])
def test_sequences_are_spread_over_blocks(kind: type[Any], steps: int, wave: int) -> None:
    """One block with eight columns computed eight sequences of a layer on one of 132 multiprocessors."""
    sequences, width, hidden = 5, 8, 16
    rng = np.random.default_rng(6)
    op = kind(hidden_size=hidden, direction="bidirectional", **({"linear_before_reset": True} if kind is Gru else {}))

    def part(*dims: int) -> Any:
        return (values(rng, dt.float16, dims) * np.float16(0.25)).astype(np.float16)

    given = [part(steps, sequences, width), part(2, op.gates * hidden, width), part(2, op.gates * hidden, hidden)]
    given += [part(2, 2 * op.gates * hidden), np.array([steps, 1, steps, 1, steps], np.int32), part(2, 5, hidden)]
    inputs = [tensor(g.dtype.name, g.shape) for g in given]
    result = op.compute(*given)
    wanted = [np.asarray(w) for w in (result[:2] if kind is Lstm else [result])]
    outputs = [tensor("float16", w.shape) for w in wanted]
    source = resident(op, inputs, outputs, traits(wave))
    assert isinstance(source, KernelSource)
    assert source.launches[-1].grid == (2, 2, 1)
    same(run(source, given, inputs, outputs, wave), wanted, tolerance=LIMITS["float16"])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(
    ("kind", "hidden", "sequences", "units", "blocks"),
    [(Lstm, 20, 11, 2, 3), (Lstm, 20, 3, 132, 3), (Gru, 48, 3, 2, 2), (Rnn, 150, 5, 132, 5), (Lstm, 48, 26, 1, 2)],
)
def test_weights_of_float32_stay_in_registers(
    kind: type[Any], hidden: int, sequences: int, units: int, blocks: int, wave: int
) -> None:
    """Two layers of 48 units for 512 sequences took 675 and 660 us in one launch per step."""
    steps, width = 4, 3
    rng = np.random.default_rng(7)
    op = kind(hidden_size=hidden, direction="reverse", **({"linear_before_reset": True} if kind is Gru else {}))

    def part(*dims: int) -> Any:
        return rng.standard_normal(dims).astype(np.float32) * np.float32(0.25)

    given = [part(steps, sequences, width), part(1, op.gates * hidden, width), part(1, op.gates * hidden, hidden)]
    given += [part(1, 2 * op.gates * hidden), None, part(1, sequences, hidden)]
    inputs = [None if g is None else tensor(g.dtype.name, g.shape) for g in given]
    result = op.compute(*given)
    wanted = [np.asarray(w) for w in (result[:2] if kind is Lstm else [result])]
    outputs = [tensor("float32", w.shape) for w in wanted]
    source = resident_fma(op, inputs, outputs, traits(wave, units))
    assert isinstance(source, KernelSource)
    one_step = [tensor("float32", (1, sequences, width)), *inputs[1:]]
    assert "one step" in resident_fma(op, one_step, outputs, traits(wave, units)).why
    assert source.launches[-1].grid == (blocks, 1, 1)
    same(run(source, given, inputs, outputs, wave), wanted, tolerance=LIMITS["float32"])


@pytest.mark.parametrize(
    ("kind", "of", "hidden", "sequences", "units", "clusters"),
    [
        (Lstm, "float32", 140, 3, 32, 1),
        (Lstm, "float16", 170, 1, 132, 1),
        (Gru, "float32", 180, 5, 8, 1),
        (Gru, "float32", 131, 9, 8, 1),
    ],
)
def test_weights_stay_in_the_registers_of_a_cluster(
    kind: type[Any], of: str, hidden: int, sequences: int, units: int, clusters: int
) -> None:
    """Layers of more units than one block holds took a launch for each step."""
    steps, width = 3, 3
    rng = np.random.default_rng(9)
    op = kind(hidden_size=hidden, direction="bidirectional", **({"linear_before_reset": True} if kind is Gru else {}))

    def part(*dims: int) -> Any:
        return (rng.standard_normal(dims) * 0.2).astype(of)

    given = [part(steps, sequences, width), part(2, op.gates * hidden, width), part(2, op.gates * hidden, hidden)]
    lens = rng.integers(1, steps + 1, sequences).astype(np.int32)
    given += [part(2, 2 * op.gates * hidden), lens, part(2, sequences, hidden)]
    inputs = [tensor(g.dtype.name, g.shape) for g in given]
    result = op.compute(*given)
    wanted = [np.asarray(w) for w in (result[:2] if kind is Lstm else [result])]
    outputs = [tensor(of, w.shape) for w in wanted]
    source = resident_fma(op, inputs, outputs, traits(32, units))
    assert isinstance(source, KernelSource)
    assert "CLUSTER(8)" in source.text
    assert source.launches[-1].grid == (8 * clusters, 2, 1)
    same(run(source, given, inputs, outputs), wanted, tolerance=LIMITS[of])
    without = resident_fma(op, inputs, outputs, traits(32, units)._replace(arch="gfx90a", vendor="amd"))
    assert "do not fit" in without.why


@pytest.mark.parametrize(
    ("of", "hidden", "lengths"),
    [("float32", 130, (20, 17, 32)), ("float32", 16, (20, 50)), ("float16", 16, (20, 5, 64))],
)
def test_layers_of_changing_lengths_are_one_program(of: str, hidden: int, lengths: tuple[int, ...]) -> None:
    """A launch per step is one of up to twice as many, of which those after the last step do nothing."""
    built: list[mgx.Program] = []
    for device in (GpuTarget("host", 1), mgx.get_target("ref")):
        program, rng = mgx.Program(), np.random.default_rng(5)
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape(of, [symbol("t", 0, 999), 2, 24]))
        w, r = (m.add_literal((rng.standard_normal((2, 4 * hidden, n)) / 8).astype(of)) for n in (24, hidden))
        layer = m.add(mgx.op("lstm", hidden_size=hidden, direction="bidirectional"), x, w, r)
        m.add_return([m.add(mgx.op("get_tuple_elem", index=n), layer) for n in range(2)])
        program.compile(device)
        built.append(program)
    one = opened(built[0], t=20)
    close = 1e-5 if of == "float32" else 5e-3
    for t in lengths:
        assert one.fits({"t": t})
        given = np.random.default_rng(t).standard_normal((t, 2, 24)).astype(of)
        for got, want in zip(one.runner.run([given]), built[1].run({"x": given}), strict=True):
            np.testing.assert_allclose(got, want.to_numpy(), rtol=close, atol=close)
