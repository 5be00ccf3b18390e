"""CSV decoding."""

from __future__ import annotations

import csv
from typing import Literal

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array

from .corrupt_data import reading
from .text import strings

__all__: list[str] = []


@op("tf_decode_csv", exact=True)
class DecodeCsv(Operation):
    """The fields of CSV lines, by column.

    x: string [..]; then a default for each column, empty if the field is required -> a tensor [..] for each column.
    Errors: ShapeError for another number of fields, malformed numbers, missing fields.  Source: TensorFlow DecodeCSV.
    """

    delimiter: str = ","
    quotes: bool = True
    nothing: str = ""
    columns: tuple[int, ...] = ()

    def infer(self, x: Shape, *defaults: Shape) -> TupleShape:
        strings(x)
        if len(self.columns) not in (0, len(defaults)) or list(self.columns) != sorted(
            {c for c in self.columns if c >= 0}
        ):
            raise ShapeError(f"ascending nonnegative columns are required, one per default, got {self.columns}")
        return TupleShape([x.with_dtype(d.dtype) for d in defaults])

    def compute(self, x: Array, *defaults: Array) -> tuple[Array, ...]:
        with reading("table"):
            return self._columns(x, defaults)

    def _columns(self, x: Array, defaults: tuple[Array, ...]) -> tuple[Array, ...]:
        quoting: Literal[0, 3] = 0 if self.quotes else 3  # csv.QUOTE_MINIMAL, csv.QUOTE_NONE
        rows = list(csv.reader(x.reshape(-1).tolist(), delimiter=self.delimiter, quoting=quoting))
        if len(rows) != x.size:
            raise ShapeError(f"each string must contain one line, got {len(rows)} lines in {x.size} strings")
        chosen = self.columns or tuple(range(len(defaults)))
        out = []
        for column, default in zip(chosen, defaults, strict=True):
            made = np.empty(len(rows), default.dtype)
            for k, row in enumerate(rows):
                if column >= len(row) or (not self.columns and len(row) != len(defaults)):
                    raise ShapeError(f"line {k} must have {len(defaults)} fields, got {len(row)}")
                made[k] = self._value(row[column], default, k, column)
            out.append(made.reshape(x.shape))
        return tuple(out)

    def _value(self, word: str, default: Array, line: int, column: int) -> object:
        if word in ("", self.nothing):
            if not default.size:
                raise ShapeError(f"field {column} of line {line} is missing and has no default")
            return default.reshape(-1)[0]
        try:
            return word if default.dtype == object else float(word) if default.dtype.kind == "f" else int(word)
        except ValueError:
            raise ShapeError(f"field {column} of line {line} must be {default.dtype}, got {word!r}") from None
