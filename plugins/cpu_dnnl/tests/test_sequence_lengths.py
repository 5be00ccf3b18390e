"""Recurrent layers over sequences of different lengths run on the target; results equal the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

STEPS, BATCH, WIDTH, HIDDEN = 7, 5, 6, 8


def layer(kind: str, direction: str, states: bool, last: str) -> tuple[mgx.Program, dict[str, Any]]:
    rng = np.random.default_rng(11)
    gates, ways = {"lstm": 4, "gru": 3, "rnn": 1}[kind], 2 if direction == "bidirectional" else 1
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [STEPS, BATCH, WIDTH]))
    lengths = m.add_parameter("lengths", mgx.Shape("int32", [BATCH]))
    shapes = [ways, gates * HIDDEN, WIDTH], [ways, gates * HIDDEN, HIDDEN], [ways, 2 * gates * HIDDEN]
    w, r, bias = (m.add_literal(rng.standard_normal(s).astype(np.float32) / 3) for s in shapes)
    first = [
        m.add_literal(rng.standard_normal([ways, BATCH, HIDDEN]).astype(np.float32))
        for _ in range(2 if kind == "lstm" else 1)
    ]
    made = m.add(
        mgx.op(kind, hidden_size=HIDDEN, direction=direction), x, w, r, bias, lengths, *(first if states else [])
    )
    hidden = m.add(mgx.op("get_tuple_elem", index=0), made) if kind == "lstm" else made
    results = {
        "all": lambda: hidden,
        "last": lambda: m.add(mgx.op("rnn_last_hs_output", direction=direction), hidden, lengths),
        "cell": lambda: m.add(mgx.op("rnn_last_cell_output"), made),
    }
    m.add_return([results[last]()])
    values = rng.standard_normal([STEPS, BATCH, WIDTH]).astype(np.float32)
    values[4:, 1] = np.nan  # after the end of a sequence
    return program, {"x": values, "lengths": np.array([STEPS, 4, 1, 0, 5], np.int32)}


@pytest.mark.parametrize("last", ["all", "last"])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_lengths(both: Any, kind: str, direction: str, states: bool, last: str) -> None:
    program, values = layer(kind, direction, states, last)
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert not any(name.startswith("host") for name in steps), steps


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_last_states_of_cells(both: Any, direction: str) -> None:
    program, values = layer("lstm", direction, False, "cell")
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert not any(name.startswith("host") for name in steps), steps


def test_hidden_states_and_cells_are_of_one_layer() -> None:
    program, values = layer("lstm", "forward", False, "cell")
    m = program.get_main_module()
    made = next(i for i in m if i.op.name == "lstm")
    m.replace_return([m.add(mgx.op("get_tuple_elem", index=0), made), m.outputs[0]])
    program.compile(mgx.get_target("cpu"))
    program.run(values)
    ops = [p.op for i in program.executable.instances() for p in i.placements]
    assert sum(op.startswith("lstm") for op in ops) == 1, ops


def test_a_length_that_does_not_fit(both: Any) -> None:
    program, values = layer("gru", "forward", False, "all")
    program.compile(mgx.get_target("cpu"))
    with pytest.raises(mgx.MgxError):
        program.run(values | {"lengths": np.full(BATCH, STEPS + 1, np.int32)})
