"""Cases of sequences, optionals and strings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgx_core import OptionalShape, ParameterError, SequenceShape, Shape, dtype

from ..known import OPS
from .case import LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("sequences")
make = OPS.make
F = dtype.float32


def sequence(*dims: tuple[int, ...]) -> tuple[Any, Any]:
    """Returns a sequence of tensors, as a typed value."""
    rng = np.random.default_rng(9)
    kind = Shape("float32", dims[0]) if len(set(dims)) == 1 else Shape.unranked(F)
    return SequenceShape(kind), [rng.uniform(-1, 1, d).astype(np.float32) for d in dims]


@family.cases("sequence_construct")
def construct(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(F, 2, 3), data(F, 2, 3)), "equal", LAYOUTS[:3])
    yield Case(make(name), (data(F, 2, 3), data(F, 4)), "ragged")


@family.cases("sequence_empty")
def empty(name: str) -> Iterable[Case]:
    yield Case(make(name), (), "")


@family.cases("sequence_at", "sequence_erase")
def at(name: str) -> Iterable[Case]:
    for position in (0, 2, -1):
        yield Case(make(name), (sequence((2, 3), (2, 3), (2, 3)), given(position)), f"at{position}")
    yield Case(make(name), (sequence((2, 3), (4,)), given(1)), "ragged")
    yield Case(make(name), (sequence((2,), (2,)), given(2)), "refused-beyond", error=ParameterError)


@family.cases("sequence_insert")
def insert(name: str) -> Iterable[Case]:
    for position in (0, 1, -1):
        yield Case(make(name), (sequence((2, 3), (2, 3)), data(F, 2, 3), given(position)), f"at{position}")
    yield Case(make(name), (sequence((2, 3)), data(F, 2, 3)), "at-end")


@family.cases("sequence_length")
def length(name: str) -> Iterable[Case]:
    yield Case(make(name), (sequence((2,), (3, 4), (1,)),), "")


@family.cases("split_to_sequence")
def split(name: str) -> Iterable[Case]:
    yield Case(make(name, axis=1), (data(F, 2, 7), given([3, 4])), "lengths", LAYOUTS[:3])
    yield Case(make(name), (data(F, 7, 2), given(3)), "by-length")
    yield Case(make(name, keepdims=False), (data(F, 3, 2),), "each")


@family.cases("concat_from_sequence")
def concat(name: str) -> Iterable[Case]:
    yield Case(make(name, axis=0), (sequence((2, 3), (1, 3)),), "join")
    yield Case(make(name, axis=1, new_axis=True), (sequence((2, 3), (2, 3)),), "stack")


ABSENT = (OptionalShape(Shape("float32", (2,))), None)
PRESENT = (OptionalShape(Shape("float32", (2,))), np.array([1, 2], np.float32))


@family.cases("optional")
def optional(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(F, 2, 3),), "present")


@family.cases("optional_has_element")
def has_element(name: str) -> Iterable[Case]:
    yield Case(make(name), (ABSENT,), "absent")
    yield Case(make(name), (PRESENT,), "present")
    yield Case(make(name), (data(F, 2),), "tensor")


@family.cases("optional_get_element")
def get_element(name: str) -> Iterable[Case]:
    yield Case(make(name), (PRESENT,), "present")
    yield Case(make(name), (ABSENT,), "refused-absent", error=ParameterError)


# strings -----------------------------------------------------------------------------------------------------------------


def text(*words: str) -> Any:
    return given(np.array(words, dtype=object))


@family.cases("string_concat")
def string_concat(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(dtype.string, 2, 3), data(dtype.string, 3)), "", LAYOUTS[:3])


@family.cases("string_split")
def string_split(name: str) -> Iterable[Case]:
    yield Case(make(name), (text("a b", " c  d e ", ""),), "blanks")
    yield Case(make(name, delimiter=",", maxsplit=1), (text("a,b,c", ",x", "y"),), "commas")


@family.cases("string_normalizer")
def string_normalizer(name: str) -> Iterable[Case]:
    yield Case(make(name, case_change_action="UPPER", stopwords=("the",)), (text("The", "Quick", "fox"),), "upper")
    yield Case(make(name, is_case_sensitive=True, stopwords=("fox",)), (text("Fox", "fox"),), "sensitive")


@family.cases("regex_full_match")
def regex(name: str) -> Iterable[Case]:
    yield Case(make(name, pattern=r"[a-c]+\d?"), (text("abc1", "abd", "", "c"),), "")


@family.cases("tf_idf_vectorizer")
def tf_idf(name: str) -> Iterable[Case]:
    attributes: dict[str, Any] = dict(min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=(0, 3),
                                      ngram_indexes=(0, 1, 2, 3), pool_int64s=(1, 2, 3, 1, 2))  # fmt: skip
    for mode in ("TF", "IDF", "TFIDF"):
        op = make(name, mode=mode, weights=(0.5, 1.0, 2.0, 4.0), **attributes)
        yield Case(op, (given([[1, 2, 1, 3], [3, 3, 1, 2]]),), mode.lower())


@family.cases("tokenizer")
def tokenizer(name: str) -> Iterable[Case]:
    yield Case(make(name, mincharnum=1, pad_value="#", separators=(" ",)), (text("a bc", "d"),), "separators")
    yield Case(
        make(name, mark=True, mincharnum=2, pad_value="#", tokenexp="[a-z]+"), (text("ab c de", "f"),), "expression"
    )
