"""Products and convolutions of every number type as loops: exact for integers, and never on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.target import CpuTarget

TYPES = ["float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
rng = np.random.default_rng(5)


def data(name: str, *lens: int) -> Any:
    """Returns random numbers over the whole range of a type."""
    kind = dt.of(name)
    if kind.is_float:
        return rng.standard_normal(lens).astype(kind.numpy)
    return np.asarray(rng.integers(kind.lowest, kind.highest, lens, kind.numpy, endpoint=True))


def check(op: mgx.Operation, arrays: Sequence[Any], literals: Sequence[int] = ()) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    inputs, given = [], {}
    for n, a in enumerate(arrays):
        if n in literals:
            inputs.append(m.add_literal(a))
        else:
            inputs.append(m.add_parameter(f"x{n}", mgx.Shape(dt.of(a.dtype), list(a.shape))))
            given[f"x{n}"] = a
    m.add_return([m.add(op, *inputs)])
    program.compile(CpuTarget())
    (got,) = (r.to_numpy() for r in program.run(given))
    wanted = op.evaluate(arrays)
    assert not [s.name for s in program.executable.instances()[-1].runner.schedule.steps if s.host]
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    kind = dt.of(got.dtype)
    if not kind.is_float or not got.size:
        np.testing.assert_array_equal(got, wanted)
        return
    wide, right = got.astype(np.float64), wanted.astype(np.float64)
    depth = arrays[0].shape[-1] if op.name == "dot" else int(np.prod(arrays[1].shape[1:]))
    unit = max(dt.float32.epsilon if kind.bits < 64 else 0.0, kind.epsilon)
    magnitude = np.abs(right).max() + np.sqrt(depth)
    assert np.abs(wide - right).max() <= unit * (1 + np.sqrt(depth)) * magnitude


@pytest.mark.parametrize("literals", [(), (1,)], ids=["variable", "constant"])
@pytest.mark.parametrize(
    "lens", [((5, 7), (7, 6)), ((1, 40), (40, 33)), ((2, 3, 17, 20), (2, 3, 20, 35)), ((13, 64), (64, 32))]
)
@pytest.mark.parametrize("name", TYPES)
def test_dot(name: str, lens: tuple[tuple[int, ...], ...], literals: tuple[int, ...]) -> None:
    check(mgx.op("dot"), [data(name, *n) for n in lens], literals)


@pytest.mark.parametrize("lens", [((3, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 1, 5), (2, 5, 1))])
def test_dot_of_little(lens: tuple[tuple[int, ...], ...]) -> None:
    check(mgx.op("dot"), [data("float64", *n) for n in lens])


def test_dot_of_operands_with_other_layouts() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    a = m.add_parameter("a", mgx.Shape("int32", [7, 3, 5]))
    b = m.add_parameter("b", mgx.Shape("int32", [1, 6, 7]))
    left = m.add(mgx.op("transpose", permutation=[1, 2, 0]), a)
    right = m.add(mgx.op("transpose", permutation=[0, 2, 1]), m.add(mgx.op("multibroadcast", out_lens=[3, 6, 7]), b))
    m.add_return([m.add(mgx.op("dot"), left, right)])
    program.compile(CpuTarget())
    x, y = data("int32", 7, 3, 5), data("int32", 1, 6, 7)
    wanted = x.transpose(1, 2, 0) @ np.broadcast_to(y, (3, 6, 7)).transpose(0, 2, 1)
    np.testing.assert_array_equal(program.run({"a": x, "b": y})[0].to_numpy(), wanted)
    assert not program.executable.instances()[0].runner.program.hosted


@pytest.mark.parametrize(("a", "b"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_quantized_products(a: str, b: str) -> None:
    dot = mgx.op("quant_dot")
    check(dot, [data(a, 5, 70), data(b, 70, 19)])
    check(dot, [data(a, 3, 5, 70), data(b, 70, 19), data(a), data(b, 1, 19)])
    check(dot, [data(a, 3, 5, 70), data(b, 3, 70, 19), data(a, 5, 1), data(b, 3, 1, 19)], (1, 3))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_products_of_16_bit_floats_with_float32_sums(name: str) -> None:
    dot = mgx.op("quant_dot")
    check(dot, [data(name, 5, 70), data(name, 70, 19)], (1,))
    check(dot, [data(name, 1, 5, 70), data(name, 3, 70, 19)])
    check(dot, [data(name, 3, 5, 70), data(name, 70, 19), data(name), data(name, 1, 19)])


SATURATING = """
import numpy as np, mgx_core as mgx
program = mgx.Program()
m = program.get_main_module()
x = m.add_parameter("x", mgx.Shape("uint8", [4, 64]))
w = m.add_literal(np.full((64, 32), 127, np.int8))
m.add_return([m.add(mgx.op("quant_dot"), x, w)])
program.compile(mgx.get_target("cpu"))
found = np.asarray(program.run({"x": np.full((4, 64), 255, np.uint8)})[0])
assert (found == 64 * 255 * 127).all(), found
"""


@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_quantized_products_where_pairs_of_bytes_saturate(isa: str) -> None:
    """oneDNN's ISA limit emulates a processor without instructions that accumulate four products in 32 bits."""
    done = subprocess.run(
        [sys.executable, "-c", SATURATING], env=os.environ | {"ONEDNN_MAX_CPU_ISA": isa}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("x", "w"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_quantized_convolutions(x: str, w: str) -> None:
    padded = mgx.op("quant_convolution", padding=(1, 1))
    check(padded, [data(x, 2, 4, 9, 8), data(w, 6, 4, 3, 3), data(x), data(w, 6)], (1, 3))
    check(padded, [data(x, 2, 4, 9, 8), data(w, 6, 4, 3, 3), data(x), data(w, 6)])
    check(mgx.op("quant_convolution", group=2, stride=(2, 1)), [data(x, 2, 4, 9, 8), data(w, 6, 2, 3, 3)])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int8", "int32"])
def test_convolution(name: str) -> None:
    op = mgx.op("convolution", padding=(1, 1, 2, 0), stride=(2, 1), dilation=(1, 2))
    check(op, [data(name, 2, 4, 9, 8), data(name, 6, 4, 3, 3)], (1,))
    check(op, [data(name, 2, 4, 9, 8), data(name, 6, 4, 3, 3)])
    check(mgx.op("convolution", padding=(1, 1)), [data(name, 1, 13, 7, 7), data(name, 65, 13, 3, 3)])
    check(mgx.op("convolution", padding=(1, 1)), [data(name, 1, 8, 8, 8), data(name, 8, 8, 3, 3)], (1,))
    check(mgx.op("convolution", group=4), [data(name, 2, 4, 9), data(name, 8, 1, 3)], (1,))
    check(mgx.op("convolution", padding=(0, 1, 1)), [data(name, 1, 4, 5, 6, 7), data(name, 3, 4, 2, 1, 3)])
    check(mgx.op("convolution", padding_mode="same_upper", stride=(2,)), [data(name, 1, 3, 6), data(name, 2, 3, 3)])


def test_instances_share_constants_made_ready() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float64", [mgx.dim.symbol("n", 1, 9), 16]))
    w = data("float64", 16, 24)
    m.add_return([m.add(mgx.op("dot"), x, m.add_literal(w))])
    program.compile(CpuTarget())
    for n in (1, 4):
        given = data("float64", n, 16)
        np.testing.assert_allclose(program.run({"x": given})[0].to_numpy(), given @ w, rtol=1e-13, atol=1e-13)
    owners = {
        id(b.owner)
        for i in program.executable.instances()
        for b in i.plan.literals
        if type(b.owner).__name__ == "Derived"
    }
    assert len(owners) == 1
