"""Results of two convolutions that are added or multiplied: one of them is quantized where their sum or product is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Program, Shape, op
from mgx_core.ops.quantized import Quantizelinear

RNG = np.random.default_rng(7)
IMAGE = RNG.normal(size=(2, 8, 6, 6)).astype(np.float32)
WEIGHTS = [RNG.normal(size=(8, 8, 1, 1)).astype(np.float32) for _ in range(3)]


def network(name: str, size: float = 0.5, one: bool = False) -> Program:
    """Two convolutions, the second with results of another size, an op on both results, and a third convolution of that."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    first = m.add(op("convolution"), x, m.add_literal(WEIGHTS[0]))
    second = m.add(op("convolution"), m.add(op("neg"), x), m.add_literal(WEIGHTS[1] * np.float32(size)))
    second = x if one else m.add(op("relu"), second)
    made = m.add(op("relu"), m.add(op(name), first, second))
    last = m.add(op("convolution"), made, m.add_literal(WEIGHTS[2]))
    m.add_return([last])
    return program


def rounded(program: Program, **settings: Any) -> list[str]:
    """Returns the ops whose results are quantized, without the inputs of the first two convolutions."""
    mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": IMAGE}], smooth=False, correct_bias=False, **settings)
    names = [i.inputs[0].op.name for i in program.get_main_module() if isinstance(i.op, Quantizelinear)]
    return [n for n in names if n not in ("@param", "neg")]


@pytest.mark.parametrize("name", ["add", "mul"])
def test_the_narrower_one_is_rounded(name: str) -> None:
    assert rounded(network(name, 0.1)) == ["relu", "relu"]
    assert rounded(network(name, 10)) == ["convolution", "relu"]


def test_results_that_are_read_as_they_are_keep_their_accuracy() -> None:
    program = network("add", 0.1)
    m = program.get_main_module()
    total = next(i for i in m if i.op.name == "add")
    m.replace_return([*m.outputs, m.add(op("neg"), total)])
    assert rounded(program) == ["relu"]


def test_a_sum_with_another_op_than_a_convolution_is_unchanged() -> None:
    assert rounded(network("add", one=True)) == ["relu"]


def test_functions_false_quantizes_only_operands_of_products() -> None:
    assert rounded(network("add", 0.1), functions=False) == ["relu"]


def test_one_of_two_results_is_stored_as_8_bit_floats() -> None:
    """resnet50's error did not change (0.1517 and 0.1512 of the results' norm); its shortcuts took twice the memory."""
    for functions, count in ((True, 4), (False, 3)):
        program = network("add", 0.1)
        mgx.quantize_fp8(program, mgx.get_target("ref"), [{"x": IMAGE}], functions=functions)
        assert sum(isinstance(i.op, Quantizelinear) for i in program.get_main_module()) == count


def test_sums_of_whole_numbers_are_left() -> None:
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    whole = [
        m.add(op("convert", target_type="int32"), m.add(op("convolution"), x, m.add_literal(w))) for w in WEIGHTS[:2]
    ]
    total = m.add(op("convert", target_type="float"), m.add(op("add"), *whole))
    m.add_return([m.add(op("convolution"), total, m.add_literal(WEIGHTS[2]))])
    assert rounded(program) == ["convert"]
