"""Test cases: an op, the distribution of its operands, and the layouts in which they are passed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mgx_core import Operation, dtype
from mgx_core.types.dtype import DType

__all__ = ["LAYOUTS", "Case", "Family", "Operand", "data", "given", "picks", "refused", "table"]

LAYOUTS: Final = ("contiguous", "strided", "transposed", "sliced", "broadcast", "symbolic")

FLOATS: Final = (dtype.float32, dtype.float16, dtype.bfloat16, dtype.float64)
INTS: Final = (dtype.int32, dtype.int64, dtype.int8, dtype.uint8, dtype.int16, dtype.uint16, dtype.uint32, dtype.uint64)
FP8: Final = (dtype.float8_e4m3fn, dtype.float8_e4m3fnuz, dtype.float8_e5m2, dtype.float8_e5m2fnuz)
NARROW: Final = (
    dtype.int4,
    dtype.uint4,
    dtype.int2,
    dtype.uint2,
    dtype.float6_e2m3fn,
    dtype.float6_e3m2fn,
    dtype.float4_e2m1fn,
)


@dataclass(frozen=True)
class Operand:
    """One operand of a case.

    dims: extents; low, high: range of random values; value: a fixed array, for indices and the like; moves: may be passed in
    other layouts (True for data, False for control operands).
    """

    dtype: DType
    dims: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    value: Any = None
    moves: bool = True

    def draw(self, rng: np.random.Generator, dims: Sequence[int] | None = None) -> Any:
        """Draws values of this operand, optionally with other extents."""
        if self.value is not None:
            return self.value
        lens = self.dims if dims is None else tuple(dims)
        t = self.dtype
        if t.kind == "b":
            return rng.integers(0, 2, lens).astype(np.bool_)
        if t.is_integer:
            low, high = max(t.lowest, round(self.low)), min(t.highest, round(self.high))
            return rng.integers(low, high + 1, lens).astype(t.numpy)
        if t.kind == "s":
            words = np.array(["", "a", "b", "ab", "mgx", "Zebra", "naive", "\u00e9t\u00e9"], dtype=object)
            return words[rng.integers(0, len(words), lens)].reshape(lens)
        if t.kind == "c":
            return (rng.uniform(self.low, self.high, lens) + 1j * rng.uniform(self.low, self.high, lens)).astype(
                t.numpy
            )
        low = max(self.low, 0.0) if t.lowest >= 0 else self.low
        return np.asarray(rng.uniform(low, self.high, lens)).astype(t.numpy)


def data(kind: DType, *dims: int, low: float = -1.0, high: float = 1.0) -> Operand:
    """Returns a random data operand, passed in any layout."""
    return Operand(kind, dims, low, high)


def given(value: Any, kind: DType | None = None) -> Operand:
    """Returns a fixed operand, passed unchanged."""
    array = np.asarray(value, dtype=None if kind is None else kind.numpy)
    if array.dtype.kind == "U":
        array = array.astype(object)
    return Operand(dtype.of(array.dtype), array.shape, value=array, moves=False)


def picks(rng_seed: int, high: int, *dims: int, kind: DType = dtype.int64) -> Operand:
    """Returns an operand of indices in [0, high)."""
    return given(np.random.default_rng(rng_seed).integers(0, high, dims), kind)


@dataclass(frozen=True)
class Case:
    """One op on operands of certain dtypes and extents.

    label: distinguishes cases of one op, empty for the plain one; operands: None for an absent input; modules: builds the op's
    submodules in a program; layouts: to test; error: expected error, for error cases; judge: custom check instead of comparison
    with the reference, called with results and operand values, raises AssertionError; note: for readers.
    """

    op: Operation
    operands: tuple[Operand | Any | None, ...]
    label: str = ""
    layouts: tuple[str, ...] = ("contiguous",)
    modules: Callable[[Any], Sequence[Any]] | None = None
    error: type[Exception] | None = None
    judge: Callable[[list[Any], list[Any]], None] | None = None
    shapes: tuple[Any, ...] = ()

    @property
    def dtype(self) -> str:
        """The element type in the case's id: that of the data, or of the first operand."""
        tensors = [o for o in self.operands if isinstance(o, Operand)]
        moving = [o for o in tensors if o.moves]
        chosen = [o for o in moving if o.dtype.kind != "b"] or moving or tensors
        return chosen[0].dtype.name if chosen else "none"

    @property
    def id(self) -> str:
        return "-".join(word for word in (self.op.name, self.label, self.dtype) if word)

    def rng(self) -> np.random.Generator:
        """Returns a generator seeded identically on every machine."""
        return np.random.default_rng(zlib.crc32(self.id.encode()))


def refused(op: Operation, *operands: Operand | None, label: str, error: type[Exception]) -> Case:
    """Returns a case whose values must be rejected at run time."""
    return Case(op, operands, f"refused-{label}", error=error)


Maker = Callable[[str], Iterable[Case]]


@dataclass
class Family:
    """The cases of one op family, and the reasons why some ops have none."""

    name: str
    makers: dict[str, Maker] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def cases(self, *ops: str) -> Callable[[Maker], Maker]:
        """Decorator: registers a generator of cases for an op."""

        def keep(maker: Maker) -> Maker:
            for name in ops:
                self.makers[name] = maker
            return maker

        return keep

    def none(self, reason: str, *ops: str) -> None:
        """Records why ops have no cases at this level."""
        for name in ops:
            self.reasons[name] = reason


def table(families: Iterable[Family]) -> Iterator[Case]:
    """Yields all cases by family and op, with unique ids."""
    seen: set[str] = set()
    for family in families:
        for name, maker in family.makers.items():
            for case in maker(name):
                if case.id in seen:
                    raise ValueError(f"two cases are called {case.id!r}")
                seen.add(case.id)
                yield case
