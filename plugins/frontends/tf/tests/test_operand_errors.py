"""Operands that ops of this package reject: the error states what was required and what was got."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import pytest

from mgx_core import ParameterError, Shape, ShapeError, UnsupportedError
from mgx_core import dtype as dt
from mgx_tf.ops.audio import DecodeWav
from mgx_tf.ops.crosses import Cross
from mgx_tf.ops.encoding import EncodePng, EncodeWav
from mgx_tf.ops.regex import pattern_of
from mgx_tf.ops.segment import Segment
from mgx_tf.ops.sparse_sets import SetOperation
from mgx_tf.ops.special import RandomBetween, Special
from mgx_tf.ops.string_format import StringFormat
from mgx_tf.ops.table import TableFind
from mgx_tf.ops.text import StringToNumber


def f(*dims: int) -> Shape:
    return Shape("float32", dims)


def i(*dims: int) -> Shape:
    return Shape("int64", dims)


def wav(kind: int, bits: int) -> bytes:
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36, b"WAVE", b"fmt ", 16, kind, 1, 50, 100, 2, bits)
    return head + struct.pack("<4sI", b"data", 0)


@pytest.mark.parametrize(
    ("op", "operands", "said"),
    [
        (Cross(buckets=0), [i(1), i(3)], "the number of rows and, for each column, vectors of values and of their rows are required"),
        (EncodePng(), [f(4, 4, 3)], "images [.., height, width, channels] of uint8 or uint16 are required, got float32[4, 4, 3]"),
        (EncodeWav(), [f(4), f()], "samples float32 [samples, channels] and a rate int32 [] are required, got float32[4], float32[]"),
        (SetOperation(how="sum", dense=(True, True)), [i(2, 2), i(2, 2)], "unknown set operation 'sum'"),
        (SetOperation(how="union", dense=(True, False)), [i(2, 2), i(2, 2)], "two tensors are required, dense or sparse"),
        (
            TableFind(),
            [i(2), f(3), f(3), f()],
            "keys must have the type of x and values that of the default, got float32[3] for int64[2], float32[3] for float32[]",
        ),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(op: Any, operands: list[Shape], said: str) -> None:
    with pytest.raises(ShapeError, match=f"^{op.name}.*: {re.escape(said)}$"):
        op.result(operands)


@pytest.mark.parametrize(
    ("op", "operands", "said"),
    [
        (EncodeWav(), [np.zeros((1, 1), np.float32), np.array(-1)], "got a rate of -1 and [1, 1]"),
        (EncodeWav(), [np.zeros((1, 1 << 15), np.float32), np.array(1)], "got a rate of 1 and [1, 32768]"),
        (EncodeWav(), [np.zeros((1, 2), np.float32), np.array(1 << 30)], "less than 4 GiB in all and per second, got a rate"),
        (DecodeWav(), [b"RIFX"], "a WAV file must begin with RIFF and WAVE"),
        (DecodeWav(), [wav(1, 16)[:36]], "a WAV file must have a format chunk and a data chunk"),
        (DecodeWav(), [wav(3, 32)], "WAV files must be 16-bit PCM, got encoding 3 with 32 bits"),
        (Segment(how="sum"), [np.zeros(2), np.array([1, 0])], "segment ids must be nonnegative and ascending"),
        (RandomBetween(), [np.array(1), np.array(5), np.array(5), np.zeros(2, int)], "the range must not be empty, got 5 to 5"),
        (StringFormat(template="{} {}", placeholder="{}"), [np.zeros(1)], "2 tensors are required, one per placeholder, got 1"),
        (StringToNumber(target=dt.int64), [np.array(["1.5"], object)], "malformed number: invalid literal"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(op: Any, operands: list[Any], said: str) -> None:
    given = [np.array(x.decode("ascii"), object) if isinstance(x, bytes) else x for x in operands]
    with pytest.raises(ShapeError, match=re.escape(said)):
        op.evaluate(given)


def test_attributes_that_do_not_fit() -> None:
    with pytest.raises(UnsupportedError, match="unknown special function 'sinc'"):
        Special(function="sinc")
    with pytest.raises(ParameterError, match="a compression level of -1 to 9 is required, got 12"):
        EncodePng(level=12).result([Shape("uint8", (4, 4, 3))])
    with pytest.raises(ParameterError, match=r"^a pattern of \d+ characters is longer than \d+$"):
        pattern_of("a" * 100_000)
