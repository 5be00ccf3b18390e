"""Extents that graphs compute: floor division of numbers and of symbolic extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)


def graph_of_rows(new_graph: Any, dims: list[int], divisor: int) -> Any:
    """Returns a graph of the first -(-n // divisor) of the n rows of x."""
    g = new_graph()
    g.placeholder("x", F32, dims)
    g.node("Shape", "shape", "x", T=F32, out_type=I32)
    ends = [g.const(name, value, np.int32) for name, value in (("b", [0]), ("e", [1]), ("s", [1]))]
    g.node("StridedSlice", "n", "shape", *ends, T=I32, Index=I32, shrink_axis_mask=1)
    g.node("Neg", "below", "n", T=I32)
    g.node("FloorDiv", "quotient", "below", g.const("d", divisor, np.int32), T=I32)
    g.node("Neg", "count", "quotient", T=I32)
    g.node("Pack", "size", "count", g.const("all", -1, np.int32), T=I32, N=2)
    g.node("Slice", "y", "x", g.const("zero", [0, 0], np.int32), "size", T=F32, Index=I32)
    return g


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("rows", [5, 6, 1])
def test_a_quotient_of_an_open_extent_is_an_extent(rows: int, target: str, new_graph: Any):
    program = mgx.parse_buffer(graph_of_rows(new_graph, [-1, 3], 2).data, "tf", output_names=["y"])
    (shape,) = program.get_output_shapes()
    assert "x_0" in str(shape.dims[0]) and shape.dims[1] == 3
    program.compile(mgx.get_target(target))
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), x[: -(-rows // 2)])


def test_a_quotient_of_a_known_extent_is_a_number(new_graph: Any):
    program = mgx.parse_buffer(graph_of_rows(new_graph, [7, -1], 3).data, "tf", output_names=["y"])
    assert program.get_output_shapes()[0].dims[0] == 3


def test_a_quotient_by_zero_is_left_to_the_run(new_graph: Any):
    program = mgx.parse_buffer(graph_of_rows(new_graph, [7, 2], 0).data, "tf", output_names=["y"])
    program.compile(mgx.get_target("ref"))
    assert np.asarray(program.run({"x": np.zeros((7, 2), np.float32)})[0]).shape == (0, 2)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("width", [-1, 3])
def test_a_list_of_open_length_of_elements_of_open_extents(width: int, target: str, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F32, [width, 2])
    g.placeholder("n", I32, [])
    g.node("TensorListReserve", "list", g.const("dims", [width, 2], np.int32), "n", element_dtype=F32, shape_type=I32)
    g.node("TensorListSetItem", "set", "list", g.const("at", 1, np.int32), "x", element_dtype=F32)
    g.node("TensorListStack", "y", "set", "dims", element_dtype=F32)
    program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
    program.compile(mgx.get_target(target))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for count in (2, 4):
        found = np.asarray(program.run({"x": x, "n": np.int32(count)})[0])
        wanted = np.zeros((count, 3, 2), np.float32)
        wanted[1] = x
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("open_shift", [True, False])
def test_rows_of_an_open_number_are_rolled(open_shift: bool, target: str, new_graph: Any):
    """Also by more than the number of rows."""
    for shift in (1, -2, 7):
        g = new_graph()
        g.placeholder("x", F32, [-1, 2])
        by = g.placeholder("by", I32, []) if open_shift else g.const("by", shift, np.int32)
        g.node("Roll", "y", "x", by, g.const("axis", 0, np.int32), T=F32, Tshift=I32, Taxis=I32)
        program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
        program.compile(mgx.get_target(target))
        x = np.arange(6, dtype=np.float32).reshape(3, 2)
        given = {"x": x, "by": np.int32(shift)} if open_shift else {"x": x}
        np.testing.assert_array_equal(np.asarray(program.run(given)[0]), np.roll(x, shift, 0))


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot_with_its_depth_as_input(axis: int, target: str, new_graph: Any):
    g = new_graph()
    g.placeholder("x", I32, [-1])
    g.placeholder("depth", I32, [])
    g.node("OneHot", "y", "x", "depth", g.const("on", 2.0, F32), g.const("off", -1.0, F32), T=F32, TI=I32, axis=axis)
    program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
    program.compile(mgx.get_target(target))
    x = np.int32([2, 0, 9])
    for depth in (3, 5):
        wanted = np.where(x[:, None] == np.arange(depth), 2, -1).astype(np.float32)
        found = np.asarray(program.run({"x": x, "depth": np.int32(depth)})[0])
        np.testing.assert_array_equal(found, wanted.T if axis == 0 else wanted)


def rolled(new_graph: Any, dims: list[int], shifts: list[int], axes: list[int]) -> mgx.Program:
    g = new_graph()
    g.placeholder("x", F32, dims)
    numbers = g.const("by", shifts, np.int32), g.const("axis", axes, np.int32)
    g.node("Roll", "y", "x", *numbers, T=F32, Tshift=I32, Taxis=I32)
    return mgx.parse_buffer(g.data, "tf", output_names=["y"])


@pytest.mark.parametrize("dims", [[3, 2], [-1, 2]])
def test_an_axis_is_rolled_as_often_as_it_is_named(dims: list[int], new_graph: Any):
    program = rolled(new_graph, dims, [1, 1, -1], [0, -2, 1])
    program.compile(mgx.get_target("ref"))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), np.roll(x, (2, -1), (0, 1)))


