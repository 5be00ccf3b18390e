"""Recurrent layers by our own loops and by oneDNN, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.plans.recurrent_loop import as_integers, partition
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(8)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("lstm", {}),
    "gru": ("gru", {}),
    "late gru": ("gru", {"linear_before_reset": True}),
    "tanh": ("rnn", {}),
    "relu": ("rnn", {"actv_func": ["relu"]}),
    "sigmoid": ("rnn", {"actv_func": ["sigmoid"]}),
}


def layer(
    kind: str,
    direction: str,
    batch: int,
    hidden: int,
    steps: int,
    bias: bool = True,
    states: str = "hc",
    coded: bool = False,
) -> tuple[mgx.Program, dict[str, Any], list[Any]]:
    """A program of one layer, its arguments, and its reference results; coded: its weights are as after quantization."""
    name, attributes = KINDS[kind]
    ways, gates = 2 if direction == "bidirectional" else 1, {"lstm": 4, "gru": 3, "rnn": 1}[name]
    if "actv_func" in attributes:
        attributes = {"actv_func": attributes["actv_func"] * ways}
    program = mgx.Program()
    m = program.get_main_module()

    def constant(*lens: int) -> mgx.Instruction:
        made = (rng.standard_normal(lens) * 0.5 * lens[-1] ** -0.5).astype(np.float32)
        if coded:
            factors = (rng.uniform(1, 2, (*lens[:-1], 1)) * np.abs(made).max() / 256).astype(np.float32)
            made = np.rint(made / factors).astype(np.float32) * factors
        return m.add_literal(made)

    given = {"x": rng.standard_normal((steps, batch, 12)).astype(np.float32)}
    given |= {
        n: rng.standard_normal((ways, batch, hidden)).astype(np.float32) for n in states if name == "lstm" or n == "h"
    }
    parameters = {n: m.add_parameter(n, mgx.Shape("float32", list(v.shape))) for n, v in given.items()}
    operands = [parameters["x"], constant(ways, gates * hidden, 12), constant(ways, gates * hidden, hidden)]
    operands += [constant(ways, 2 * gates * hidden) if bias else m.add_absent(), m.add_absent()]
    operands += [parameters.get(n) or m.add_absent() for n in ("hc" if name == "lstm" else "h")]
    made = m.add(mgx.op(name, hidden_size=hidden, direction=direction, **attributes), *operands)
    many = range(2) if name == "lstm" else ()
    m.add_return([m.add(mgx.op("get_tuple_elem", index=n), made) for n in many] or [made])
    wanted = Interpreter().run(m, list(given.values()))
    return program, given, [np.asarray(w) for w in wanted]


def found(program: mgx.Program, given: dict[str, Any]) -> list[Any]:
    return [np.asarray(r).copy() for r in program.run(given)]


def kernels(program: mgx.Program) -> list[str]:
    return [p.kernel for p in program.executable.instances()[0].placements]


@pytest.mark.pairs
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("batch", "hidden", "steps"), [(1, 48, 9), (3, 7, 4), (2, 33, 9), (4, 20, 3), (11, 24, 2), (17, 24, 1)]
)
@pytest.mark.parametrize(("bias", "states"), [(True, "hc"), (False, ""), (True, "c"), (False, "h")])
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind: str, bias: bool, states: str, batch: int, hidden: int, steps: int, direction: str) -> None:
    program, given, wanted = layer(kind, direction, batch, hidden, steps, bias, states)
    program.compile(CpuTarget())
    for _ in range(2):
        for one, other in zip(found(program, given), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    wide = native().recurrent_loop(KINDS[kind][0])[1] == 32
    assert kernels(program)[0] == f"{'loop' if batch <= (16 if wide else 4) else 'onednn'} {KINDS[kind][0]}"
    assert all(p.place != "host" for p in program.executable.instances()[0].placements)


@pytest.mark.parametrize(("batch", "hidden"), [(1, 128), (3, 130), (4, 145)])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_were_quantized(kind: str, batch: int, hidden: int) -> None:
    program, given, wanted = layer(kind, "bidirectional", batch, hidden, 5, coded=True)
    program.compile(CpuTarget())
    for one, other in zip(found(program, given), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    weights = [v for v in held_constants(program) if v.dtype == np.uint8]
    assert len(weights) == 1


def held_constants(program: mgx.Program) -> list[Any]:
    steps = program.executable.instances()[0].runner.schedule.steps
    return [buffer.array for step in steps for buffer in step.reads if buffer.array is not None]


def test_weights_as_whole_numbers_and_factors() -> None:
    numbers = rng.integers(-255, 256, (2, 3, 400, 64)).astype(np.float32)
    numbers[0, 0, :, 0], numbers[1, 2, :, 63] = 0, 3 * rng.integers(1, 80, 400)
    factors = rng.uniform(1e-4, 1e-3, (2, 3, 1, 64)).astype(np.float32)
    codes = as_integers(numbers * factors)
    assert codes is not None
    held = 2 * 400 * 64
    words = np.ascontiguousarray(codes[..., :held]).view(np.uint16).astype(np.uint32) << 16
    found = np.ascontiguousarray(codes[..., held:]).view(np.float32).reshape(2, 3, 1, 64)
    made = words.view(np.float32).reshape(2, 3, 400, 64) * found
    np.testing.assert_allclose(made, numbers * factors, rtol=1e-6)
    assert as_integers(rng.standard_normal((1, 1, 400, 64)).astype(np.float32)) is None
    numbers[1, 1, 7, 5] += 0.25
    assert as_integers(numbers * factors) is None


@pytest.mark.pairs
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", ["lstm", "gru", "late gru", "relu"])
def test_threads_that_share_units_change_nothing(kind: str, batch: int, direction: str) -> None:
    """A layer whose weights exceed a processor's cache, concurrent with runs of other threads, with more threads than
    processors.
    """
    program, given, wanted = layer(kind, direction, batch, 480 if kind == "relu" else 360, 12)
    program.compile(CpuTarget(), threads=6)
    right: list[bool] = []

    def repeat() -> None:
        for _ in range(10):
            results = zip(found(program, given), wanted, strict=True)
            right.append(all(np.allclose(one, other, rtol=2e-5, atol=2e-5) for one, other in results))

    repeat()
    others = [Thread(target=repeat) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert right == [True] * 30


@pytest.mark.parametrize(
    ("kind", "hidden", "small"), [("lstm", 78, True), ("lstm", 80, False), ("gru", 128, True), ("gru", 130, False)]
)
def test_large_weights_are_not_read_again_for_many_sequences(kind: str, hidden: int, small: bool) -> None:
    program, given, _ = layer(kind, "forward", 6, hidden, 1)
    program.compile(CpuTarget())
    found(program, given)
    small = small and native().recurrent_loop(kind)[1] == 32
    assert kernels(program)[0] == f"{'loop' if small else 'onednn'} {kind}"


def test_sequences_are_divided_where_the_weights_fit_in_the_cache() -> None:
    small, large = 1 << 18, 1 << 21
    assert partition(2, 1, 1, small) == (1, 2)
    assert partition(2, 1, 4, small) == (2, 1)
    assert partition(2, 2, 4, small) == (4, 1)
    assert partition(2, 1, 4, large) == (4, 2)
    assert partition(16, 2, 1, large) == (1, 8)
    assert partition(1, 1, 3, large) == (3, 1)
    assert partition(2, 1, 1, 1 << 16) == (1, 1)  # too little for a thread of its own


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "lstm"])
@pytest.mark.parametrize("batch", [2, 40])
def test_nan_reaches_all_later_states(kind: str, batch: int) -> None:
    """Without fast_math; oneDNN's relu returns 0 for it."""
    program, given, _ = layer(kind, "forward", batch, 24, 3)
    given["x"][1, 1, 3] = np.nan
    program.compile(mgx.get_target("cpu"), fast_math=False)
    states = np.asarray(program.run(given)[0])
    assert np.isnan(states[1:, 0, 1]).all()
    assert np.isfinite(np.delete(states, 1, 2)).all()
    assert np.isfinite(states[0]).all()


