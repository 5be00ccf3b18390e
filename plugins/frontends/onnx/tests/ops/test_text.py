"""Ops on strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape, TupleShape
from mgx_onnx.ops import labels
from mgx_onnx.ops.automaton import Automaton
from mgx_onnx.ops.labels import LabelEncoder
from mgx_onnx.ops.text import FEW, RegexFullMatch, StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer
from mgx_onnx.ops.tokenizer import Tokenizer


def strings(*values: Any) -> Any:
    return np.array(values, object)


def test_concat_broadcasts() -> None:
    out = StringConcat().evaluate([strings(["a"], ["b"]), strings("x", "y")])
    assert out.tolist() == [["ax", "ay"], ["bx", "by"]] and out.dtype == object
    scalar = StringConcat().evaluate([np.array("a", object), np.array("", object)])
    assert isinstance(scalar, np.ndarray) and scalar.item() == "a"
    assert StringConcat().result([Shape.of(dt.string, (2, 1)), Shape.of(dt.string, (3,))]) == Shape.of(
        dt.string, (2, 3)
    )
    with pytest.raises(ShapeError, match="strings"):
        StringConcat().result([Shape.of(dt.string, ()), Shape.of(dt.int8, ())])


def test_split() -> None:
    parts, counts = StringSplit(delimiter="-").evaluate([strings("a-b--c", "", "x")])
    assert parts.tolist() == [["a", "b", "", "c"], ["", "", "", ""], ["x", "", "", ""]]
    assert counts.tolist() == [4, 1, 1]
    parts, counts = StringSplit(maxsplit=1).evaluate([strings("  a  b c", "   ")])
    assert parts.tolist() == [["a", "b c"], ["", ""]] and counts.tolist() == [2, 0]
    parts, counts = StringSplit().evaluate([np.zeros((0, 2), object)])
    assert parts.shape == (0, 2, 0) and counts.shape == (0, 2)
    result = StringSplit().result([Shape.of(dt.string, (3,))])
    assert isinstance(result, TupleShape) and result.items[1] == Shape.of(dt.int64, (3,))


def test_normalizer() -> None:
    x = strings("Monday", "tuesday", "WEDNESDAY")
    assert StringNormalizer(stopwords=["monday"], case_change_action="UPPER").evaluate([x]).tolist() == [
        "TUESDAY",
        "WEDNESDAY",
    ]
    kept = StringNormalizer(stopwords=["monday"], is_case_sensitive=True, case_change_action="LOWER").evaluate(
        [x[None]]
    )
    assert kept.tolist() == [["monday", "tuesday", "wednesday"]]
    assert StringNormalizer(stopwords=["a"]).evaluate([strings("A")[None]]).tolist() == [[""]]
    assert StringNormalizer().result([Shape.of(dt.string, (1, 3))]) == Shape.of(dt.string, (1, 3))
    n = symbol("n")
    assert StringNormalizer().result([Shape.of(dt.string, (n, 3))]) == Shape.of(dt.string, (1, 3))
    with pytest.raises(ShapeError, match="dims"):
        StringNormalizer().compute(np.array([["a"], ["b"]], object))
    for dims in ((), (2, 3), (1, 1, 1)):
        with pytest.raises(ShapeError, match="dims"):
            StringNormalizer().result([Shape.of(dt.string, dims)])


def test_regex() -> None:
    out = RegexFullMatch(pattern=r"(\w+)\.(com|gov)").evaluate([strings(["a.com", "a.org"], ["b.gov", ""])])
    assert out.tolist() == [[True, False], [True, False]] and out.dtype == np.bool_
    with pytest.raises(ParameterError, match="missing"):
        RegexFullMatch(pattern="(")


POOL = {
    "min_gram_length": 2,
    "max_gram_length": 2,
    "ngram_counts": [0, 4],
    "ngram_indexes": range(7),
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mode": "TF", "max_skip_count": 0}, [0, 0, 0, 0, 0, 1, 1]),
        ({"mode": "TF", "max_skip_count": 1 << 62}, [0, 0, 0, 0, 0, 3, 1]),
        ({"mode": "TF", "max_skip_count": 5}, [0, 0, 0, 0, 0, 3, 1]),  # the distance of 7 and 8 is 1, of 5 and 2 is 3
        ({"mode": "TF", "max_skip_count": 0, "min_gram_length": 1}, [0, 0, 0, 2, 0, 1, 1]),
        ({"mode": "IDF", "max_skip_count": 5, "weights": [1, 2, 3, 4, 5, 6, 7]}, [0, 0, 0, 0, 0, 6, 7]),
        ({"mode": "TFIDF", "max_skip_count": 5, "weights": [1, 2, 3, 4, 5, 6, 7]}, [0, 0, 0, 0, 0, 18, 7]),
    ],
)
def test_ngrams(changes: dict[str, Any], expected: list[float]) -> None:
    row = np.array([7, 8, 6, 7, 9, 8, 9], np.int32)
    pool = [2, 3, 5, 7, 5, 6, 7, 8, 6, 7]
    op = TfIdfVectorizer(**{**POOL, "pool_int64s": pool, **changes})
    out = op.evaluate([row])
    assert out.dtype == np.float32 and out.tolist() == expected
    for count in (2, 60):
        assert op.evaluate([np.stack([row] * count)]).tolist() == [expected] * count
    assert op.evaluate([np.zeros((2, 0), np.int32)]).tolist() == [[0] * 7] * 2


def test_ngrams_of_strings() -> None:
    op = TfIdfVectorizer(
        mode="TF",
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=0,
        ngram_counts=[0, 2],
        ngram_indexes=[2, 0, 1],
        pool_strings=["a", "b", "b", "a"],
    )
    assert op.evaluate([strings("b", "a", "a", "z")]).tolist() == [1, 1, 2]
    assert op.result([Shape.of(dt.string, (5, 4))]) == Shape.of(dt.float32, (5, 3))
    with pytest.raises(ShapeError, match="strings"):
        op.result([Shape.of(dt.int64, (4,))])


@pytest.mark.parametrize(
    "changes",
    [
        {"min_gram_length": 0},
        {"max_gram_length": 3},
        {"max_skip_count": -1},
        {"ngram_counts": [0, 3]},
        {"ngram_counts": [1, 4]},
        {"ngram_counts": [0, 40]},
        {"ngram_indexes": range(6)},
        {"ngram_indexes": [0, 1, 2, 3, 4, 5, 1 << 60]},
        {"ngram_indexes": [0, 1, 2, 3, 4, 5, -1]},
        {"weights": [1.0]},
        {"pool_strings": ["a"]},
        {"pool_int64s": []},
    ],
)
def test_pools_that_do_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        TfIdfVectorizer(**{"mode": "TF", "max_skip_count": 0, **POOL, **changes})


def test_tokens() -> None:
    common = {"mincharnum": 1, "pad_value": "#"}
    x = strings("a cat", "it, sat!")
    assert Tokenizer(tokenexp="[a-z]+", **common).evaluate([x]).tolist() == [["a", "cat"], ["it", "sat"]]
    assert Tokenizer(tokenexp="[a-z]+", mincharnum=2, pad_value="#").evaluate([x]).tolist() == [
        ["cat", "#"],
        ["it", "sat"],
    ]
    assert Tokenizer(separators=["[ ,]", "!"], **common).evaluate([x]).tolist() == [["a", "cat"], ["it", "sat"]]
    assert Tokenizer(separators=[""], mark=True, **common).evaluate([strings("ab", "")]).tolist() == [
        ["\x02", "a", "b", "\x03"],
        ["\x02", "\x03", "#", "#"],
    ]
    assert Tokenizer(tokenexp="z", **common).evaluate([x[None]]).shape == (1, 2, 0)
    for bad in ({}, {"separators": ["a"], "tokenexp": "a"}, {"tokenexp": "("}):
        with pytest.raises(ParameterError):
            Tokenizer(**common, **bad)


@pytest.mark.parametrize("rows", [3, 30])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_ngrams_of_three_words_as_counted_one_by_one(skip: int, rows: int) -> None:
    rng = np.random.default_rng(5)
    grams = [tuple(rng.integers(0, 4, 3).tolist()) for _ in range(20)]
    grams.append(grams[3])  # the last of equal n-grams applies
    pool = [0, 1, 2, 3, 0, 1, *(w for g in grams for w in g)]
    places = rng.permutation(5 + len(grams)).tolist()
    op = TfIdfVectorizer(
        mode="TF",
        min_gram_length=1,
        max_gram_length=3,
        max_skip_count=skip,
        ngram_counts=(0, 4, 6),
        ngram_indexes=tuple(places),
        pool_int64s=tuple(pool),
    )
    x = rng.integers(0, 6, (rows, 12))
    table: dict[tuple[int, ...], int] = {
        **{(w,): places[w] for w in range(4)},
        (0, 1): places[4],
        **dict(zip(grams, places[5:], strict=True)),
    }
    wanted = np.zeros((rows, len(places)), np.float32)
    for row, words in zip(wanted, x.tolist(), strict=True):
        for n in (1, 2, 3):
            for apart in range(1, skip + 2 if n > 1 else 2):
                for start in range(12 - (n - 1) * apart):
                    at = table.get(tuple(words[start : start + n * apart : apart][:n]))
                    if at is not None:
                        row[at] += 1
    np.testing.assert_array_equal(op.evaluate([x]), wanted)
    assert (x.size > FEW) == (rows == 30)


def test_separators_without_special_characters_take_no_automaton(monkeypatch: pytest.MonkeyPatch) -> None:
    op = Tokenizer(separators=[", ", ";"], mincharnum=1, pad_value="#")
    monkeypatch.setattr(Automaton, "find_all", None)
    assert op.evaluate([strings("a, b;;c", "d")]).tolist() == [["a", "b", "c"], ["d", "#", "#"]]


def test_a_repeated_word_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    monkeypatch.setattr(Automaton, "fullmatch", lambda _, text: bool(matched.append(text)) or text == "ab")
    found = RegexFullMatch(pattern="ab").evaluate([strings("ab", "ba", "ab", "ab")])
    assert found.tolist() == [True, False, True, True] and matched == ["ab", "ba"]


def test_tables_are_made_once() -> None:
    encoder = LabelEncoder(dtype=dt.float32, keys_strings=("a", "b"), values_floats=(1.0, 0.1), default_float=-0.0)
    first = encoder.evaluate([strings("b", "c")])
    before = labels._table_of.cache_info().hits
    np.testing.assert_array_equal(encoder.evaluate([strings("b", "c")]), first)
    np.testing.assert_array_equal(first, np.float32([0.1, -0.0]))
    assert np.signbit(first[1]) and labels._table_of.cache_info().hits == before + 1
