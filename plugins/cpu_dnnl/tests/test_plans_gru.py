"""GRU and simple recurrent layers through oneDNN against their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(8)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("batch", "hidden", "steps"), [(1, 48, 9), (3, 7, 4), (5, 24, 1)])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("name", "attributes"),
    [("gru", {}), ("gru", {"linear_before_reset": True}), ("rnn", {}), ("rnn", {"actv_func": ["relu"]})],
)
def test_layers(
    name: str, attributes: dict[str, Any], bias: bool, first: bool, batch: int, hidden: int, steps: int, direction: str
) -> None:
    ways, gates = 2 if direction == "bidirectional" else 1, 3 if name == "gru" else 1
    if "actv_func" in attributes:
        attributes = {"actv_func": attributes["actv_func"] * ways}
    program = mgx.Program()
    m = program.get_main_module()

    def constant(*lens: int) -> mgx.Instruction:
        return m.add_literal((rng.standard_normal(lens) * 0.5 * lens[-1] ** -0.5).astype(np.float32))

    given = {"x": rng.standard_normal((steps, batch, 12)).astype(np.float32)}
    if first:
        given["h"] = rng.standard_normal((ways, batch, hidden)).astype(np.float32)
    parameters = {n: m.add_parameter(n, mgx.Shape("float32", list(v.shape))) for n, v in given.items()}
    weights = [constant(ways, gates * hidden, 12), constant(ways, gates * hidden, hidden)]
    operands = [
        parameters["x"], *weights, constant(ways, 2 * gates * hidden) if bias else m.add_absent(), m.add_absent(),
        parameters["h"] if first else m.add_absent(),
    ]  # fmt: skip
    m.add_return([m.add(mgx.op(name, hidden_size=hidden, direction=direction, **attributes), *operands)])
    (wanted,) = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget())
    for _ in range(2):
        (found,) = program.run(given)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-5, atol=2e-5)
    assert [p.kernel for p in program.executable.instances()[0].placements] == [f"onednn {name}"]
