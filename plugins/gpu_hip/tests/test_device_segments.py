"""Segments between host ops: which run on the device, and their placement in reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_gpu_hip.target import GpuTarget

WIDE, NARROW = 72, 8  # their squares are above and below the number of weights for which the device pays off


def weights(m: mgx.Module, width: int) -> mgx.Instruction:
    return m.add_literal(np.random.default_rng(width).standard_normal((width, width), np.float32) / np.float32(width))


def first_of_parts(m: mgx.Module, width: int) -> list[mgx.Instruction]:
    """A product with the first part of x: a list of parts stays on the host, and its first part has a data-dependent number of
    rows.
    """
    x = m.add_parameter("x", mgx.shape(type="float32", lens=(12, width)))
    lens = m.add_parameter("lens", mgx.shape(type="int64", lens=(2,)))
    parts = m.add(mgx.op("split_to_sequence", axis=0), x, lens)
    first = m.add(mgx.op("sequence_at"), parts, m.add_literal(np.array(0)))
    return [m.add(mgx.op("relu"), m.add(mgx.op("dot"), first, weights(m, width)))]


def powers(m: mgx.Module, width: int) -> list[mgx.Instruction]:
    """Multiplies x with the weights as many times as the first of `lens` says."""
    x = m.add_parameter("x", mgx.shape(type="float32", lens=(12, width)))
    lens = m.add_parameter("lens", mgx.shape(type="int64", lens=(2,)))
    trips = m.add(mgx.op("squeeze", axes=[0]), m.add(mgx.op("slice", axes=[0], starts=[0], ends=[1]), lens))
    body = mgx.Module("body")
    body.add_parameter("trip", mgx.shape(type="int64", lens=()))
    going = body.add_parameter("going", mgx.shape(type="bool", lens=()))
    state = body.add_parameter("state", mgx.shape(type="float32", lens=(12, width)))
    body.add_return([going, body.add(mgx.op("tanh"), body.add(mgx.op("dot"), state, weights(body, width)))])
    loop = m.add(mgx.op("loop"), trips, m.add_literal(np.array(True)), x, modules=[body])
    return [m.add(mgx.op("get_tuple_elem", index=0), loop)]


@pytest.mark.parametrize(("width", "place"), [(WIDE, "target"), (NARROW, "host")])
@pytest.mark.parametrize("build", [first_of_parts, powers])
def test_products_run_on_the_device_where_they_are_worth_it(
    build: Callable[[mgx.Module, int], list[mgx.Instruction]], width: int, place: str
) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return(build(m, width))
    plain = m.clone()
    program.compile(GpuTarget("host", 1))
    (instance,) = program.executable.instances()
    assert {p.place for p in instance.placements if "dot" in p.op} == {place}
    x = np.random.default_rng(0).standard_normal((12, width), np.float32)
    for lens in ([3, 9], [7, 5], [3, 9], [12, 0]):
        feed: dict[str, Any] = {"x": x, "lens": np.array(lens)}
        (found,), (wanted,) = program.run(feed), Interpreter().run(plain, list(feed.values()))
        np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-5, atol=1e-6)
