from __future__ import annotations

import numpy as np
import pytest

from mgx_core.errors import ParameterError
from mgx_core.types.argument import Argument
from mgx_core.types.strings import as_strings, decoded, encoded

BYTES = b"caf\xc3\xa9 \xff\x00"


def test_bytes_come_back_unchanged() -> None:
    assert encoded(decoded(BYTES)) == BYTES
    assert decoded("é".encode()) == "é"


@pytest.mark.parametrize(
    "given",
    [
        np.array([["a", "é"]]),
        np.array([["a", "é"]], object),
        np.array([[b"a", "é".encode()]]),
        np.array([[b"a", "é".encode()]], object),
        np.array([[b"a", "é"]], object),
        np.array([["a", "é"]], np.dtypes.StringDType()),
    ],
    ids=["U", "str", "S", "bytes", "both", "T"],
)
def test_every_kind_of_strings_becomes_objects(given: np.ndarray) -> None:
    found = Argument(given).to_numpy()
    assert found.dtype == object and found.tolist() == [["a", "é"]]


def test_strings_are_borrowed() -> None:
    given = np.array(["a"], object)
    assert as_strings(given) is given


def test_bytes_that_are_no_text_are_surrogates() -> None:
    assert Argument(np.array([BYTES, b""], object)).tolist() == [decoded(BYTES), ""]
    assert Argument(np.array([b"\xff"])).tolist() == Argument(b"\xff").tolist() == ["\udcff"]


def test_other_types_than_strings_are_rejected() -> None:
    with pytest.raises(ParameterError, match="strings are required, got an element of type int"):
        Argument(np.array(["a", 1], object))
