"""Sparse tensors, and hashes of strings, compared with TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import DeviceError, ShapeError
from mgx_tf.ops.crosses import Cross, CrossWords
from mgx_tf.ops.siphash import keyed_hash
from mgx_tf.ops.sparse import SparseFillEmpty, SparseOrder, SparseReshape

KEY = 956888297470  # Keras's, for crosses of columns


def lists(found: Any) -> list[Any]:
    return [v.tolist() for v in found]


def test_rows_without_entries_get_one():
    indices, shape = np.array([[1, 2], [1, 0], [3, 1]]), np.array([5, 3])
    found = SparseFillEmpty().compute(indices, np.array([5, 6, 7], np.float32), shape, np.float32(-1))
    assert lists(found) == [
        [[0, 0], [1, 2], [1, 0], [2, 0], [3, 1], [4, 0]],
        [-1, 5, 6, -1, 7, -1],
        [True, False, True, False, True],
        [1, 2, 4],
    ]


def test_places_under_other_extents_and_in_order():
    indices = np.array([[1, 2], [3, 1]])
    found = SparseReshape().compute(indices, np.array([4, 3]), np.array([2, -1, 3]))
    assert lists(found) == [[[0, 1, 2], [1, 1, 1]], [2, 2, 3]]
    ordered = SparseOrder().compute(indices[::-1], np.array([7, 8]), np.array([4, 3]))
    assert lists(ordered) == [indices.tolist(), [8, 7]]


@pytest.mark.parametrize(
    ("indices", "shape"), [([[4, 0]], [4, 3]), ([[0, -1]], [4, 3]), ([[0, 0]], [1 << 40, 1 << 40])]
)
def test_places_outside_and_absurd_extents_are_refused(indices: list[list[int]], shape: list[int]):
    with pytest.raises(ShapeError):
        SparseOrder().compute(np.array(indices), np.array([1]), np.array(shape))


def test_an_extent_of_0_beside_large_ones():
    shape, none = np.array([0, 1 << 40, 1 << 40]), np.zeros((0, 3), np.int64)
    assert lists(SparseOrder().compute(none, np.zeros(0), shape)) == [[], []]
    assert lists(SparseReshape().compute(none, shape, np.array([0]))) == [[], [0]]
    assert lists(SparseFillEmpty().compute(none, np.zeros(0), shape, np.float64(9))) == [[], [], [], []]


def test_rows_of_a_tensor_without_axes_are_refused():
    with pytest.raises(ShapeError, match="rank 1 or more"):
        SparseFillEmpty().compute(np.zeros((2, 0), np.int64), np.zeros(2), np.zeros(0, np.int64), np.float64(9))


def test_crosses_of_columns():
    first, second = np.array([1, -2, 3, 4]), np.array(["u", ""], object)
    found = Cross(buckets=0, start=(KEY,)).compute(
        np.array([2]), first, np.array([0, 0, 1, 1]), second, np.array([0, 1])
    )
    hashes = [5367942718230996388, 3693281544446356683, 4956668243619323974, 2886766288153886539]
    assert lists(found) == [hashes, [0, 2, 4]]
    numbers, words = np.array([1, 5, 3]), np.array(["u", "v", ""], object)
    found = Cross(buckets=10, start=(KEY,)).compute(np.array([3]), numbers, np.arange(3), words, np.arange(3))
    assert lists(found) == [[5, 2, 1], [0, 1, 2, 3]]
    assert lists(Cross(buckets=10).compute(np.array([0]), *[np.zeros(0, np.int64)] * 4)) == [[], [0]]
    with pytest.raises(ShapeError, match="must have a row, less than 2"):
        CrossWords(separator="-").compute(np.array([2]), first[:1], np.array([2]))
    with pytest.raises(DeviceError):
        Cross(buckets=10).compute(np.array([1 << 50]), *[np.zeros(0, np.int64)] * 2)


def test_hashes_by_a_key(new_graph: Any):
    # the test vector of the paper: key 00 .. 0f, input 00 .. 0e
    key = [int.from_bytes(bytes(range(k, k + 8)), "little") for k in (0, 8)]
    assert keyed_hash(bytes(range(15)), *key) == 0xA129CA6149BE45E5
    g = new_graph()
    g.placeholder("x", object, [4])
    g.node("StringToHashBucketStrong", "y", "x", num_buckets=1000003, key=[1, 2])
    program = mgx.parse_buffer(g.data, "tf")
    program.compile(mgx.get_target("ref"))
    (found,) = program.run({"x": np.array(["", "a", "hello world", "0123456789abcdef"], object)})
    assert np.asarray(found).tolist() == [383377, 332029, 598105, 783103]


def test_extents_that_are_no_integers_and_many_parts_are_refused(new_graph: Any):
    g = new_graph()
    g.placeholder("i", np.dtype(np.int64), [2, 2])
    g.placeholder("v", np.dtype(np.float32), [2])
    g.placeholder("d", np.dtype(np.float32), [2])
    g.placeholder("n", np.dtype(np.int64), [2])
    g.const("axis", 0, np.int64)
    g.node("SparseSlice", "y", "i", "v", "d", "n", "n", T=np.dtype(np.float32))
    g.node("SparseSplit", "z", "axis", "i", "v", "n", num_split=1 << 20, T=np.dtype(np.float32))
    with pytest.raises(mgx.MgxError, match="int64 is required for indices and extents"):
        mgx.parse_buffer(g.data, "tf", output_names=["y"])
    with pytest.raises(mgx.UnsupportedError, match=r"1,024 parts are supported"):
        mgx.parse_buffer(g.data, "tf", output_names=["z"])
