"""Concatenations whose parts are passed on: they are quantized once if no reader needs their exact elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import Program, Shape, op
from mgx_core.ops.quantized import Quantizelinear
from mgx_core.quantize.concatenations import joined_ranges

RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=(2, 8, 6, 6)).astype(np.float32)
WEIGHTS = [(RNG.normal(size=(4, 8 if n == 0 else 4, 1, 1)) / 2).astype(np.float32) for n in range(4)]
LAST = (RNG.normal(size=(4, 8, 1, 1)) / 2).astype(np.float32)


def shuffled(m: Any, x: Any) -> Any:
    """Interleaves the channels of two halves, so that each slice has channels of both."""
    apart = m.add(op("reshape", dims=(2, 2, 4, 6, 6)), x)
    return m.add(op("reshape", dims=(2, 8, 6, 6)), m.add(op("transpose", permutation=(0, 2, 1, 3, 4)), apart))


def half(m: Any, x: Any, number: int) -> Any:
    return m.add(op("slice", axes=(1,), starts=(4 * number,), ends=(4 * number + 4,)), x)


def network(size: float = 1.0, summed: bool = False) -> Program:
    """Two units that pass on half of their channels and compute the others; size: extent of the second one's results."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    kept = m.add(op("convolution"), x, m.add_literal(WEIGHTS[0]))
    made = m.add(op("relu"), m.add(op("convolution"), kept, m.add_literal(WEIGHTS[1])))
    joined = shuffled(m, m.add(op("concat", axis=1), kept, made))
    kept = half(m, joined, 0)
    other = m.add(op("convolution"), half(m, joined, 1), m.add_literal((WEIGHTS[2] * size).astype(np.float32)))
    joined = shuffled(m, m.add(op("concat", axis=1), kept, other))
    result = m.add(op("convolution"), joined, m.add_literal(LAST))
    m.add_return([result, m.add(op("neg"), kept)] if summed else [result])
    return program


def quantized(program: Program) -> Program:
    return mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": IMAGE}], smooth=False, correct_bias=False)


def rounded(program: Program) -> list[Quantizelinear]:
    return [i for i in program.get_main_module() if isinstance(i.op, Quantizelinear)]


def scales(program: Program) -> list[float]:
    return [float(np.asarray(i.inputs[1].literal.value)) for i in rounded(program)]


def test_chains_of_joined_tensors_are_rounded_over_one_range() -> None:
    program = quantized(network())
    assert [i.inputs[0].op.name for i in rounded(program)] == ["@param", "convolution", "concat", "concat"]
    *_, first, second = scales(program)
    assert first == second


def test_tensors_of_other_sizes_keep_their_ranges() -> None:
    program = quantized(network(50))
    assert [i.inputs[0].op.name for i in rounded(program)] == ["@param", "convolution", "slice", "reshape"]


def test_parts_that_are_read_as_they_are_stay_so() -> None:
    """The first concatenation is not quantized; the second one, which has no other readers, is."""
    program = quantized(network(summed=True))
    assert [i.inputs[0].op.name for i in rounded(program)] == ["@param", "convolution", "slice", "concat"]


def test_nothing_is_joined_without_a_moved_part() -> None:
    m = network().get_main_module()
    concats = [i for i in m if i.op.name == "concat"]
    assert joined_ranges({concats[1]: (-1.0, 1.0)}) == ({}, set())


def test_functions_of_joined_tensors_are_rounded_themselves() -> None:
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    parts = [m.add(op("convolution"), x, m.add_literal(WEIGHTS[0] * sign)) for sign in (np.float32(1), np.float32(-1))]
    joined = shuffled(m, m.add(op("concat", axis=1), *parts))
    first = m.add(op("convolution"), half(m, joined, 0), m.add_literal(WEIGHTS[1]))
    second = m.add(op("convolution"), m.add(op("leaky_relu", alpha=0.9), joined), m.add_literal(LAST))
    m.add_return([first, second])
    quantized(program)
    assert {i.inputs[0].op.name for i in m if i.op.name == "convolution"} == {"dequantizelinear"}