@pytest.mark.parametrize(("shifts", "axes"), [([1, 1], [0]), ([1], [0, 1])])
def test_shifts_that_are_not_one_for_each_axis_are_refused(shifts: list[int], axes: list[int], new_graph: Any):
    with pytest.raises(mgx.ParseError, match="one shift for each axis"):
        rolled(new_graph, [3, 2], shifts, axes)


def hot_bytes(new_graph: Any, depth: int) -> mgx.Program:
    g, byte = new_graph(), np.dtype(np.uint8)
    g.placeholder("x", byte, [2])
    given = g.const("depth", depth, np.int32), g.const("on", 1.0, F32), g.const("off", 0.0, F32)
    g.node("OneHot", "y", "x", *given, T=F32, TI=byte, axis=-1)
    return mgx.parse_buffer(g.data, "tf", output_names=["y"])


def test_one_hot_of_bytes_has_one_place_beyond_what_they_count_to(new_graph: Any):
    program = hot_bytes(new_graph, 300)
    program.compile(mgx.get_target("ref"))
    found = np.asarray(program.run({"x": np.uint8([3, 255])})[0])
    np.testing.assert_array_equal(found, np.eye(300, dtype=np.float32)[[3, 255]])


def test_a_negative_depth_is_refused(new_graph: Any):
    with pytest.raises(mgx.ParseError, match="depth must not be negative"):
        hot_bytes(new_graph, -1)


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_the_gradient_of_a_column_of_open_rows(target: str, new_graph: Any):
    """The gradient of y[:, 1], as used to explain a class."""
    g = new_graph()
    g.placeholder("x", F32, [-1, 3])
    g.placeholder("dy", F32, [-1])
    g.node("Shape", "shape", "x", T=F32, out_type=I32)
    cut = [g.const(name, value, np.int32) for name, value in (("b", [0, 1]), ("e", [0, 2]), ("s", [1, 1]))]
    masks = {"begin_mask": 1, "end_mask": 1, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 2}
    g.node("StridedSliceGrad", "y", "shape", *cut, "dy", T=F32, Index=I32, **masks)
    program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
    program.compile(mgx.get_target(target))
    for rows in (4, 1):
        dy = np.arange(1, rows + 1, dtype=np.float32)
        wanted = np.zeros((rows, 3), np.float32)
        wanted[:, 1] = dy
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(np.asarray(program.run({"x": x, "dy": dy})[0]), wanted)


def test_an_order_of_axes_without_some_of_them(new_graph: Any):
    """A permutation as the gradient of a product over axes computes it."""
    g = new_graph()
    g.placeholder("x", F32, [2, -1, 4])
    axes = g.const("axes", [0, 1, 2], np.int32), g.const("reduced", [1], np.int32)
    g.node("ListDiff", "rest", *axes, T=I32, out_idx=I32)
    g.node("ConcatV2", "order", "reduced", "rest", g.const("axis", 0, np.int32), T=I32, Tidx=I32, N=2)
    g.node("Transpose", "y", "x", "order", T=F32, Tperm=I32)
    program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
    program.compile(mgx.get_target("ref"))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), x.transpose(1, 0, 2))


@pytest.mark.parametrize("node", ["ResizeBicubic", "ResizeArea", "ScaleAndTranslate"])
def test_images_of_open_extents_are_resampled_by_products(node: str, new_graph: Any):
    """Once the extents of an image are known, the weights are constants."""
    g = new_graph()
    g.placeholder("x", F32, [-1, -1, -1, 3])
    size = g.const("size", [5, 9], np.int32)
    if node == "ScaleAndTranslate":
        more = [g.const("scale", [0.8, 1.25], np.float32), g.const("by", [0.1, -0.2], np.float32)]
        g.node(node, "y", "x", size, *more, T=F32, kernel_type="lanczos3", antialias=True)
    else:
        g.node(node, "y", "x", size, T=F32)
    programs = [mgx.parse_buffer(g.data, "tf", output_names=["y"]) for _ in range(2)]
    for program, target in zip(programs, ("cpu", "ref"), strict=True):
        program.compile(mgx.get_target(target))
    for dims in ((2, 6, 7, 3), (1, 3, 12, 3)):
        x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
        found, wanted = (np.asarray(program.run({"x": x})[0]) for program in programs)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    for instance in programs[0].executable.instances():
        assert "tf_resample" not in instance.module.text()
