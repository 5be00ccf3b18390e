"""Regular expressions that a model brings."""

from __future__ import annotations

import pytest

from mgx_core import ParameterError
from mgx_tf.ops.patterns import pattern_of


@pytest.mark.parametrize("text", ["(a|a)*b", "(a+|b)*c", "(a+)+", "(a?)*", "(?:a{1,9}b)*", "((?=a*)b)+"])
def test_what_may_take_exponential_time_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="exponential"):
        pattern_of(text)


@pytest.mark.parametrize(
    ("text", "found"), [(r"\s+", b" "), (r"[^\w]+|[!-/]", b"!"), ("(foo|bar)", b"bar"), (r"(\d|[a-c]){2}", b"a1")]
)
def test_others_are_taken(text: str, found: bytes) -> None:
    matched = pattern_of(text).search(found)
    assert matched is not None and matched[0] == found
