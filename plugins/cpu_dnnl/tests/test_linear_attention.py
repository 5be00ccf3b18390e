"""Linear attention runs on the target for any number of steps."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import op
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape


@pytest.mark.parametrize("open_extents", [False, True])
@pytest.mark.parametrize("steps", [1, 3, 20])
def test_no_step_runs_on_the_host(steps: int, open_extents: bool) -> None:
    rng = np.random.default_rng(2)
    batch, length = (symbol("B", 1, 4), symbol("T", 1, 64)) if open_extents else (2, steps)
    dims = {"q": (batch, length, 12), "k": (batch, length, 6), "v": (batch, length, 8), "s": (batch, 2, 3, 4)}
    dims |= {"d": (batch, length, 2), "b": (batch, length, 2)}
    program = mgx.Program()
    main = program.get_main_module()
    operands = [main.add_parameter(n, Shape.of(mgx.dtype.float32, d)) for n, d in dims.items()]
    attention = op("linear_attention", q_num_heads=4, kv_num_heads=2)
    made = main.add(attention, *operands)
    main.add_return([main.add(op("get_tuple_elem", index=i), made) for i in range(2)])
    program.compile(mgx.get_target("cpu"))
    given = {n: rng.normal(size=(2, *(steps if a is length else a for a in d[1:]))) / 2 for n, d in dims.items()}
    given = {n: x.astype(np.float32) for n, x in given.items()}
    found = [np.asarray(x) for x in program.run(given)]
    for one, other in zip(found, attention.evaluate(list(given.values())), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    places = [p for i in program.executable.instances() for p in i.placements]
    assert places and not [p.op for p in places if p.place == "host"]
