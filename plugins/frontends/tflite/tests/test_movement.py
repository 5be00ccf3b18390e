"""Slices, padding and angles, compared with their definitions in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tflite.model import Model, Operator, Quantization, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model


class Mode:
    def __init__(self, mode: int) -> None:
        self.mode = mode

    def Mode(self) -> int:
        return self.mode


def run(name: str, options: Any, given: list[np.ndarray], constants: list[np.ndarray]) -> np.ndarray:
    """Returns the result of one operator on inputs and constants."""
    tensors = [Tensor(f"x{k}", dt.of(x.dtype), list(x.shape), None, None) for k, x in enumerate(given)]
    tensors += [Tensor(f"c{k}", dt.of(c.dtype), list(c.shape), c, None) for k, c in enumerate(constants)]
    tensors.append(Tensor("y", dt.of(given[0].dtype), [-1] * given[0].ndim, None, None))
    places = list(range(len(tensors) - 1))
    operator = Operator(name, places, [len(places)], [], options, b"", 0)
    graph = Subgraph("main", tensors, [operator], places[: len(given)], [len(places)])
    program = parse_model(Model([graph]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    return np.asarray(program.run({f"x{k}": x for k, x in enumerate(given)})[0])


def test_slice_extends_to_the_end_for_a_size_of_minus_one():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run("SLICE", None, [x], [np.int32([1, 2]), np.int32([-1, 1])]), x[1:, 2:3])


@pytest.mark.parametrize(("begin", "size"), [([0, 3], [3, 2]), ([4, 0], [-1, -1]), ([0, 0], [-2, 1]), ([0], [1])])
def test_slice_rejects_positions_out_of_range(begin: list[int], size: list[int]):
    with pytest.raises(mgx.ParseError, match=r"leave axis|one size per axis"):
        run("SLICE", None, [np.zeros((3, 4), np.float32)], [np.int32(begin), np.int32(size)])


def test_parts_whose_sizes_are_inputs():
    tensors = [Tensor("x", dt.float32, [6, 2], None, None), Tensor("sizes", dt.int32, [3], None, None)]
    tensors.append(Tensor("axis", dt.int32, [], np.int32(0), None))
    tensors += [Tensor(f"y{k}", dt.float32, [-1, 2], None, None) for k in range(3)]
    operator = Operator("SPLIT_V", [0, 1, 2], [3, 4, 5], [], None, b"", 0)
    program = parse_model(Model([Subgraph("main", tensors, [operator], [0, 1], [3, 4, 5])]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for sizes, ends in (([1, 0, 5], [1, 1]), ([2, 3, 1], [2, 5]), ([1, -1, 2], [1, 4]), ([-1, 6, 0], [0, 6])):
        found = program.run({"x": x, "sizes": np.int32(sizes)})
        for got, wanted in zip(found, np.split(x, ends), strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)
    for wrong in ([1, -1, 6], [2, 2, 1], [-2, 7, 1]):
        with pytest.raises(mgx.MgxError, match="sizes that add up to 6 are required"):
            program.run({"x": x, "sizes": np.int32(wrong)})


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ([3, 4], r"\[3, 4\] must not be negative and add up to the extent 6"),
        ([2, 2], "add up to the extent 6"),
        ([-2, 8], "must not be negative"),
        ([7, -1], "must not be negative"),
        ([-1, -1], "at most one size may be -1"),
        ([1, 2, 3], "2 sizes are required"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: list[int], why: str) -> None:
    tensors = [Tensor("x", dt.float32, [6], None, None), Tensor("sizes", dt.int32, [len(sizes)], np.int32(sizes), None)]
    tensors.append(Tensor("axis", dt.int32, [], np.int32(0), None))
    tensors += [Tensor(f"y{k}", dt.float32, [-1], None, None) for k in range(2)]
    operator = Operator("SPLIT_V", [0, 1, 2], [3, 4], [], None, b"", 0)
    with pytest.raises(mgx.ParseError, match=why):
        parse_model(Model([Subgraph("main", tensors, [operator], [0], [3, 4])]), TfliteOptions())


@pytest.mark.parametrize(("mode", "name"), [(0, "reflect"), (1, "symmetric")])
def test_mirrored_borders(mode: int, name: Any):
    x, pads = np.arange(12, dtype=np.float32).reshape(3, 4), np.int32([[1, 2], [0, 3]])
    np.testing.assert_array_equal(run("MIRROR_PAD", Mode(mode), [x], [pads]), np.pad(x, pads, mode=name))


def test_symmetric_borders_do_not_exceed_the_axis():
    with pytest.raises(mgx.ParseError, match="exceed axis 0 of extent 3"):
        run("MIRROR_PAD", Mode(1), [np.zeros((3, 4), np.float32)], [np.int32([[4, 0], [0, 0]])])


def test_angles_in_all_quarters():
    y, x = np.float32([1, -1, 0, 0, -2, 3, 1]), np.float32([-2, -1, -1, 1, 0, 0, 5])
    np.testing.assert_allclose(run("ATAN2", None, [y, x], []), np.arctan2(y, x), rtol=1e-6)


def test_segments_whose_number_is_known_at_run_time_only():
    x, at, count = np.arange(8, dtype=np.float32).reshape(4, 2), np.int32([2, 0, -1, 2]), np.array(3, np.int32)
    found = run("UNSORTED_SEGMENT_SUM", None, [x, at, count], [])
    np.testing.assert_array_equal(found, [[2, 3], [0, 0], [6, 8]])
    np.testing.assert_array_equal(run("SEGMENT_SUM", None, [x, np.int32([0, 0, 2, 2])], []), [[2, 4], [0, 0], [10, 12]])


@pytest.mark.parametrize(("zero", "kind"), [(None, dt.float32), (-3, dt.int8)])
def test_borders_that_are_inputs(zero: int | None, kind: Any):
    """Quantized values are padded with their zero point."""
    scale = None if zero is None else Quantization(np.float32([0.5]), np.int64([zero]), 0)
    tensors = [Tensor("x", kind, [2, 3], None, scale), Tensor("pads", dt.int32, [2, 2], None, None)]
    tensors.append(Tensor("y", kind, [-1, -1], None, scale))
    graph = Subgraph("main", tensors, [Operator("PAD", [0, 1], [2], [], None, b"", 0)], [0, 1], [2])
    program = parse_model(Model([graph]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x = np.arange(6).astype(kind.numpy).reshape(2, 3)
    for pads in ([[1, 0], [2, 1]], [[0, 0], [0, 3]]):
        found = np.asarray(program.run({"x": x, "pads": np.int32(pads)})[0])
        np.testing.assert_array_equal(found, np.pad(x, pads, constant_values=zero or 0))


def test_sparse_values_in_a_tensor_whose_extents_are_inputs():
    tensors = [Tensor("at", dt.int32, [2, 2], None, None), Tensor("dims", dt.int32, [2], None, None)]
    tensors += [Tensor("v", dt.float32, [2], None, None), Tensor("rest", dt.float32, [], np.float32(-1), None)]
    tensors.append(Tensor("y", dt.float32, [-1, -1], None, None))
    graph = Subgraph(
        "main", tensors, [Operator("SPARSE_TO_DENSE", [0, 1, 2, 3], [4], [], None, b"", 0)], [0, 1, 2], [4]
    )
    program = parse_model(Model([graph]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    given = {"at": np.int32([[0, 1], [2, 0]]), "dims": np.int32([3, 2]), "v": np.float32([4, 5])}
    np.testing.assert_array_equal(np.asarray(program.run(given)[0]), [[-1, 4], [-1, -1], [5, -1]])


@pytest.mark.parametrize("name", ["REVERSE_V2", "TILE", "TRANSPOSE", "GATHER"])
def test_bytes_are_copied_whatever_the_scales_say(name: str):
    """TFLite's kernels copy bytes even if operand and result have different scales."""
    of_x, of_y = (Quantization(np.float32([s]), np.array([z]), 0) for s, z in ((0.5, 3), (0.25, -7)))
    second = {"REVERSE_V2": [0], "TILE": [2, 1], "TRANSPOSE": [1, 0], "GATHER": [2, 0]}[name]
    tensors = [
        Tensor("x", dt.int8, [3, 2], None, of_x),
        Tensor("c", dt.int32, [len(second)], np.int32(second), None),
        Tensor("y", dt.int8, [-1, -1], None, of_y),
    ]
    operator = Operator(name, [0, 1], [2], [], None, b"", 0)
    program = parse_model(Model([Subgraph("main", tensors, [operator], [0], [2])]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x = np.int8([[-128, 5], [127, -9], [40, 0]])
    wanted = {"REVERSE_V2": x[::-1], "TILE": np.tile(x, (2, 1)), "TRANSPOSE": x.T, "GATHER": x[[2, 0]]}[name]
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), wanted)