FUNCTIONS = [
    ("tanh", 0.0, 0.0), ("relu", 0.0, 0.0), ("sigmoid", 0.0, 0.0), ("affine", 0.7, 0.1), ("leaky_relu", 0.1, 0.0),
    ("thresholded_relu", 0.3, 0.0), ("scaled_tanh", 0.9, 1.3), ("hard_sigmoid", 0.25, 0.4), ("elu", 0.8, 0.0),
    ("softsign", 0.0, 0.0), ("softplus", 0.0, 0.0),
]  # fmt: skip


def any_layer(name: str, batch: int, more: dict[str, Any], optional: str, constant: bool = True) -> tuple[Any, Any]:
    """A program of one layer and its arguments; optional: names of the operands that it has beside x, w and r."""
    steps, hidden, ways = 7, 19, 2 if more.get("direction") == "bidirectional" else 1
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    lens = {
        "x": (steps, batch, 6), "w": (ways, gates * hidden, 6), "r": (ways, gates * hidden, hidden), "b": (ways, 2 * gates * hidden),
        "l": (batch,), "h": (ways, batch, hidden), "c": (ways, batch, hidden), "p": (ways, 3 * hidden),
    }  # fmt: skip
    values = {
        n: (rng.standard_normal(lens[n]) * (0.1 if n == "r" else 0.5)).astype(np.float32)
        for n in "xwr" + optional.replace("l", "")
    }
    if "l" in optional:
        values["l"] = np.array([steps, 4, 1, 0, 5, *[steps - 1] * batch][:batch], np.int32)
        for n, end in enumerate(values["l"]):
            values["x"][end:, n] = np.nan
    program = mgx.Program()
    m = program.get_main_module()
    known = {n for n in "wrbp" if n in values} if constant else set()
    parameters = {
        n: m.add_parameter(n, mgx.Shape(str(values[n].dtype), v.shape)) for n, v in values.items() if n not in known
    }
    operands = [
        m.add_literal(values[n]) if n in known else parameters.get(n) or m.add_absent()
        for n in ("xwrblhcp" if name == "lstm" else "xwrblh")
    ]
    made = m.add(mgx.op(name, hidden_size=hidden, **more), *operands)
    hidden_states = m.add(mgx.op("get_tuple_elem", index=0), made) if name == "lstm" else made
    results = [hidden_states]
    if "l" in optional:
        last = mgx.op("rnn_last_hs_output", direction=more.get("direction", "forward"))
        results.append(m.add(last, hidden_states, parameters["l"]))
    if name == "lstm":
        results.append(m.add(mgx.op("rnn_last_cell_output"), made))
    m.add_return(results)
    return program, {n: v for n, v in values.items() if n not in known}


