"""Cases: an op, how its operands are drawn, and the layouts in which they are passed."""

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
NARROW: Final = (dtype.int4, dtype.uint4, dtype.int2, dtype.uint2, dtype.float4_e2m1fn)


@dataclass(frozen=True)
class Operand:
    """One input of a case.

    dims: its extents; low, high: the range of its values; value: the array itself, for indices and the like; moves: whether
    it may be handed over in other layouts (data may, what steers an op may not).
    """

    dtype: DType
    dims: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    value: Any = None
    moves: bool = True

    def draw(self, rng: np.random.Generator, dims: Sequence[int] | None = None) -> Any:
        """Returns values of this operand, or of one like it with other extents."""
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
    """Data: random values, handed over in any layout."""
    return Operand(kind, dims, low, high)


def given(value: Any, kind: DType | None = None) -> Operand:
    """Returns exact values, passed unchanged."""
    array = np.asarray(value, dtype=None if kind is None else kind.numpy)
    if array.dtype.kind == "U":
        array = array.astype(object)
    return Operand(dtype.of(array.dtype), array.shape, value=array, moves=False)


def picks(rng_seed: int, high: int, *dims: int, kind: DType = dtype.int64) -> Operand:
    """Returns indices from 0 to high - 1."""
    return given(np.random.default_rng(rng_seed).integers(0, high, dims), kind)


@dataclass(frozen=True)
class Case:
    """One op on operands of certain dtypes and extents.

    label: says what is particular, empty for the plain case; operands: None for an absent input; modules: makes the op's
    modules in a program; layouts: those it is tried in; error: the error that a run must raise, for error cases;
    judge: compares otherwise than with the definition: called with the results and the operands' values, raises
    AssertionError; note: what a reader should know.
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
        """The word in the id: the element type of the data, or of the first operand."""
        tensors = [o for o in self.operands if isinstance(o, Operand)]
        moving = [o for o in tensors if o.moves]
        chosen = [o for o in moving if o.dtype.kind != "b"] or moving or tensors
        return chosen[0].dtype.name if chosen else "none"

    @property
    def id(self) -> str:
        return "-".join(word for word in (self.op.name, self.label, self.dtype) if word)

    def rng(self) -> np.random.Generator:
        """Returns the same numbers on every machine."""
        return np.random.default_rng(zlib.crc32(self.id.encode()))


def refused(op: Operation, *operands: Operand | None, label: str, error: type[Exception]) -> Case:
    """Returns a case whose values must be refused at run time."""
    return Case(op, operands, f"refused-{label}", error=error)


Maker = Callable[[str], Iterable[Case]]


@dataclass
class Family:
    """The cases of one family of ops, and the reasons why some have none."""

    name: str
    makers: dict[str, Maker] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def cases(self, *ops: str) -> Callable[[Maker], Maker]:
        """Decorator: a function from an op's name to its cases."""

        def keep(maker: Maker) -> Maker:
            for name in ops:
                self.makers[name] = maker
            return maker

        return keep

    def none(self, reason: str, *ops: str) -> None:
        """States why ops have no cases at this level."""
        for name in ops:
            self.reasons[name] = reason


def table(families: Iterable[Family]) -> Iterator[Case]:
    """Yields all cases, in order of families and ops; ids are unique."""
    seen: set[str] = set()
    for family in families:
        for name, maker in family.makers.items():
            for case in maker(name):
                if case.id in seen:
                    raise ValueError(f"two cases are called {case.id!r}")
                seen.add(case.id)
                yield case
