"""FlatBuffer tables, byte by byte."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mgx_tflite.schema import OPERATORS, OPTIONS, OPTIONS_2, Table


def table(fields: dict[int, bytes], tail: bytes = b"") -> bytes:
    """Returns a file with one table whose fields have eight bytes each; offsets in `tail` are relative to its start."""
    count = max(fields) + 1
    places = struct.pack("<HH", 4 + 2 * count, 4 + 8 * count)
    places += b"".join(struct.pack("<H", 4 + 8 * k if k in fields else 0) for k in range(count))
    begin = 4 + len(places)
    body = struct.pack("<i", len(places)) + b"".join(fields.get(k, b"").ljust(8, b"\0") for k in range(count))
    return struct.pack("<I", begin) + places + body + tail


def reaching(fields: int, place: int) -> bytes:
    """Returns an offset from a field into the bytes after the table."""
    return struct.pack("<I", 8 * (fields - place))


def test_numbers_and_defaults():
    data = table({1: struct.pack("<i", -3), 5: struct.pack("<i", 7)})
    found = Table(data, struct.unpack_from("<I", data)[0], "Conv2DOptions")
    assert (found.StrideW(), found.StrideH(), found.DilationWFactor(), found.DilationHFactor()) == (-3, 0, 1, 7)
    with pytest.raises(AttributeError, match="NoSuch"):
        found.NoSuch()


def test_vectors_and_strings():
    tail = struct.pack("<I3i", 3, 5, -1, 7) + struct.pack("<I", 2) + b"ab"
    data = table({0: reaching(4, 0), 3: struct.pack("<I", 8 + 16)}, tail)
    found = Table(data, struct.unpack_from("<I", data)[0], "Tensor")
    assert found.ShapeLength() == 3 and found.ShapeAsNumpy().tolist() == [5, -1, 7] and found.Name() == b"ab"
    assert found.ShapeSignatureLength() == 0 and found.ShapeSignatureAsNumpy().dtype == np.int32
    assert found.Quantization() is None and found.IsVariable() is False


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\x7f" + b"\0" * 12,  # the table
        struct.pack("<Ii", 4, 1 << 20) + b"\0" * 8,  # the offsets of its fields
        table({0: struct.pack("<I", 1 << 30)}),  # a vector
        table({0: reaching(1, 0)}, struct.pack("<I", 1 << 28)),  # the end of a vector
    ],
)
def test_places_outside_the_file_are_refused(data: bytes):
    def read() -> None:
        Table(data, struct.unpack_from("<I", data)[0], "Uint8Vector").ValuesAsNumpy()

    with pytest.raises((struct.error, ValueError)):
        read()


def test_a_string_ends_within_the_file():
    data = table({1: reaching(2, 1)}, struct.pack("<I", 9) + b"short")
    with pytest.raises(ValueError, match="beyond the end of the file"):
        Table(data, struct.unpack_from("<I", data)[0], "OperatorCode").CustomCode()


def test_numbers_of_operators_and_attributes():
    places = {"ADD": 0, "CONV_2D": 3, "CUSTOM": 32, "WHILE": 119, "STABLEHLO_COMPOSITE": 206}
    assert {name: OPERATORS.index(name) for name in places} == places
    assert OPTIONS.index("Conv2DOptions") == 1 and OPTIONS.index("WhileOptions") == 93
    assert OPTIONS_2[0] == "NONE" and len(OPTIONS_2) == 23