def check_in_loop(program: mgx.Program, given: dict[str, Any], **options: Any) -> None:
    """Compares the results with the reference; the layer runs as one kernel."""
    right = program.clone()
    right.compile(mgx.get_target("ref"))
    program.compile(CpuTarget(), **options)
    for _ in range(2):
        for one, other in zip(found(program, given), found(right, given), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * max(1, np.abs(other).max()))
    layers = [p for p in program.executable.instances()[0].placements if p.op.split("[")[0] in ("lstm", "gru", "rnn")]
    assert len(layers) == 1
    assert layers[0].kernel.startswith("loop")
    assert all(p.place != "host" for p in program.executable.instances()[0].placements)


LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("lstm", {}), ("lstm", {"clip": 0.4, "input_forget": True}), ("gru", {"clip": 0.3}), ("gru", {"linear_before_reset": True}),
    ("gru", {"linear_before_reset": True, "clip": 0.3}), ("rnn", {"clip": 0.2}),
]  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("name", "more", "optional", "constant", "batch"),
    [
        (name, more, optional, constant, batch)
        for name, more in LAYERS
        for optional in ("", "b", "bl", "bhl", *(("bhc", "bhlcp") if name == "lstm" else ("bh",)))
        for constant in (True, False)
        for batch in (1, 3, 21)
        if batch < 21 or not constant or "l" in optional or "clip" in more  # oneDNN computes the others
    ],
)
def test_operands_and_attributes(
    name: str, more: dict[str, Any], optional: str, constant: bool, batch: int, direction: str
) -> None:
    program, given = any_layer(name, batch, {**more, "direction": direction}, optional, constant)
    check_in_loop(program, given)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f[0])
