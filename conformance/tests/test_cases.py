"""The table of cases is complete and consistent."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mgx_conformance.cases import all_cases, covered
from mgx_conformance.cases.case import LAYOUTS
from mgx_conformance.known import OPS
from mgx_conformance.trial import applies, build, selected


def test_every_op_has_cases_or_a_reason():
    known = covered()
    assert set(known) == {op.name for op in OPS}
    with_cases = {case.op.name for case in all_cases()}
    for name, reason in known.items():
        assert (name in with_cases) != bool(reason), name
        assert not reason or len(reason.split()) > 3, name


def test_layouts():
    counts = Counter(layout for _, layout in selected())
    assert set(counts) == set(LAYOUTS)
    assert min(counts.values()) > 200


def test_most_types_are_tried():
    kinds = {case.dtype for case in all_cases()}
    floats = "float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 float4_e2m1fn complex64"
    others = "bool string int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64"
    assert kinds >= {*floats.split(), *others.split()}


@pytest.fixture(scope="module")
def softmax():
    return next(c for c in all_cases() if c.id == "softmax-last-float32")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operand_equals_the_view(softmax, layout):
    trial = build(softmax, layout)
    (operand,) = trial.operands
    (fed,) = trial.feeds.values()
    assert operand.shape == (2, 3, 9)
    expected = {
        "contiguous": lambda x: x, "strided": lambda x: x, "symbolic": lambda x: x, "transposed": lambda x: x.transpose(),
        "sliced": lambda x: x[1:3, 1:4, 1:10], "broadcast": lambda x: np.repeat(x, 2, axis=0),
    }  # fmt: skip
    np.testing.assert_array_equal(expected[layout](fed), operand)


def test_strided_operand_has_odd_strides(softmax):
    (operand,) = build(softmax, "strided").operands
    assert operand.strides[0] < 0
    assert operand.strides[-1] == 8


def test_layout_changes_without_effect_are_omitted():
    case = next(c for c in all_cases() if c.id == "relu-scalar-float32")
    assert [layout for layout in LAYOUTS if applies(case, layout)] == ["contiguous"]
