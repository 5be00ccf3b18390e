"""Slice, Split, Concat and Pad, with operands known at parse time or at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import mgx_core
from mgx_core import MgxError

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
LATE_AND_FIXED = pytest.mark.parametrize("fixed", [(), (1, 2, 3, 4)], ids=["late", "fixed"])
FAR = (1 << 63) - 1


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


@LATE_AND_FIXED
@pytest.mark.parametrize(
    "operands",
    [
        [i64(1), i64(3)],
        [i64(0, 1, 2), i64(3, -1, FAR)],
        [i64(1, 0), i64(FAR, 2), i64(-1, 0)],
        [i64(-1, 4), i64(-FAR, 0), i64(0, 2), i64(-1, -2)],
        [i64(0, 9), i64(9, 0), i64(1, 2), i64(3, -4)],
        [i64(2), i64(1), i64(1)],
        [i64(1), i64(3), None, i64(2)],
    ],
)
def test_slice(agree: Callable[..., Any], operands: list[Any], fixed: tuple[int, ...]) -> None:
    agree("Slice", X, *operands, fixed=fixed)


@pytest.mark.parametrize("fixed", [(3, 4), (1, 3), (2, 3, 4), (1, 2, 4)])
def test_slice_known_in_part(agree: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    agree("Slice", X, i64(4, 0), i64(0, 3), i64(-1, 0), i64(-2, 1), fixed=fixed)


@pytest.mark.parametrize("fixed", [(1, 2, 3, 4), (3, 4), (2, 3, 4)])
def test_negative_steps_start_at_the_first_element_at_least(agree: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    assert agree("Slice", X, i64(-9, -6), i64(-FAR, -9), i64(1, 2), i64(-1, -2), fixed=fixed)[0].shape == (3, 1, 1)
    agree("Slice", X, np.int32([-9]), np.int32([-20]), np.int32([2]), np.int32([-1]), fixed=fixed)


def test_negative_steps_start_at_the_first_element_of_a_symbolic_extent() -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
        g (float[n, 2] x) => (float[m, 2] y)
        <int64[1] start = {-4}, int64[1] end = {-9}, int64[1] axis = {0}, int64[1] step = {-1}>
        { y = Slice(x, start, end, axis, step) }"""
    program = mgx_core.parse_onnx(onnx.parser.parse_model(text).SerializeToString())
    program.compile(mgx_core.get_target("ref"))
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for rows, start in (6, 2), (4, 0), (3, 0), (1, 0):
        np.testing.assert_array_equal(np.asarray(program.run({"x": x[:rows]})[0]), x[start::-1])


def test_slice_of_opset_1(agree: Callable[..., Any], run: Callable[..., Any]) -> None:
    agree("Slice", X, opset=9, starts=[1, 0], ends=[-1, 2], axes=[1, 0])
    agree("Slice", X, opset=9, starts=[1, 0], ends=[-1, 1000])
    assert run("Slice", X, opset=15, starts=[1], ends=[2])[0].shape == (1, 4, 5)


@LATE_AND_FIXED
@pytest.mark.parametrize("axis", [1, -1])
def test_split_sizes(agree: Callable[..., Any], axis: int, fixed: tuple[int, ...]) -> None:
    sizes = i64(1, 0, X.shape[axis] - 1)
    agree("Split", X, sizes, outputs=3, axis=axis, fixed=fixed)


def test_split_evenly(agree: Callable[..., Any], run: Callable[..., Any]) -> None:
    agree("Split", X, outputs=2, axis=1, opset=13)
    agree("Split", X, outputs=2, axis=2, num_outputs=2)
    agree("Split", X, outputs=3, axis=2, num_outputs=3)
    assert [p.shape[1] for p in run("Split", X, outputs=3, axis=1, num_outputs=3)] == [2, 2, 0]
    agree("Split", X, outputs=2, axis=1, split=[1, 3], opset=11)


def test_split_sizes_of_opset_1(run: Callable[..., Any]) -> None:
    for part, wanted in zip(
        run("Split", X, np.float32([1, 3]), outputs=2, axis=1, fixed=(1,), opset=1), np.split(X, [1], 1), strict=True
    ):
        np.testing.assert_array_equal(part, wanted)
    assert [p.shape[0] for p in run("Split", X, outputs=2, opset=2, split=[2, 1])] == [2, 1]


