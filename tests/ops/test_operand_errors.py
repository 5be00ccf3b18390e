"""Operands that ops reject: the error states the op, what was required and what was got."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mgx_core import ParameterError, Shape, ShapeError, op


def f(*dims: int, of: str = "float32") -> Shape:
    return Shape(of, dims)


def i(*dims: int, of: str = "int64") -> Shape:
    return Shape(of, dims)


def b(*dims: int) -> Shape:
    return Shape("bool", dims)


CACHE = f(9, 2)
HEADS = f(2, 4, 3, 8)
WINDOWS = {"lengths": [2, 2]}


@pytest.mark.parametrize(
    ("name", "attributes", "operands", "said"),
    [
        ("attention", {}, [f(4, 3, 8), HEADS, HEADS], "q must be [batch, heads, length, size], got float32[4, 3, 8]"),
        ("attention", {}, [HEADS, i(2, 4, 3, 8), HEADS], "k must be a float tensor, got int64[2, 4, 3, 8]"),
        ("attention", {}, [HEADS, f(2, 4, 3, 8, of="float16"), HEADS], "q and k must have one dtype, got float32 and float16"),
        ("attention", {}, [HEADS, HEADS, HEADS, i(3, 3)], "mask must be float or bool, got int64"),
        ("attention", {}, [HEADS, HEADS, HEADS, b(1, 1, 1, 1, 3)], "mask must have 1 to 4 axes, got bool[1, 1, 1, 1, 3]"),
        ("attention", {}, [HEADS, HEADS, HEADS, b(3, 5)], "mask [3, 5] has more keys than the scores [2, 4, 3, 3]"),
        ("attention", {}, [HEADS] * 3 + [None, f(2)], "kv_lengths must be an integer vector of 2, got float32[2]"),
        ("attention", {}, [HEADS] * 3 + [None, None, i(3)], "offsets must be an integer vector of 2, got int64[3]"),
        ("attention", {}, [HEADS] * 3 + [None] * 3 + [f(2)], "sink must be a float vector of 4, got float32[2]"),
        ("broadcast_for_dot", {}, [f(4), f(4, 3)], "both operands need a rank of at least 2, got float32[4] and float32[4, 3]"),
        ("dequant_dot", {}, [f(1, 32), i(2, 16), f(2, 1)], "codes must be uint8 [n, bytes], got int64[2, 16]"),
        ("dequant_dot", {}, [f(1, 32), i(2, 16, of="uint8"), f(2, 1), i(2, 1)], "zero_point must be uint8, got int64[2, 1]"),
        ("im2col", WINDOWS, [f(2, 3)], "x needs a batch, channels and spatial axes, got float32[2, 3]"),
        ("col2im", {}, [f(1, 4)], "x must be [n, c * block, windows], got float32[1, 4]"),
        ("col2im", {}, [f(1, 4, 4), f(2)], "image_shape and block_shape must be integer vectors, got float32[2]"),
        ("col2im", {}, [f(1, 4, 4)], "col2im needs image_shape with at least one extent"),
        ("einsum", {"equation": "->"}, [], "einsum needs at least one operand"),
        ("einsum", {"equation": "a->a"}, [b(2)], "operands must be numbers, got bool"),
        ("stft", {}, [f(1, 4, 8, 2), i()], "the signal must be [b, n, 1 or 2], got float32[1, 4, 8, 2]"),
        ("stft", {"onesided": True}, [f(1, 8, 2), i(), f(4)], "a one-sided transform needs a real signal, got float32[1, 8, 2]"),
        ("onehot", {"depth": 3}, [b(2), None, f(2)], "indices must be numbers, got bool[2]"),
        (
            "concat_past_present",
            {},
            [f(2, 4, 1, 8), i(2), f(4, 3, 8)],
            "present and past must be [b, g, s, d] of one dtype, got float32[2, 4, 1, 8] and float32[4, 3, 8]",
        ),
        ("concat_past_present", {"kv_num_heads": 3}, [f(2, 4, 1, 8), i(2), HEADS], "kv_num_heads is 3, present has 4 heads"),
        ("concat_past_present", {}, [f(2, 4, 1, 8), i(3), HEADS], "seqlens_k must be an integer vector of 2, got int64[3]"),
        ("diagonal", {"axis1": 1, "axis2": 1}, [f(2, 2)], "a diagonal needs two different axes, got 1 twice"),
        ("nonmaxsuppression", {}, [f(1, 6, 4), f(1, 1, 6), i(), i()], "a threshold must be a float, got int64[]"),
        ("pooling", {"mode": "max", **WINDOWS}, [f(2, 3)], "x needs a batch, channels and at least one spatial axis, got float32[2, 3]"),
        ("max_unpool", WINDOWS, [f(1, 1, 2, 2), f(1, 1, 2, 2)], "indices must be int64 of x's dims, got float32[1, 1, 2, 2] for"),
        ("quantizelinear", {}, [f(2, 3), f(1, 2, 3)], "scale must be a scalar, a vector or of rank 2, got float32[1, 2, 3]"),
        ("quantizelinear", {}, [i(2, 3), f()], "x and scale must be floats or int32, got int64 and float32"),
        ("byte_map", {}, [i(3, of="uint8"), i(255, of="uint8")], "the table must have 256 numbers, got uint8[255]"),
        ("quant_dot", {}, [i(3, of="int8"), i(3, 2, of="int8")], "operands need a rank of at least 2, got int8[3] and int8[3, 2]"),
        (
            "quant_convolution",
            {},
            [i(1, 3, 4, of="int8"), i(2, 3, 2, of="int8"), i(2, of="int8")],
            "x_zero_point must be one value, got int8[2]",
        ),
        (
            "quant_convolution",
            {},
            [i(1, 3, 4, of="int8"), i(2, 3, 2, of="int8"), None, i(3, of="int8")],
            "w_zero_point must be one value or one per filter (2), got int8[3]",
        ),
        ("random_uniform", {}, [b(), f(2)], "seed and like must be numbers, got bool[] and float32[2]"),
        ("pad", {}, [f(2), None, None, i(1)], "run-time axes need run-time pads"),
        ("select_module", {}, [f(2)], "needs at least one module to select from"),
        ("run_on_target", {}, [f(2)], "takes one module, got 0"),
        ("if", {}, [b()], "takes two modules (then, else), got 0"),
        ("get_tuple_elem", {"index": 0}, [f(2)], "needs a tuple with an item 0, got float32[2]"),
        ("squeeze", {}, [f(1, 1), i(3)], "3 axes cannot be taken from float32[1, 1]"),
        ("roialign", {}, [f(1, 1, 4, 4), f(2, 4), f(2)], "batch_indices must be integers [2], got float32[2]"),
        ("rotary_embedding", {}, [HEADS, f(9, 2, of="float16"), CACHE, i(2, 3)], "the caches must have x's dtype float32, got float16"),
        ("rotary_embedding", {}, [HEADS, CACHE, f(9, 3), i(2, 3)], "cos and sin must have the same dims, got [9, 2] and [9, 3]"),
        ("rotary_embedding", {}, [HEADS, f(9, 5), f(9, 5), i(2, 3)], "caches for 10 elements are wider than the head size 8"),
        ("rotary_embedding", {}, [HEADS, CACHE, CACHE], "without positions the caches must be [2, 3, n / 2], got float32[9, 2]"),
        ("rotary_embedding", {}, [HEADS, f(2, 3, 4), f(2, 3, 4), i(2, 3)], "with positions the caches must be [positions, n / 2]"),
        ("rotary_embedding", {}, [HEADS, CACHE, CACHE, i(2, 4)], "positions must be integers [2, 3], got int64[2, 4]"),
        ("gqa_rotary_embedding", {}, [HEADS, i(2), f(1, 9, 2), f(1, 9, 2)], "the caches must be [positions, n / 2], got"),
        ("gqa_rotary_embedding", {}, [HEADS, i(3), CACHE, CACHE], "seqlens_k must be an integer vector of 2, got int64[3]"),
        ("grid_sample", {}, [f(1, 1), f(1, 1)], "x and grid need one rank of at least 3, got float32[1, 1] and float32[1, 1]"),
        ("affine_grid", {}, [f(1, 2, 2), i(4)], "theta must be float [n, r, r + 1], got float32[1, 2, 2]"),
        ("tensor_scatter", {}, [HEADS, f(2, 4, 1, 8, of="float16")], "update must have the type and rank of the cache, got"),
        ("tensor_scatter", {}, [HEADS, f(2, 4, 1, 8), i(2, 1)], "write_indices must be a vector, got int64[2, 1]"),
        ("split_to_sequence", {}, [f(4), f(2)], "split must hold integers, got float32"),
        ("split_to_sequence", {}, [f(4), i(2, 1)], "split must be a scalar or have one axis, got int64[2, 1]"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(name: str, attributes: dict[str, Any], operands: list[Shape | None], said: str) -> None:
    with pytest.raises(ShapeError, match=f"^{name}.*: {re.escape(said)}"):
        op(name, **attributes).result(operands)


def x(*dims: int, of: str = "float32") -> np.ndarray[Any, Any]:
    return np.zeros(dims, of)


@pytest.mark.parametrize(
    ("name", "attributes", "operands", "said"),
    [
        ("attention", {}, [*[x(1, 1, 2, 3)] * 3, x(2, 5)], "mask [2, 5] has more keys than the scores [1, 1, 2, 2]"),
        ("dft", {"onesided": True}, [x(1, 4, 2), None, None], "a one-sided transform needs a real signal, got a complex one"),
        ("gather_elements", {}, [x(2, 2), x(2, 3, of="int64")], "indices of extents [2, 3] exceed [2, 2]"),
        ("onehot", {}, [x(2, of="int64"), x(2, of="int64"), x(2)], "depth must have one element, got 2"),
        ("pack_int4", {}, [x(3, of="uint8")], "axis 0 must have an even extent to be packed in pairs, got 3"),
        ("max_unpool", WINDOWS, [x(1, 1, 2, 2), x(1, 1, 2, 1, of="int64")], "indices must have x's dims [1, 1, 2, 2], got [1, 1, 2, 1]"),
        ("multinomial", {}, [x(2, 0), x(2, 3)], "at least one category is required"),
        ("resize", {"mode": "nearest"}, [x(2), np.ones(1, np.float32), None, x(3)], "roi needs 2 numbers, got 3"),
        ("sliding_windows", {"axis": 0, "size": 3}, [x(2)], "a window of 3 positions does not fit into axis 0 of [2]"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(name: str, attributes: dict[str, Any], operands: list[Any], said: str) -> None:
    """Extents that shape inference does not know, since they are symbolic, are checked when the op runs."""
    with pytest.raises(ShapeError, match=f"^{re.escape(said)}"):
        op(name, **attributes).evaluate(operands)


@pytest.mark.parametrize(
    ("name", "attributes", "said"),
    [
        ("celu", {"alpha": 0}, "celu: attribute 'alpha' must not be 0"),
        ("linear_attention", {"q_num_heads": 3, "kv_num_heads": 2}, "q_num_heads must be a positive multiple of kv_num_heads, got 3 and 2"),
        ("lstm", {"hidden_size": 2, "actv_alpha": [1.0]}, "actv_alpha needs 3 numbers, one per function, got [1.0]"),
    ],
)  # fmt: skip
def test_attributes_that_do_not_fit(name: str, attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(said)):
        op(name, **attributes)
