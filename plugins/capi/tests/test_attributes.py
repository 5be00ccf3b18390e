"""Attributes of an op in the notation of C and C++ programs."""

from __future__ import annotations

import math

import pytest

from mgx_c.attributes import read


def test_names_need_no_quotes_and_numbers_may_be_infinite() -> None:
    assert read('{axes: [1, 2], mode: average, "name": "x.y", on: true}') == {
        "axes": [1, 2],
        "mode": "average",
        "name": "x.y",
        "on": True,
    }
    assert read('{"value": -Infinity, high: Infinity}') == {"value": -math.inf, "high": math.inf}
    assert math.isnan(read("{value: NaN}")["value"])
    assert read("{epsilon: 1e-05, low: -2.5E+3, e5: e5}") == {"epsilon": 1e-05, "low": -2500.0, "e5": "e5"}
    assert read(None) == read(" ") == {}


@pytest.mark.parametrize("text", ["[1]", "{axes: }", "{axes: [1, 2}"])
def test_what_is_not_attributes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="attributes must have the form"):
        read(text)
