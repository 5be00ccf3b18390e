"""The type of a tensor: element type, extents and strides."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ..errors import MgxError, ShapeError, UnrankedError
from . import dtype as dt
from .dim import Dim, Sym, bounds, product, substitute
from .dtype import DType
from .dynamic_dimension import DynamicDimension
from .traced_int import surely_equal

__all__ = ["MAX_BYTES", "MAX_RANK", "Shape", "row_major"]

MAX_RANK: Final = 64  # numpy's limit
MAX_BYTES: Final = 1 << 46  # catches overflowing products of extents


class Shape:
    """The type of a tensor: element type, extents and (for memory that is not row-major) strides in elements.

    type: a DType or its name; lens: extents, ints or symbolic; strides: in elements, 0 where an axis is broadcast,
    row-major if absent; permutation: instead of strides, the order of the axes in memory; dyn_dims: instead of lens, a list
    of `DynamicDimension`.  Iterates over its lens.  Immutable.
    Errors: ShapeError for unknown types, negative or absurd extents, strides of another rank.
    """

    __slots__ = ("_count", "_dims", "_hash", "_lens", "_steps", "_strides", "dtype")

    # as in MIGraphX
    type_t: ClassVar = dt.TYPE_T
    dynamic_dimension: ClassVar = DynamicDimension

    dtype: DType
    _dims: tuple[Dim, ...] | None
    _strides: tuple[int, ...] | None
    _lens: tuple[int, ...] | None  # the extents if all are ints
    _steps: tuple[int, ...] | None  # cached strides
    _count: int  # cached number of elements, -1 if not computed
    _hash: int | None  # cached

    def __init__(
        self,
        type: Any = "float32",
        lens: Iterable[Any] | None = None,
        strides: Iterable[int] | None = None,
        *,
        permutation: Sequence[int] | None = None,
        dyn_dims: Iterable[Any] | None = None,
    ) -> None:
        if dyn_dims is not None:
            try:
                lens = [DynamicDimension.of(d) for d in dyn_dims]
            except MgxError:
                raise
            except (TypeError, KeyError, IndexError, ValueError):
                raise ShapeError(f"dyn_dims must be a list of ranges, got {dyn_dims!r}") from None
        if lens is not None and not isinstance(lens, (list, tuple)) and not isinstance(lens, Iterable):
            raise ShapeError(f"lens must be a list of extents, got {lens!r}")
        dims = tuple((1,) if lens is None else lens)
        for d in dims:
            if d.__class__ is not int or d < 0:
                dims = tuple(d if isinstance(d, Sym) else _extent(d, i) for i, d in enumerate(dims))
                break
        self._set(type if type.__class__ is DType else dt.of(type), dims)
        if permutation is not None:
            if sorted(permutation) != list(range(len(dims))):
                raise ShapeError(f"permutation {tuple(permutation)} does not order the {len(dims)} axes")
            packed = row_major(tuple(self.lens()[axis] for axis in permutation))
            strides = [packed[list(permutation).index(axis)] for axis in range(len(dims))]
        if strides is not None:
            steps = _steps(strides)
            if len(steps) != len(dims):
                raise ShapeError(f"{len(steps)} strides given for {len(dims)} extents")
            if self._lens is None or not _is_row_major(steps, self._lens):
                self._strides = self._steps = steps
        if self._lens is not None and self.elements() * self.dtype.size > MAX_BYTES:
            raise ShapeError(f"{self} would take {self.elements() * self.dtype.size} bytes, more than any tensor may")

    def _set(self, dtype: DType, dims: tuple[Dim, ...] | None) -> None:
        """Sets the fields of a row-major shape; dims: None for an unknown rank."""
        if dims is not None and len(dims) > MAX_RANK:
            raise ShapeError(f"a tensor has at most {MAX_RANK} axes, got {len(dims)}")
        self.dtype = dtype
        self._dims = dims
        self._strides = self._steps = None
        self._lens = dims  # type: ignore[assignment]
        for d in dims or ():
            if d.__class__ is not int and isinstance(d, Sym):
                self._lens = None
                break
        self._count = -1
        self._hash = None

    @classmethod
    def of(cls, dtype: DType, dims: Iterable[Dim]) -> Shape:
        """Returns a row-major shape from validated extents (used by shape inference)."""
        self = cls.__new__(cls)
        self._set(dtype, tuple(dims))
        for d in self._dims or ():
            if (d.__class__ is int or not isinstance(d, Sym)) and d < 0:
                raise ShapeError(f"extents must not be negative, got {list(self._dims or ())}")
        return self

    @classmethod
    def unranked(cls, dtype: DType) -> Shape:
        """Returns a tensor type whose rank is known only at run time."""
        self = cls.__new__(cls)
        self._set(dtype, None)
        return self

    # components

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Extents, ints or symbolic.  Errors: UnrankedError if the rank is not known."""
        if self._dims is None:
            raise UnrankedError(f"the rank of a {self.dtype} tensor is known only at run time")
        return self._dims

    @property
    def ranked(self) -> bool:
        return self._dims is not None

    @property
    def rank(self) -> int:
        return len(self.dims)

    def lens(self) -> list[int]:
        """Returns extents as ints.  Errors: ShapeError if one is symbolic."""
        if self._lens is None:
            raise ShapeError(f"{self} has no static extents; see dyn_dims()")
        return list(self._lens)

    def strides(self) -> list[int]:
        """Returns the strides in elements.  Errors: ShapeError for symbolic extents."""
        if self._steps is None:
            self._steps = row_major(self.lens())
        return list(self._steps)

    def type(self) -> DType:
        return self.dtype

    def type_string(self) -> str:
        return self.dtype.alias + "_type"

    def type_size(self) -> int:
        return self.dtype.size

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The numpy dtype in which host arrays hold the elements."""
        return self.dtype.numpy

    def ndim(self) -> int:
        return self.rank

    def dyn_dims(self) -> list[DynamicDimension]:
        """Returns every extent as a range (fixed ones have min equal to max)."""
        return [DynamicDimension.of(d) for d in self.dims]

    def elements(self) -> int:
        """Returns the number of elements; the maximum for symbolic extents."""
        if self._count < 0:
            self._count = math.prod(self._lens or (bounds(d)[1] for d in self.dims))
        return self._count

    def sym_elements(self) -> Dim:
        """Returns the number of elements as an extent."""
        return product(self.dims)

    def element_space(self) -> int:
        """Returns the number of elements spanned in memory, gaps included."""
        lens = self.lens()
        return 0 if 0 in lens else 1 + sum((n - 1) * abs(s) for n, s in zip(lens, self.strides(), strict=True))

    def bytes(self) -> int:
        """Returns the bytes spanned in memory; the maximum for symbolic extents."""
        return (self.elements() if self.dynamic() else self.element_space()) * self.dtype.size

    # predicates

    def dynamic(self) -> bool:
        """Returns True if an extent, or the rank, is not static."""
        return self._lens is None

    def standard(self) -> bool:
        """Returns True if it is row-major and contiguous."""
        return self._strides is None

    def packed(self) -> bool:
        """Returns True if every element of its memory is used once, in any order."""
        if self._strides is None or 0 in self.lens():
            return True
        space = 1
        for step, n in sorted((s, n) for s, n in zip(self._strides, self.lens(), strict=True) if n != 1):
            if step != space:
                return False
            space *= n
        return True

    def transposed(self) -> bool:
        """Returns True if the memory order of the axes differs from the logical order."""
        if self._strides is None:
            return False
        steps = [s for s, n in zip(self._strides, self.lens(), strict=True) if s and n != 1]
        return steps != sorted(steps, reverse=True)

    def broadcasted(self) -> bool:
        """Returns True if some axis has stride 0."""
        return self._strides is not None and any(
            not s and n != 1 for s, n in zip(self._strides, self.lens(), strict=True)
        )

    def scalar(self) -> bool:
        """Returns True if all strides are 0: one element, possibly broadcast."""
        return not self.dynamic() and (self.elements() == 1 or not any(self.strides()))

    # derived shapes

    def with_dims(self, dims: Iterable[Dim]) -> Shape:
        """Returns the same element type with other extents, row-major."""
        return Shape.of(self.dtype, dims)

    def with_dtype(self, dtype: DType) -> Shape:
        """Returns the same extents with another element type, row-major."""
        if self._dims is None:
            return Shape.unranked(dtype)
        return Shape.of(dtype, self._dims)

    def as_standard(self) -> Shape:
        """Returns the same without strides."""
        return self if self._strides is None else Shape.of(self.dtype, self.dims)

    def substitute(self, values: Mapping[str, Dim]) -> Shape:
        """Returns the same with symbols replaced by name."""
        if self._dims is None or not self.dynamic():
            return self
        dims = [substitute(d, values) for d in self._dims]
        if self._strides is None and all(map(operator.is_, dims, self._dims)):
            return self
        return Shape.of(self.dtype, dims)

    # protocol

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dims)

    def __len__(self) -> int:
        return self.rank

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, axis: int) -> Dim:
        return self.dims[axis]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Shape)
            and self.dtype is other.dtype
            and self._dims == other._dims
            and self._strides == other._strides
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.dtype, self._dims, self._strides))
        return self._hash

    def __repr__(self) -> str:
        if self._dims is None:
            return f"{self.dtype}[*]"
        text = f"{self.dtype}[{', '.join(map(str, self._dims))}]"
        return text if self._strides is None else f"{text}{{{', '.join(map(str, self._strides))}}}"


def row_major(lens: Sequence[int]) -> tuple[int, ...]:
    """Returns row-major strides in elements."""
    steps, step = [], 1
    for n in reversed(lens):
        steps.append(step)
        step *= n or 1
    steps.reverse()
    return tuple(steps)


def _is_row_major(steps: tuple[int, ...], lens: tuple[int, ...]) -> bool:
    """Returns True if strides are row-major; traced ones, if they are for all extents."""
    rows = row_major(lens)
    traced = sum(steps).__class__ is not int  # a sum with a traced number is one
    return surely_equal(steps, rows) if traced else steps == rows


def _steps(strides: Iterable[int]) -> tuple[int, ...]:
    """Returns strides as ints.  Errors: ShapeError if some are not."""
    steps = tuple(strides)
    for s in steps:
        if s.__class__ is not int:
            try:
                return tuple([s if isinstance(s, int) else operator.index(s) for s in steps])
            except TypeError:
                raise ShapeError(f"strides must be ints, got {strides!r}") from None
    return steps


def _extent(value: Any, axis: int) -> Dim:
    if isinstance(value, DynamicDimension):
        return value.named(f"_{axis}")
    try:
        n: int = value if isinstance(value, int) and not isinstance(value, bool) else int(value.__index__())
    except AttributeError:
        raise ShapeError(f"an extent must be an integer, got {value!r}") from None
    if n < 0:
        raise ShapeError(f"an extent must not be negative, got {n}")
    return n
