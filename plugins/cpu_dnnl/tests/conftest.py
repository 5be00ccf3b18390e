"""Programs of one op, for the tests of plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.target import CpuTarget

LAYOUTS = ("contiguous", "transposed", "sliced")


def program_of(
    op: mgx.Operation, arrays: Sequence[Any], layout: str = "contiguous"
) -> tuple[mgx.Program, dict[str, Any]]:
    """A compiled program and what it is fed, so that the op sees the arrays in a layout; None is an absent operand."""
    program, feeds, inputs = mgx.Program(), {}, []
    m = program.get_main_module()
    for n, a in enumerate(arrays):
        if a is None:
            inputs.append(m.add_absent())
            continue
        name, view = f"x{n}", None
        if layout == "transposed" and a.ndim > 1:
            view = mgx.op("transpose", permutation=tuple(reversed(range(a.ndim))))
            a = np.ascontiguousarray(a.T)
        elif layout == "sliced" and a.ndim:
            ends = tuple(s + 1 for s in a.shape)
            view = mgx.op("slice", axes=tuple(range(a.ndim)), starts=(1,) * a.ndim, ends=ends)
            a = np.pad(a.view(f"u{a.itemsize}"), 1).view(a.dtype)
        feeds[name] = a
        given = m.add_parameter(name, mgx.Shape(dt.of(a.dtype), list(a.shape)))
        inputs.append(given if view is None else m.add(view, given))
    made = m.add(op, *inputs)
    several = isinstance(made.result, mgx.TupleShape)
    count = len(made.result.items) if several else 1
    m.add_return([m.add(mgx.op("get_tuple_elem", index=i), made) for i in range(count)] if several else [made])
    program.compile(CpuTarget())
    return program, feeds


def wide(a: Any) -> Any:
    """Narrow floats as float32, which numpy's tests understand."""
    return a.astype(np.float32) if dt.of(a.dtype) in (dt.bfloat16, dt.float16) else a


@pytest.fixture(params=LAYOUTS)
def agrees(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Checks that an op on arrays gives what its definition does, without a step on the host; in every layout."""

    def check(op: mgx.Operation, *arrays: Any, tolerance: float = 0.0) -> None:
        program, feeds = program_of(op, arrays, request.param)
        with np.errstate(all="ignore"):
            wanted = op.evaluate(arrays)
        for _ in range(2):
            got = [r.to_numpy() for r in program.run(feeds)]
            for a, b in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                np.testing.assert_allclose(wide(a), wide(b), rtol=tolerance, atol=tolerance)
        (instance,) = program.executable.instances()
        assert [p for p in instance.placements if p.place == "host"] == []

    return check


@pytest.fixture
def fails() -> Callable[..., None]:
    """Checks that an op on arrays fails with a text, and that the program goes on with others."""

    def check(
        text: str, op: mgx.Operation, bad: Sequence[Any], good: Sequence[Any], error: Any = mgx.ShapeError
    ) -> None:
        program, _ = program_of(op, good)
        with pytest.raises(error, match=text):
            program.run({f"x{n}": a for n, a in enumerate(bad)})
        wanted = op.evaluate(good)
        got = program.run({f"x{n}": a for n, a in enumerate(good)})
        np.testing.assert_allclose(got[0].to_numpy(), wanted[0] if isinstance(wanted, tuple) else wanted, 1e-5)

    return check
