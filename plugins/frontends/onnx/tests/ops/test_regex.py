"""Regular expressions: compared with Python's, and patterns that take a backtracking matcher exponential time."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgx_core.errors import ParameterError
from mgx_onnx.ops.automaton import MAX_ROWS, MAX_STATES, Automaton
from mgx_onnx.ops.regex import compile_pattern

T = TypeVar("T")

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "1", r"\w", "^", r"\b", "[a-c1]"])
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{1,3}?"])
PATTERNS = st.recursive(
    ATOMS,
    lambda p: st.one_of(
        st.tuples(p, p).map("".join),
        st.tuples(p, p).map(lambda t: f"(?:{t[0]}|{t[1]})"),
        st.tuples(p, REPEATS).map(lambda t: f"(?:{t[0]}){t[1]}"),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.text("abc1 \n", max_size=7))
def test_full_matches_as_python(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).fullmatch(text) == bool(re.compile(pattern, re.ASCII).fullmatch(text))


@given(
    st.lists(st.sampled_from(["a", "ab", "b+", "[ab]c", "a*?b", "c", "(?:a|ab)(?:c|bcd)"]), min_size=1, max_size=3),
    st.text("abcd", max_size=9),
)
def test_agrees_with_a_backtracking_matcher(branches: list[str], text: str) -> None:
    pattern = "|".join(branches)
    assert compile_pattern(pattern).find_all(text) == [m.span() for m in re.finditer(pattern, text)]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(?i)Ab", "aB", True),
        ("(?i:a)b", "AB", False),
        ("(a)(?i)bc", "aBC", True),
        ("(?s)a.b", "a\nb", True),
        ("(?m)^a$\n^b$", "a\nb", True),
        ("a$", "a\n", False),
        ("[[:alpha:]]+", "abc", True),
        ("[^[:digit:]x]", "x", False),
        (r"\pL+", "\u00e9a", True),
        (r"\p{^Lu}", "\u00c9", False),
        (r"\PN", "1", False),
        (r"a\Q.*\Eb", "a.*b", True),
        (r"\x{1F600}\x41\101", "\U0001f600AA", True),
        (r"[\]\-a]+", "]-a", True),
        ("x{,2}", "x{,2}", True),
        ("(?P<word>a|)", "", True),
        (r"\Aa\z", "a", True),
        (r"a\B\w", "ab", True),
        ("a{0}", "", True),
    ],
)
def test_syntax(pattern: str, text: str, expected: bool) -> None:
    assert compile_pattern(pattern).fullmatch(text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        "a)",
        "[a",
        "[b-a]",
        "*a",
        "a**",
        r"\1",
        "(?=a)",
        "(?<!a)b",
        "(?P=x)",
        "a{1001}",
        "a{2,1}",
        r"\x{110000}",
        r"\pX",
        r"\y",
        "[[:no:]]",
        "a\\",
        "(" * 200,
    ],
)
def test_malformed(pattern: str) -> None:
    with pytest.raises(ParameterError, match="regular expression"):
        compile_pattern(pattern)


class Counted(list[T]):
    """A list that counts its reads by index."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("(x+x+)+y", "x" * 5000, False),
        ("(a|a|aa)*b", "a" * 5000, False),
        ("(a?){30}a{30}", "a" * 30, True),
        ("^(a|a|aa)*$", "a" * 500 + "b", False),  # with anchors, transitions are not cached
    ],
)
def test_hostile_patterns_visit_a_state_once_a_character(pattern: str, text: str, matches: bool) -> None:
    automaton = compile_pattern.__wrapped__(pattern)
    automaton.moves, automaton.tests = moves, tests = Counted(automaton.moves), Counted(automaton.tests)
    assert automaton.fullmatch(text) == matches
    assert 0 < moves.reads <= len(moves) * (len(text) + 1)
    assert 0 < tests.reads <= len(tests) * len(text)


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", "((((a?){1000})*){1000}){1000}"])
def test_large_patterns_are_refused_before_they_are_built(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    state = Automaton.state

    def counting(automaton: Automaton) -> int:
        made.append(state(automaton))
        return made[-1]

    monkeypatch.setattr(Automaton, "state", counting)
    with pytest.raises(ParameterError, match="states"):
        compile_pattern.__wrapped__(pattern)
    assert len(made) == MAX_STATES


def test_transitions_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second match of the same text computes no states; the number of kept sets of states is bounded."""
    pattern = compile_pattern("(a|b)*a(a|b){9}")
    texts = [f"{n:011b}".replace("0", "a").replace("1", "b") for n in range(2048)]
    wanted = [re.fullmatch("[ab]*a[ab]{9}", t) is not None for t in texts]
    assert [pattern.fullmatch(t) for t in texts] == wanted
    assert len(pattern._rows) <= MAX_ROWS
    simple = compile_pattern("word[0-9]*5")
    assert simple.fullmatch("word115")
    monkeypatch.setattr(Automaton, "_step", None)
    assert simple.fullmatch("word115") and simple.fullmatch("word15")
