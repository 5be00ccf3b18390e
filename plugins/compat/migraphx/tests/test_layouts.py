"""Strides shown for instructions: MIGraphX's, where views keep their operand's memory."""

from __future__ import annotations

import numpy as np
import pytest

import migraphx


@pytest.fixture
def main():
    return migraphx.program().get_main_module()


def added(main, name, *inputs, **attributes):
    return main.add_instruction(migraphx.op(name, **attributes), list(inputs))


def test_views_keep_the_memory_of_their_operand(main) -> None:
    x = main.add_parameter("x", migraphx.shape(lens=[2, 3, 4]))
    moved = added(main, "transpose", x, permutation=[0, 2, 1])
    assert moved.shape() == migraphx.shape(lens=[2, 4, 3], strides=[12, 1, 4]) and moved.shape().transposed()
    part = added(main, "slice", moved, axes=[1], starts=[1], ends=[2])
    assert part.shape() == migraphx.shape(lens=[2, 1, 3], strides=[12, 1, 4]) and not part.shape().packed()
    assert added(main, "squeeze", part, axes=[1]).shape().strides() == [12, 4]
    assert added(main, "unsqueeze", x, axes=[0, 2]).shape().strides() == [24, 12, 12, 4, 1]
    assert added(main, "contiguous", moved).shape().standard()
    assert added(main, "reshape", moved, dims=[8, 3]).shape().standard()


def test_repeated_axes_have_no_stride(main) -> None:
    row = main.add_literal(np.ones(3, np.float32))
    wide = added(main, "multibroadcast", row, out_lens=[2, 3])
    assert wide.shape().broadcasted() and wide.shape().strides() == [0, 1]
    assert added(main, "broadcast", row, axis=0, out_lens=[3, 5]).shape().strides() == [1, 0]
    assert added(main, "neg", wide).shape().standard()
    x = main.add_parameter("x", migraphx.shape(lens=[2, 3]))
    assert added(main, "add", x, wide).shape().standard()


def test_computations_keep_the_order_of_axes(main) -> None:
    x = main.add_parameter("x", migraphx.shape(lens=[2, 4, 5, 3]))
    image = added(main, "transpose", x, permutation=[0, 3, 1, 2])
    filters = main.add_literal(np.ones((6, 3, 1, 1), np.float32))
    made = added(main, "relu", added(main, "convolution", image, filters))
    assert made.shape() == migraphx.shape(lens=[2, 6, 4, 5], strides=[120, 1, 30, 6])
    half = added(main, "slice", image, axes=[1], starts=[0], ends=[1])
    assert added(main, "exp", half).shape().packed()
    assert added(main, "add", image, image).shape().strides() == image.shape().strides()
    assert "float_type, {2, 6, 4, 5}, {120, 1, 30, 6}" in repr(main)


def test_long_chains_and_open_extents(main) -> None:
    at = main.add_parameter("x", migraphx.shape(lens=[2, 3]))
    at = added(main, "transpose", at, permutation=[1, 0])
    for _ in range(2000):
        at = added(main, "neg", at)
    assert at.shape().strides() == [1, 3]
    ranges = [migraphx.shape.dynamic_dimension(1, 4), migraphx.shape.dynamic_dimension(3, 3)]
    y = main.add_parameter("y", migraphx.shape(dyn_dims=ranges))
    assert added(main, "transpose", y, permutation=[1, 0]).shape().dynamic()
