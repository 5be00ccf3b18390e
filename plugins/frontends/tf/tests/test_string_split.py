"""N-grams and code points of strings, compared with TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import DeviceError, ParameterError, Shape, ShapeError
from mgx_core import dtype as dt
from mgx_core.types.memory_limit import limited
from mgx_tf.ops.string_split import StringNGrams, StringSplit
from mgx_tf.ops.text import Base64
from mgx_tf.ops.unicode import UnicodeDecode, UnicodeEncode


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
def test_unsupported_splits_are_rejected(splits: list[int]) -> None:
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
    with limited(1 << 20), pytest.raises(DeviceError, match="the n-grams"):
        runs("ab", [0, 2], **parameters)


def points(word: bytes, **parameters: Any) -> list[int]:
    op = UnicodeDecode(**parameters)
    op.infer(Shape.of(dt.string, (1,)))
    ends, found = op.compute(np.array([word.decode("utf-8", "surrogateescape")], object))
    assert ends.tolist() == [0, len(found)] and found.dtype == np.int32
    return list(found.tolist())


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (b"\xe4\xb8", [63]),
        (b"\xe4\xb8a", [63, 97]),
        (b"\x80\x80", [63, 63]),
        (b"\xc0\x80", [63, 63]),
        (b"\xe0\x9f\xbf", [63, 63, 63]),
        (b"\xed\xa0\x80a", [63, 63, 63, 97]),
        (b"\xf0\x9f\x98a", [63, 97]),
        (b"\xf0\x9f\xe4\xb8\xad", [63, 0x4E2D]),
        (b"\xf4\x90\x80\x80", [63, 63, 63, 63]),
        (b"a\xef\xbf\xbdb", [97, 0xFFFD, 98]),
        (b"\xef\xbf\xef\xbf\xbd\xbd", [63, 0xFFFD, 63]),
        (b"\xef\xbf\xbe\xf4\x8f\xbf\xbf", [0xFFFE, 0x10FFFF]),
        (b"\x00\x1f \x7f\xc2\x80", [0, 31, 32, 127, 128]),
    ],
)
def test_a_malformed_sequence_becomes_one_replacement_character(word: bytes, found: list[int]) -> None:
    assert points(word, instead=63) == found


def test_control_characters_are_replaced_on_request() -> None:
    word = b"\x00\x01\t\n\x1f \x7f\xc2\x80\xc2\x9f\xc2\xad\xe4\xb8"
    assert points(word, controls=True) == [0xFFFD] * 5 + [0x20, 0x7F, 0x80, 0x9F, 0xAD, 0xFFFD]
    assert points(word, controls=True, instead=7) == [7] * 5 + [0x20, 0x7F, 0x80, 0x9F, 0xAD, 7]


@pytest.mark.parametrize("instead", [-1, 0x110000])
def test_a_replacement_is_a_code_point(instead: int) -> None:
    with pytest.raises(ParameterError, match=r"within 0\.\.1114111"):
        points(b"a", instead=instead)


@pytest.mark.parametrize(("controls", "found"), [(False, [7, 97, 63]), (True, [63, 97, 63])])
def test_the_attributes_of_unicode_decode_are_read(new_graph: Any, controls: bool, found: list[int]) -> None:
    g = new_graph()
    g.placeholder("x", object, [1])
    attributes = {
        "input_encoding": "UTF-8",
        "errors": "replace",
        "replacement_char": 63,
        "replace_control_characters": controls,
    }
    g.node("UnicodeDecode", "decoded", "x", Tsplits=np.dtype(np.int64), **attributes)
    g.node("Identity", "y", "decoded:1", T=np.dtype(np.int32))
    program = mgx.parse_tf_buffer(g.data)
    program.compile(mgx.get_target("ref"))
    word = b"\x07a\xe4\xb8".decode("utf-8", "surrogateescape")
    assert np.asarray(program.run({"x": np.array([word], object)})[0]).tolist() == found


def test_words_of_code_points():
    points, splits = np.array([72, 0x110000, 233, 0x1F600, 0xD800], np.int32), np.array([0, 2, 2, 5])
    assert UnicodeEncode().compute(points, splits).tolist() == ["H\ufffd", "", "\u00e9\U0001f600\ufffd"]
    wide = UnicodeEncode(encoding="UTF-16-BE").compute(points[2:4], np.array([0, 2])).tolist()
    assert [w.encode("utf-8", "surrogateescape") for w in wide] == [b"\x00\xe9\xd8=\xde\x00"]
    for wrong in ([0, 9], [1, 5], [0, 4], [0, 3, 2, 5], []):
        with pytest.raises(ShapeError, match="splits must ascend"):
            UnicodeEncode().compute(points, np.array(wrong, np.int64))


@pytest.mark.parametrize(
    ("word", "found"),
    [("YQ", "a"), ("YQ==", "a"), ("YR==", "a"), ("YWI", "ab"), ("YWI=", "ab"), ("YWJj", "abc"), ("", "")],
)
def test_base64(word: str, found: str):
    """Compares with TensorFlow 2.21."""
    assert Base64(back=True).compute(np.array([word], object)).tolist() == [found]
    assert (
        Base64(back=True).compute(np.array(["-_-_"], object))[0].encode("utf-8", "surrogateescape") == b"\xfb\xff\xbf"
    )


@pytest.mark.parametrize(
    "word", ["YQ======", "YQ=", "YWI==", "YWJj=", "YWJj====", "=", "+/", "+/+/", "Y", "A===", "YW=I", "YQ==YQ==", "Y Q"]
)
def test_what_is_not_base64(word: str):
    """Strings that TensorFlow 2.21 rejects."""
    with pytest.raises(ShapeError, match=r"is not (web-safe )?base64"):
        Base64(back=True).compute(np.array([word], object))


@pytest.mark.parametrize(
    ("word", "most", "parts"),
    [
        ("a\u00a0b \tc\x1cd", -1, ["a\u00a0b", "c\x1cd"]),
        (" a\u2003b c d ", 1, ["a\u2003b", "c d "]),
        ("a\x85 \udcff", -1, ["a\x85", "\udcff"]),
    ],
)
def test_splits_at_ascii_whitespace(word: str, most: int, parts: list[str]):
    _, found, _ = StringSplit(most=most).compute(np.array([word], object))
    assert found.tolist() == parts
