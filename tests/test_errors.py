"""Parts of error messages."""

from __future__ import annotations

import pytest

from mgx_core.errors import counted, takes


@pytest.mark.parametrize(("number", "text"), [(0, "0 inputs"), (1, "1 input"), (2, "2 inputs")])
def test_nouns_are_in_the_plural_unless_the_number_is_1(number: int, text: str):
    assert counted(number, "input") == text


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (1, 1, "1 input"),
        (2, 2, "2 inputs"),
        (1, 2, "1 to 2 inputs"),
        (0, None, "0 or more inputs"),
        (1, None, "1 or more inputs"),
    ],
)
def test_numbers_of_inputs_that_an_op_takes(least: int, most: int | None, text: str):
    assert takes(least, most, ["x", "y?"], 4) == f"takes {text} (x, y?), got 4"