@pytest.mark.parametrize(("name", "count"), [("lstm", 3), ("gru", 2), ("rnn", 1)])
def test_functions(name: str, count: int, function: tuple[str, float, float]) -> None:
    """Each function at each place, in one direction; the other has others."""
    for place in range(count):
        chosen = [FUNCTIONS[n % 2 * 2] for n in range(2 * count)]
        chosen[count + place] = function
        names, alphas, betas = zip(*chosen, strict=True)
        more = {"direction": "bidirectional", "actv_func": names, "actv_alpha": alphas, "actv_beta": betas}
        check_in_loop(*any_layer(name, 2, more, "bh"))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f[0])
def test_functions_of_extreme_values(function: tuple[str, float, float]) -> None:
    name, alpha, beta = function
    program, given = any_layer("rnn", 1, {"actv_func": (name,), "actv_alpha": (alpha,), "actv_beta": (beta,)}, "")
    given["x"][1] *= 1e4
    given["x"][2] *= 1e-6
    check_in_loop(program, given)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_threads_that_share_units_of_sequences_with_lengths(name: str) -> None:
    ways, hidden, gates = 2, 400, {"lstm": 4, "gru": 3, "rnn": 1}[name]
    program = mgx.Program()
    m = program.get_main_module()
    given = {"x": rng.standard_normal((9, 3, 12)).astype(np.float32), "l": np.array([9, 0, 5], np.int32)}
    parameters = [m.add_parameter(n, mgx.Shape(str(v.dtype), v.shape)) for n, v in given.items()]
    weights = [
        m.add_literal((rng.standard_normal(s) * 0.05).astype(np.float32))
        for s in ((ways, gates * hidden, 12), (ways, gates * hidden, hidden))
    ]
    op = mgx.op(name, hidden_size=hidden, direction="bidirectional", clip=0.5)
    made = m.add(op, parameters[0], *weights, m.add_absent(), parameters[1])
    m.add_return([m.add(mgx.op("get_tuple_elem", index=0), made) if name == "lstm" else made])
    check_in_loop(program, given, threads=6)


@pytest.mark.parametrize("length", [-1, 8])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_lengths_out_of_range(name: str, length: int) -> None:
    program, given = any_layer(name, 2, {}, "l")
    program.compile(CpuTarget())
    with pytest.raises(mgx.MgxError):
        program.run(given | {"l": np.array([3, length], np.int32)})


@pytest.mark.parametrize("hidden", [5, 48])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_batches_of_any_size(agrees_open: Callable[..., None], direction: str, kind: str, hidden: int) -> None:
    if kind == "rnn" and hidden == 5 and direction != "bidirectional" and not shared().engine.wide:
        pytest.skip("with AVX2, oneDNN runs few units, for fixed extents")
    r = np.random.default_rng(6)
    gates, directions = {"rnn": 1, "gru": 3, "lstm": 4}[kind], 1 + (direction == "bidirectional")
    weights = [0.2 * r.standard_normal((directions, gates * hidden, n)).astype(np.float32) for n in (7, hidden)]
    op = mgx.op(kind, hidden_size=hidden, direction=direction)
    agrees_open(op, ["t", "b", 7], weights, [(6, 5), (9, 2), (3, 33), (12, 17)], 1e-4)
