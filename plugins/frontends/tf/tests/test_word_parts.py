"""Runs of words, beside the values that TensorFlow 2.21 gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import DeviceError, ParameterError, Shape, ShapeError
from mgx_core import dtype as dt
from mgx_core.types.memory_limit import limited
from mgx_tf.ops.word_parts import StringNGrams


def runs(words: str, splits: list[int], **parameters: Any) -> tuple[list[str], list[int]]:
    op = StringNGrams(**{"separator": "|", "widths": (2,), "left": "L", "right": "R", **parameters})
    op.infer(Shape.of(dt.string, (len(words),)), Shape.of(dt.int64, (len(splits),)))
    found, ends = op.compute(np.array(list(words), object), np.array(splits, np.int64))
    return found.tolist(), ends.tolist()


@pytest.mark.parametrize(
    ("words", "splits", "parameters", "found", "ends"),
    [
        ("ab", [0, 2], {"pad": 0, "widths": (5,)}, "a|b", [0, 1]),
        ("ab", [0, 2], {"pad": 1, "widths": (5,)}, "L|a|b|R", [0, 1]),
        ("ab", [0, 2], {"pad": 1, "widths": (5, 9)}, "L|a|b|R", [0, 1]),
        ("ab", [0, 2], {"pad": 1, "widths": ()}, "L|a|b|R", [0, 1]),
        ("ab", [0, 2], {"pad": 2, "widths": (9,)}, "L|L|a|b|R|R", [0, 1]),
        ("ab", [0, 2], {"pad": 2, "widths": (5, 9)}, "L|L|a|b|R L|a|b|R|R", [0, 2]),
        ("ab", [0, 2], {"pad": 7, "widths": (3,)}, "L|L|a L|a|b a|b|R b|R|R", [0, 4]),
        ("ab", [0, 2], {"pad": -1, "widths": (3,)}, "L|L|a L|a|b a|b|R b|R|R", [0, 4]),
        ("abc", [0, 2, 2, 3], {"pad": 1, "widths": (5, 3)}, "L|a|b a|b|R L|c|R", [0, 2, 2, 3]),
        ("ab", [0, 0, 2], {"pad": 1}, "L|R L|a a|b b|R", [0, 1, 4]),
        ("ab", [0, 0, 2], {"pad": -1, "widths": (3,)}, "L|L|R L|R|R L|L|a L|a|b a|b|R b|R|R", [0, 2, 6]),
        ("", [0, 0], {"pad": 1}, "", [0, 0]),
        ("", [0], {}, "", [0]),
        ("", [], {}, "", []),
    ],
)
def test_runs(words: str, splits: list[int], parameters: dict[str, Any], found: str, ends: list[int]) -> None:
    assert runs(words, splits, short=True, **parameters) == (found.split(), ends)


@pytest.mark.parametrize("splits", [[-3, 6], [0, 1], [1, 2], [0, 2, 1], [0, 3], [0], [2]])
def test_splits_that_do_not_take_the_words_apart_are_refused(splits: list[int]) -> None:
    with pytest.raises(ShapeError, match="ascend from 0 to the number of words, 2"):
        runs("ab", splits)


@pytest.mark.parametrize(("parameters", "message"), [
    ({"widths": (2, 0)}, r"at least 1 .* got \[2, 0\]"), ({"widths": (-1,)}, "at least 1"), ({"pad": -2}, "at least -1"),
    ({"widths": (), "pad": -1}, "at least 0"),
])  # fmt: skip
def test_widths_and_padding_have_least_values(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        runs("ab", [0, 2], **parameters)


@pytest.mark.parametrize("parameters", [
    {"widths": (2000,), "pad": -1}, {"widths": (2000,), "pad": -1, "separator": "", "left": "", "right": ""},
    {"widths": (1 << 21,), "pad": 1 << 19, "short": True}, {"widths": (600,) * 10, "pad": -1},
])  # fmt: skip
def test_runs_that_are_too_large_are_refused(parameters: dict[str, Any]) -> None:
    with limited(1 << 20), pytest.raises(DeviceError, match="runs of words"):
        runs("ab", [0, 2], **parameters)
