"""Models that deviate from the standard as exporters' models do: int32 extents, attributes of other opsets, other input forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import MgxError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7
LATE_AND_FIXED = pytest.mark.parametrize("fixed", [(), (1, 2, 3, 4)], ids=["late", "fixed"])


def i32(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


EXTENTS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Reshape", [X, i32(4, -1)], {}),
    ("Expand", [X, i32(2, 2, 3, 4)], {}),
    ("Slice", [X, i32(0), i32(2), i32(-1), i32(1)], {}),
    ("Unsqueeze", [X, i32(0)], {}),
    ("Squeeze", [X[:1], i32(0)], {}),
    ("Tile", [X, i32(1, 2, 1)], {}),
    ("Pad", [X, i32(0, 0, 1, 0, 1, 0)], {}),
    ("Resize", [X[None], None, None, i32(1, 2, 6, 8)], {}),
    ("TopK", [X, i32(2)], {"outputs": 2}),
    ("Split", [X, i32(1, 1)], {"outputs": 2}),
    ("ReduceSum", [X, i32(1)], {}),
    ("CenterCropPad", [X, i32(2, 2, 2)], {}),
    ("ReverseSequence", [X, i32(1, 2, 1)], {}),
    ("ScatterND", [X, i32(0, 1).reshape(2, 1), X + 50], {}),
]


@LATE_AND_FIXED
@pytest.mark.parametrize(("op", "inputs", "more"), EXTENTS, ids=[e[0] for e in EXTENTS])
def test_extents_of_int32(
    run: Callable[..., Any], op: str, inputs: list[Any], more: Any, fixed: tuple[int, ...]
) -> None:
    right = [None if v is None else v.astype(np.int64) if v.dtype == np.int32 else v for v in inputs]
    for ours, wanted in zip(run(op, *inputs, fixed=fixed, **more), run(op, *right, fixed=fixed, **more), strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("opset", [13, 19, 23])
@pytest.mark.parametrize(
    ("op", "lax", "attributes", "right"),
    [
        ("Squeeze", [X[:1]], {"axes": [0]}, [X[:1], np.array([0])]),
        ("Unsqueeze", [X], {"axes": [0, -1]}, [X, np.array([0, -1])]),
        ("ReduceSum", [X], {"axes": [1]}, [X, np.array([1])]),
        ("Pad", [X], {"pads": [0, 0, 1, 0, 1, 0], "value": 2.5}, [X, np.array([0, 0, 1, 0, 1, 0]), np.float32(2.5)]),
        ("Clip", [X], {"min": 0.0, "max": 3.0}, [X, np.float32(0), np.float32(3)]),
        ("Slice", [X], {"starts": [0], "ends": [2], "axes": [1]}, [X, np.array([0]), np.array([2]), np.array([1])]),
        ("Reshape", [X], {"shape": [4, 6]}, [X, np.array([4, 6])]),
        ("Add", [X, X[0, :, 0]], {"broadcast": 1, "axis": 1}, [X, X[0, :, :1]]),
        ("Mul", [X, np.float32(3)], {"broadcast": 1}, [X, np.float32(3)]),
        ("Resize", [X[None], np.float32([1, 1, 2, 2])], {}, [X[None], None, np.float32([1, 1, 2, 2])]),
        ("Pad", [X[0], i32(1, 2), i32(1)], {"mode": "edge"}, [X[0], np.array([1, 2]), None, np.array([1])]),
    ],
)
def test_forms_of_other_opsets(
    run: Callable[..., Any], opset: int, op: str, lax: list[Any], attributes: dict[str, Any], right: list[Any]
) -> None:
    mode = {k: v for k, v in attributes.items() if k == "mode"}
    (ours,) = run(op, *lax, opset=opset, **attributes)
    (wanted,) = run(op, *right, opset=opset, **mode)
    np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize(
    ("op", "given", "right"), [("ArgMax", [1], 1), ("Flatten", [1], 1), ("Softmax", [0], 0), ("Softmax", 1.0, 1)]
)
def test_attributes_of_a_related_type(run: Callable[..., Any], op: str, given: Any, right: int) -> None:
    np.testing.assert_array_equal(run(op, X, axis=given)[0], run(op, X, axis=right)[0])


@pytest.mark.parametrize(("op", "axis", "message"), [("Softmax", "x", "must be of type INT"), ("Softmax", 0.5, "must contain integers"), ("Flatten", [0, 1], "must be one number")])  # fmt: skip
def test_attributes_of_other_types(run: Callable[..., Any], op: str, axis: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        run(op, X, axis=axis)


def test_upsample_with_the_inputs_of_resize(run: Callable[..., Any]) -> None:
    scales = np.float32([1, 1, 2, 2])
    np.testing.assert_array_equal(
        run("Upsample", X[None], None, scales, opset=13, mode="linear")[0],
        run("Upsample", X[None], scales, opset=9, mode="linear")[0],
    )


def test_a_scale_whose_extents_determine_the_block_size(run: Callable[..., Any]) -> None:
    scale, zero = np.float32([[1, 2], [3, 4], [5, 6]]), np.zeros((3, 2), np.int8)
    ours = run("QuantizeLinear", X[0], scale, zero, opset=22)[0]
    np.testing.assert_array_equal(ours, run("QuantizeLinear", X[0], scale, zero, opset=22, block_size=2)[0])


def test_one_scale_for_all_groups(run: Callable[..., Any]) -> None:
    x, one, bias = X.reshape(2, 4, 3), np.float32([2]), np.float32([1, -1])
    np.testing.assert_array_equal(
        run("GroupNormalization", x, one, bias, opset=19, num_groups=2)[0],
        run("GroupNormalization", x, np.float32([2, 2]), bias, opset=19, num_groups=2)[0],
    )


def test_the_cell_state_of_a_sequence_without_steps_is_zero(run: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(s).astype(np.float32) for s in ((3, 2, 4), (1, 8, 4), (1, 8, 2)))
    start = np.ones((1, 2, 2), np.float32)
    lens = np.array([0, 3], np.int32)
    _, last, cell = run("LSTM", x, w, r, None, lens, start, start, outputs=3, hidden_size=2)
    assert not last[0, 0].any()
    assert not cell[0, 0].any()
    assert cell[0, 1].all()


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("narrow", [ml_dtypes.bfloat16, np.float16], ids=["bfloat16", "float16"])
def test_wide_weights_of_a_narrow_convolution(run: Callable[..., Any], op: str, narrow: Any) -> None:
    """torch.onnx's newer exporter folds batch norms of bfloat16 networks into float32 weights and biases."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 4, 5, 5)).astype(narrow), rng.standard_normal((4, 4, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    (ours,) = run(op, x, w, bias, fixed=(1, 2))
    (wanted,) = run(op, x, w.astype(narrow), bias.astype(narrow), fixed=(1, 2))
    assert ours.dtype == x.dtype
    np.testing.assert_array_equal(ours, wanted)
