"""Relates the extents of a model's inputs and outputs, and chooses the bucket that a request is padded to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import ParameterError, Shape
from mgx_core.types.dim import Dim, Sym, solve, substitute, symbols_of

from .padding import Padding
from .settings import ModelSettings
from .tensors import Tensor

__all__ = ["Buckets", "Extents"]

LARGEST: Final = 256 << 20  # default limit, in bytes, of one padded row
KEPT: Final = 1024  # maximum number of cached paddings
Rows = Mapping[str, Sequence[int]]  # the extents of a row of each input


class Extents:
    """The extents of one row of each input and output, as symbolic expressions of the program.

    inputs: shapes by name; outputs: shapes in order.  The first axis (the batch) is ignored.
    """

    def __init__(self, inputs: Mapping[str, Shape], outputs: Sequence[Shape]) -> None:
        self.inputs, self._outputs = inputs, outputs

    def symbols(self) -> set[str]:
        """Returns the symbols that occur as a plain extent of an input."""
        dims = [d for shape in self.inputs.values() for d in shape.dims[1:]]
        return {d.symbol.name for d in dims if isinstance(d, Sym) and d.symbol is not None}

    def known(self, rows: Rows) -> dict[str, int]:
        """Solves for the symbols, given the extents of inputs."""
        found: dict[str, int] = {}
        pairs: list[tuple[Dim, int]] = []
        for name, shape in self.inputs.items():
            pairs += zip(shape.dims[1:], rows[name], strict=True)
        for dim, extent in pairs:
            if isinstance(dim, Sym) and dim.symbol is not None:
                found[dim.symbol.name] = extent
        solve(pairs, found)
        return found

    def check_cuts(self, name: str, known: Mapping[str, int]) -> None:
        """Errors: ParameterError for an output whose elements cannot be assigned to an open extent of the known length.

        A longer output may contain the extent twice, or end with other elements; two open extents in one axis may alternate.
        """
        for number, shape in enumerate(self._outputs):
            for dim in shape.dims[1:]:
                found = substitute(dim, known)
                symbols = {s.name for s in symbols_of(dim)} if isinstance(dim, Sym) else set()
                if not isinstance(found, int) or (name in symbols and (found > known[name] or len(symbols) > 1)):
                    raise ParameterError(
                        f"buckets of {name!r}: outputs are cut to the extents of requests, which have to be {name} or less; "
                        f"output {number} is {shape}"
                    )

    def rows_of_inputs(self, known: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
        """Returns the extents of a row of each input; None if they depend on unknown symbols."""
        made = _numbers([*self.inputs.values()], known)
        return None if made is None else dict(zip(self.inputs, made, strict=True))

    def rows_of_outputs(self, known: Mapping[str, int]) -> list[tuple[int, ...]] | None:
        """Returns the extents of a row of each output; None if they depend on unknown symbols."""
        return _numbers(self._outputs, known)


def _numbers(shapes: Sequence[Shape], known: Mapping[str, int]) -> list[tuple[int, ...]] | None:
    made = []
    for shape in shapes:
        dims = [substitute(d, known) for d in shape.dims[1:]]
        if not all(isinstance(d, int) for d in dims):
            return None
        made.append(tuple([int(d) for d in dims if isinstance(d, int)]))
    return made


class Buckets:
    """The buckets that requests are padded to, from a model's settings."""

    def __init__(self, extents: Extents, inputs: Sequence[Tensor], settings: ModelSettings) -> None:
        """Errors: ParameterError if the settings do not fit the model."""
        self._extents, self._sizes = extents, settings.buckets
        known = sorted(extents.symbols())
        for name in self._sizes:
            if name not in known:
                raise ParameterError(f"buckets: the model's inputs have the open extents {known}, got {name!r}")
        self._elements = {t.name: _element(t, settings.fill.get(t.name, 0)) for t in inputs}
        for name in settings.fill:
            if name not in self._elements:
                raise ParameterError(f"fill: the model's inputs are {', '.join(self._elements)}, got {name!r}")
        for name, sizes in self._sizes.items():
            for size in sizes:
                extents.check_cuts(name, dict.fromkeys(known, 1) | {name: size})
                self._check_size(inputs, name, dict.fromkeys(known, 1) | {name: size})
        self._kept: dict[tuple[tuple[int, ...], ...], Padding | None] = {}

    def _check_size(self, inputs: Sequence[Tensor], name: str, known: Mapping[str, int]) -> None:
        """Errors: ParameterError for a bucket whose single row exceeds the size limit of requests."""
        rows = self._extents.rows_of_inputs(known) or {}
        size = sum([prod(rows[t.name]) * t.dtype.itemsize for t in inputs if t.name in rows])
        if size > LARGEST:
            raise ParameterError(
                f"buckets of {name!r}: a row of {known[name]} takes {size} bytes, at most {LARGEST} may be"
            )

    def padding(self, rows: Rows) -> Padding | None:
        """Returns the padding of requests with these row extents; None if they are not padded.

        Extents larger than the largest bucket are not padded.
        """
        key = tuple([tuple(rows[name]) for name in self._extents.inputs])
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = self._padding(rows)
        return self._kept[key]

    def _padding(self, rows: Rows) -> Padding | None:
        known = self._extents.known(rows)
        if self._extents.rows_of_inputs(known) != {n: tuple(rows[n]) for n in self._extents.inputs}:
            return None  # two inputs disagree; the run reports it
        wider = dict(known)
        for name, sizes in self._sizes.items():
            at = bisect_left(sizes, known[name])
            if at < len(sizes):
                wider[name] = sizes[at]
        inputs, outputs = self._extents.rows_of_inputs(wider), self._extents.rows_of_outputs(known)
        if wider == known or inputs is None or outputs is None:
            return None
        return Padding(
            tuple([(n, tuple(rows[n]), dims, self._elements[n]) for n, dims in inputs.items()]), tuple(outputs)
        )


def _element(tensor: Tensor, value: Any) -> bytes:
    """Returns the bytes of a padding element.  Errors: ParameterError if the type cannot represent the value."""
    made = np.zeros((), tensor.dtype)
    try:
        with np.errstate(all="ignore"):
            made = np.array(value).astype(tensor.dtype)
            whole = tensor.dtype.kind in "iub"
            found = int(made) if whole else float(made)
            near = not whole and not isinstance(value, bool)
            fits = found == value or (near and bool(np.isfinite(found) == np.isfinite(value)))
    except (OverflowError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ParameterError(f"fill: input {tensor.name!r} is of type {tensor.datatype}, got {value!r}")
    return made.tobytes()
