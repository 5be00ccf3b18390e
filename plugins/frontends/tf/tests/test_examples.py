"""Serialized examples as inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tf.ops.example import ParseExample
from mgx_tf.ops.feature_lists import ParseFeatureLists
from mgx_tf.wire.messages import message


def example(**features: Any) -> str:
    made = message("Example")()
    for name, values in features.items():
        feature = made.features.feature[name]
        match values[0]:
            case float():
                feature.float_list.value.extend(values)
            case int():
                feature.int64_list.value.extend(values)
            case _:
                feature.bytes_list.value.extend(v.encode() for v in values)
    return bytes(made.SerializeToString()).decode("utf-8", "surrogateescape")


@pytest.fixture
def program(new_graph: Any) -> mgx.Program:
    g = new_graph()
    g.placeholder("x", object, [-1])
    g.const("names", np.array([], object))
    g.const("sparse", np.array(["words"], object))
    g.const("dense", np.array(["k", "x"], object))
    g.const("ragged", np.array(["r"], object))
    g.const("seven", np.array([7], np.int64))
    g.const("none", np.array([], np.float32))
    g.node(
        "ParseExampleV2", "y", "x", "names", "sparse", "dense", "ragged", "seven", "none",
        sparse_types=[object], Tdense=[np.int64, np.float32], dense_shapes=[[], [2]], num_sparse=1,
        ragged_value_types=[np.int64], ragged_split_types=[np.int32],
    )  # fmt: skip
    made = mgx.parse_buffer(g.data, "tf", output_names=["y", *(f"y:{k}" for k in range(1, 7))])
    made.compile(mgx.get_target("ref"))
    return made


def test_features_by_name(program: mgx.Program):
    words = [example(x=[1.0, 2.0], words=["a", "b"], k=[3]), example(x=[0.5, -1.0], r=[5, 6])]
    found = [np.asarray(v).tolist() for v in program.run({"x": np.array(words, object)})]
    places, entries, extents, k, x, values, splits = found
    assert (places, entries, extents) == ([[0, 0], [0, 1]], ["a", "b"], [2, 2])
    assert (k, x) == ([3, 7], [[1, 2], [0.5, -1]])
    assert (values, splits) == ([5, 6], [0, 0, 2])


def test_a_feature_without_a_kind_is_missing(program: mgx.Program):
    """As in TensorFlow 2.21, the default is used; an empty list of values is not missing."""
    made = message("Example")()
    made.ParseFromString(example(x=[1.0, 2.0]).encode("utf-8", "surrogateescape"))
    made.features.feature["k"].SetInParent()
    word = bytes(made.SerializeToString()).decode("utf-8", "surrogateescape")
    assert np.asarray(program.run({"x": np.array([word], object)})[3]).tolist() == [7]
    made.features.feature["k"].int64_list.SetInParent()
    word = bytes(made.SerializeToString()).decode("utf-8", "surrogateescape")
    with pytest.raises(mgx.MgxError, match="must have 1 value, got 0"):
        program.run({"x": np.array([word], object)})


@pytest.mark.parametrize("size", [1, 3])
def test_defaults_of_another_size_are_refused(size: int):
    operation = ParseExample(dense=("x",), dense_types=(dt.float32,), dims=(2,), ranks=(1,))
    with pytest.raises(mgx.ShapeError, match=f"default of feature 'x' must have 2 values, or none, got {size}"):
        operation.infer(mgx.Shape.of(dt.string, (4,)), mgx.Shape.of(dt.float32, (size,)))
    with pytest.raises(mgx.ShapeError, match="default of feature 'x'"):
        operation.compute(np.array([example()], object), np.zeros(size, np.float32))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (example(k=[1]), "lacks feature 'x'"),
        (example(x=[1.0]), "must have 2 values, got 1"),
        (example(x=[1, 2]), "must be of type float32"),
        ("\x0a\x7f", "damaged"),
    ],
)
def test_errors_of_invalid_input(word: str, message: str, program: mgx.Program):
    with pytest.raises(mgx.MgxError, match=message):
        program.run({"x": np.array([word], object)})


def sequence(**lists: list[list[float]]) -> str:
    made = message("SequenceExample")()
    for name, steps in lists.items():
        for step in steps:
            made.feature_lists.feature_list[name].feature.add().float_list.value.extend(step)
    return bytes(made.SerializeToString()).decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (sequence(y=[[1, 2]]), "example 1 lacks the feature list 'x'"),
        (sequence(x=[[1, 2], [3]], y=[]), "a step of feature list 'x' of example 1 must have 2 values, got 1"),
        ("\x12\x7f", "a sequence example is damaged"),
    ],
)
def test_errors_of_invalid_feature_lists(word: str, message: str):
    """A list that may be missing is empty."""
    operation = ParseFeatureLists(
        dense=("x", "y"), dense_types=(dt.float32,) * 2, dims=(2, 2), ranks=(1, 1), optional=("y",)
    )
    good = sequence(x=[[1, 2]])
    x, lengths, y, none = operation.compute(np.array([good], object))
    assert (x.tolist(), lengths.tolist(), y.shape, none.tolist()) == ([[[1, 2]]], [1], (1, 0, 2), [0])
    with pytest.raises(mgx.ShapeError, match=message):
        operation.compute(np.array([good, word], object))
