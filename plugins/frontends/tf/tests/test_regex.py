"""Regular expressions from models."""

from __future__ import annotations

import pytest

from mgx_core import ParameterError
from mgx_tf.ops.regex import pattern_of


@pytest.mark.parametrize(
    "text",
    [
        "(a|a)*b",
        "(a+|b)*c",
        "(a+)+",
        "(a?)*",
        "(?:a{1,9}b)*",
        "((?=a*)b)+",
        "(a|a){23,}",
        "(?P<x>a*:)+",
        "[x[:foo:](a|a)*b]",
    ],
)
def test_patterns_of_exponential_time_are_rejected(text: str) -> None:
    with pytest.raises(ParameterError, match="exponential"):
        pattern_of(text)


@pytest.mark.parametrize("part", ["a?", "(a|a)", "(?:|a)", "a{0,1}", "a??"])
def test_17_optional_parts_may_follow_one_another(part: str) -> None:
    pattern_of(part * 17)
    for text in (part * 18, f"({part * 8})-{part * 10}", f"x|{part * 18}"):
        with pytest.raises(ParameterError, match="exponential"):
            pattern_of(text)


@pytest.mark.parametrize("part", ["a*", "a+", "[^a]*?", "(?:ab){2,}", "a{1,99}", "a{,}"])
def test_five_repeats_without_end_may_follow_one_another(part: str) -> None:
    pattern_of(part * 5 + "c" + "|" + part * 5)
    with pytest.raises(ParameterError, match="exponential"):
        pattern_of(part * 6 + "c")


@pytest.mark.parametrize(
    "text",
    [
        "(",
        "a{99999999999}",
        "(?<name>a)",
        "(" * 5000 + ")" * 5000,
        "a{" + "9" * 5000 + "}",
        "(?x)(a|a) *",
        "(?#()(a|a)*",
    ],
)
def test_malformed_patterns_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="malformed"):
        pattern_of(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\s+", b" "),
        (r"[^\w]+|[!-/]", b"!"),
        ("(foo|bar)", b"bar"),
        (r"(\d|[a-c]){2}", b"a1"),
        (r"\(?\d{3}\)?[\s.-]?\d{3}[\s.-]?\d{4}", b"(123) 456-7890"),
        (r"https?://(?:www\.)?[-\w@:%.+~#=]{1,256}\.\w{1,6}\b[-\w()@:%.+~#?&/=]*", b"https://a.org/b"),
        (r"(?i)\s*\d+\s*,\s*\d+", b" 1, 2"),
        ("|".join(["[a-z]+ ?"] * 20), b"word "),
    ],
)
def test_others_are_accepted(text: str, found: bytes) -> None:
    matched = pattern_of(text).search(found)
    assert matched is not None and matched[0] == found
