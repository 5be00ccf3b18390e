"""Ops on strings."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction

from ..converter import converts
from ..node import Node


@converts("StringConcat", since=20)
def string_concat(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return n.add("string_concat", x, y)


@converts("StringSplit", since=20)
def string_split(n: Node, x: Instruction) -> Any:
    return n.items(n.add("string_split", x, delimiter=n.attr("delimiter", ""), maxsplit=n.attr("maxsplit", -1)))


@converts("StringNormalizer", since=10)
def string_normalizer(n: Node, x: Instruction) -> Instruction:
    """Converts StringNormalizer; the locale is ignored: case conversion follows Unicode for all languages."""
    return n.add(
        "string_normalizer",
        x,
        case_change_action=n.attr("case_change_action", "NONE"),
        is_case_sensitive=bool(n.attr("is_case_sensitive", 0)),
        stopwords=n.attr("stopwords", []),
    )


@converts("RegexFullMatch", since=20)
def regex_full_match(n: Node, x: Instruction) -> Instruction:
    return n.add("regex_full_match", x, pattern=n.attr("pattern"))


@converts("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(n: Node, x: Instruction) -> Instruction:
    required = ("mode", "min_gram_length", "max_gram_length", "max_skip_count", "ngram_counts", "ngram_indexes")
    return n.add(
        "tf_idf_vectorizer",
        x,
        **{name: n.attr(name) for name in required},
        **{name: n.attr(name, []) for name in ("pool_int64s", "pool_strings", "weights")},
    )


@converts("Tokenizer", domain="com.microsoft")
def tokenizer(n: Node, x: Instruction) -> Instruction:
    return n.add(
        "tokenizer",
        x,
        mark=bool(n.attr("mark", 0)),
        mincharnum=n.attr("mincharnum"),
        pad_value=n.attr("pad_value"),
        separators=n.attr("separators", []),
        tokenexp=n.attr("tokenexp", ""),
    )