@LATE_AND_FIXED
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(agree: Callable[..., Any], mode: str, fixed: tuple[int, ...]) -> None:
    agree("Pad", X, i64(1, 0, 2, 0, 3, 1), mode=mode, fixed=fixed, opset=19)
    agree("Pad", X, i64(2, 1, 1, 0), None, i64(-1, 0), mode=mode, fixed=fixed, opset=19)


@LATE_AND_FIXED
def test_pad_values(agree: Callable[..., Any], run: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    agree("Pad", X, i64(1, 0, 0, 0, 0, -2), np.float32(7.5), fixed=fixed)
    big = np.array([(1 << 53) + 1])
    assert run("Pad", big, i64(1, 0), big[0], fixed=fixed)[0].tolist() == [big[0], big[0]]
    agree("Pad", X > 30, i64(0, 0, 0, 0, 0, 2), np.bool_(True), fixed=fixed)
    agree("Pad", X, i64(0, 0, 0, 0, 0, 2), np.float32(np.nan), fixed=fixed)


def test_pad_of_old_opsets(agree: Callable[..., Any], run: Callable[..., Any]) -> None:
    agree("Pad", X, opset=10, pads=[0, 1, 0, 0, 0, 2], value=3.0)
    assert run("Pad", X, opset=1, paddings=[0, 1, 0, 0, 0, 2])[0].shape == (3, 5, 7)


@pytest.mark.parametrize("opset", [11, 18])
def test_pad_wraps_before_the_opset_that_says_so(run: Callable[..., Any], opset: int) -> None:
    """Circular padding as torch.onnx.export writes it for opset 18, which onnxruntime accepts."""
    (found,) = run("Pad", X, i64(0, 1, 0, 0, 2, 0), mode="wrap", opset=opset)
    np.testing.assert_array_equal(found, np.pad(X, ((0, 0), (1, 2), (0, 0)), mode="wrap"))


def test_concat(agree: Callable[..., Any], run: Callable[..., Any]) -> None:
    agree("Concat", X, X[:, :1], X, axis=-2)
    agree("Concat", X, axis=0)
    assert run("Concat", X, X, opset=1)[0].shape == (3, 8, 5)


def test_center_crop_pad_axes(agree: Callable[..., Any], run: Callable[..., Any]) -> None:
    for fixed in ((), (1,)):
        (out,) = run("CenterCropPad", X, i64(8, 2), axes=[-1, 1], fixed=fixed)
        np.testing.assert_array_equal(out, np.pad(X[:, 1:3], ((0, 0), (0, 0), (1, 2))))


@LATE_AND_FIXED
@pytest.mark.parametrize(
    ("op", "operands", "options"),
    [
        ("Slice", [i64(0), i64(1), i64(3)], {}),
        ("Slice", [i64(0), i64(1), i64(0), i64(0)], {}),
        ("Slice", [i64(0, 0), i64(1, 1), i64(0, -3)], {}),
        ("Slice", [i64(0, 0), i64(1)], {}),
        ("Split", [i64(1, 1)], {"outputs": 2}),
        ("Split", [i64(4, -1)], {"outputs": 2}),
        ("Pad", [i64(1, 1)], {}),
        ("Pad", [i64(-2, 0, 0, -2, 0, 0)], {}),
        ("Pad", [i64(1, 1), None, i64(5)], {}),
    ],
)
def test_refused(
    run: Callable[..., Any], op: str, operands: list[Any], options: dict[str, Any], fixed: tuple[int, ...]
) -> None:
    with pytest.raises(MgxError, match=op.lower() if not fixed else op):
        run(op, X, *operands, fixed=fixed, **options)


def test_refused_attributes(run: Callable[..., Any]) -> None:
    for op, options in (
        ("Split", {"outputs": 2, "opset": 13}),
        ("Split", {"outputs": 3, "num_outputs": 2}),
        ("Split", {"axis": 3, "num_outputs": 1}),
        ("Pad", {"opset": 2, "pads": [0, 0]}),
        ("Pad", {"opset": 2, "pads": [0] * 6, "mode": "turn"}),
        ("Concat", {}),
    ):
        with pytest.raises(MgxError, match=op):
            run(op, X, **options)
