"""`migraphx.shape`: a core shape with MIGraphX's interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, ClassVar

from mgx_core import DynamicDimension, ParameterError, Shape, TupleShape, UnsupportedError
from mgx_core.types.dim import Dim
from mgx_core.types.shape import AnyShape

from .element_types import core_dtype, type_t

__all__ = ["core_shape", "of_record", "of_shape", "shape"]


class shape:
    """Element type, lens and strides of a tensor, or ranges of lens.

    type: a name, a member of `type_t` or its number; strides, permutation: of static lens; dyn_dims: instead of lens: ranges or
    expressions as strings; symbols: the range of each name in these, or a list of ranges; dyn_strides: strings, if all dyn_dims
    are expressions.
    A scalar has lens ``[1]`` and strides ``[0]``; its rank is 0 in the core.  Iterates over its lens.
    Errors: ShapeError for unknown types and invalid extents; ParameterError for malformed expressions.
    """

    type_t: ClassVar = type_t
    dynamic_dimension: ClassVar = DynamicDimension

    __slots__ = ("_given", "_steps", "core")

    core: AnyShape
    _given: list[DynamicDimension] | None  # the dimensions as given
    _steps: tuple[Dim, ...] | None  # symbolic strides that are not row-major

    def __init__(
        self,
        type: Any = "float",
        lens: Any = (1,),
        strides: Any = None,
        permutation: Any = None,
        dyn_dims: Any = None,
        symbols: Mapping[str, Any] | None = None,
        dyn_strides: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(symbols, (Mapping, NoneType)):
            raise ParameterError(f"symbols: a mapping from names to ranges is required, got {symbols!r}")
        ranges = {name: _meet(name, of) for name, of in (symbols or {}).items()}
        self._given = [_dimension(d, ranges) for d in dyn_dims] if dyn_dims else None
        made = Shape(
            core_dtype(type), None if self._given else lens, strides, permutation=permutation, dyn_dims=self._given
        )
        self.core = Shape.of(made.dtype, ()) if _is_scalar(made) else made
        self._steps = None
        if dyn_strides is not None:
            self._steps = self._stepped(dyn_strides, ranges)

    def _stepped(self, texts: Sequence[str], ranges: Mapping[str, DynamicDimension]) -> tuple[Dim, ...] | None:
        listed = isinstance(texts, Sequence) and not isinstance(texts, str)
        if not listed or not self.symbolic() or len(texts) != self.ndim():
            raise ParameterError(
                "dyn_strides require dyn_dims that are all expressions, and one string for each of them, "
                f"got {texts!r} for {self}"
            )
        found = tuple(_dimension(t, ranges).named("") for t in texts)
        return None if found == self._row_major() else found

    def _row_major(self) -> tuple[Dim, ...]:
        steps: list[Dim] = [1]
        for d in reversed(self._tensor.dims[1:]):
            steps.insert(0, steps[0] * d)
        return tuple(steps)

    @staticmethod
    def from_json(text: str) -> shape:
        """Parses the output of `to_json`.  Errors: ParameterError for other text."""
        import json

        try:
            return of_record(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ParameterError(f"a shape in the format of to_json is required, got {text!r}: {error!r}") from None

    def to_json(self) -> str:
        import json

        made: dict[str, Any] = {"type": self.type_string()}
        if self.dynamic():
            made["dynamic_dimensions"] = [d.record() for d in self.dyn_dims()]
            if self._steps is not None:
                made["dyn_strides"] = self.dyn_strides()
        else:
            made |= {"lens": self.lens(), "strides": self.strides()}
        return json.dumps(made)

    @property
    def _tensor(self) -> Shape:
        if not isinstance(self.core, Shape):
            raise UnsupportedError(f"a tensor is required, got {self.core}")
        return self.core

    def type(self) -> Any:
        """The element type.  Errors: UnsupportedError for a type that MIGraphX does not have."""
        return type_t[self.type_string()]

    def type_string(self) -> str:
        if isinstance(self.core, TupleShape):
            return "tuple_type"
        name = self._tensor.type_string()
        if name not in type_t.__members__:
            raise UnsupportedError(f"element type {self._tensor.dtype} exists in mgx_core only, not in MIGraphX")
        return name

    def type_size(self) -> int:
        return self._tensor.type_size()

    def lens(self) -> list[int]:
        """Returns the lens.  Errors: ShapeError for ranges; see `dyn_dims`."""
        return self._tensor.lens() or [1]

    def strides(self) -> list[int]:
        return self._tensor.strides() or [0]

    def ndim(self) -> int:
        return self._tensor.rank or 1

    def elements(self) -> int:
        return self._tensor.elements()

    def bytes(self) -> int:
        return self._tensor.bytes()

    def dyn_dims(self) -> list[DynamicDimension]:
        if not self.dynamic():
            return []
        return self._tensor.dyn_dims() if self._given is None else list(self._given)

    def symbolic(self) -> bool:
        """True if the extents are expressions that contain at least one name."""
        if self._given is not None:
            return self.dynamic() and all(d.is_symbolic() for d in self._given)
        return any(d.is_symbolic() for d in self.dyn_dims()) and all(
            d.is_symbolic() or d.is_fixed() for d in self.dyn_dims()
        )

    def dyn_strides(self) -> list[str]:
        """Returns the strides of symbolic extents as strings; empty for others."""
        if not self.symbolic():
            return []
        return [_text(s) for s in (self._row_major() if self._steps is None else self._steps)]

    def symbol_table(self) -> dict[str, list[DynamicDimension]]:
        """Returns the range of each name in the extents."""
        return {name: [of] for d in self.dyn_dims() for name, of in d.ranges().items()}

    def packed(self) -> bool:
        return self._tensor.packed()

    def transposed(self) -> bool:
        return self._tensor.transposed()

    def broadcasted(self) -> bool:
        return self._tensor.rank == 0 or self._tensor.broadcasted()

    def standard(self) -> bool:
        return self._steps is None and self._tensor.rank > 0 and self._tensor.standard()

    def scalar(self) -> bool:
        return self._tensor.rank == 0 or (not self.dynamic() and not any(self._tensor.strides()))

    def dynamic(self) -> bool:
        return self.core.dynamic()

    def __iter__(self) -> Iterator[int]:
        return iter(self.lens())

    def __len__(self) -> int:
        return self.ndim()

    def __getitem__(self, axis: int) -> int:
        return self.lens()[axis]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, shape) or self._steps != other._steps:
            return False
        if isinstance(self.core, Shape) and isinstance(other.core, Shape) and self.dynamic() and other.dynamic():
            return self.core.dtype is other.core.dtype and self.core.dyn_dims() == other.core.dyn_dims()
        return self.core == other.core

    def __hash__(self) -> int:
        return hash(str(self.core.dtype) if isinstance(self.core, Shape) and self.dynamic() else self.core)

    def __repr__(self) -> str:
        if not isinstance(self.core, Shape):
            return str(self.core)
        kind = self.core.type_string()
        if self.dynamic():
            dims = ", ".join(map(str, self.dyn_dims())) if self.core.ranked else "*"
            steps = "" if self._steps is None else f", {{{', '.join(self.dyn_strides())}}}"
            return f"dynamic, {kind}, {{{dims}}}{steps}"
        return f"{kind}, {_braced(self.lens())}, {_braced(self.strides())}"


def of_shape(core: AnyShape) -> shape:
    """Wraps a core shape."""
    made = shape.__new__(shape)
    made._given = made._steps = None
    made.core = Shape.of(core.dtype, ()) if isinstance(core, Shape) and _is_scalar(core) else core
    return made


def of_record(stored: Mapping[str, Any]) -> shape:
    """Returns a shape from its record in a file or JSON text.  Errors: UnsupportedError for a tuple of tensors."""
    if stored.get("sub_shapes"):
        raise UnsupportedError("parameters must be tensors, got a tuple of tensors")
    ranges = stored.get("dynamic_dimensions")
    if ranges:
        dims = [DynamicDimension.of(d) for d in ranges]
        return shape(type=stored["type"], dyn_dims=dims, dyn_strides=stored.get("dyn_strides"))
    return shape(type=stored["type"], lens=stored["lens"], strides=stored.get("strides") or None)


def core_shape(given: Any) -> Shape:
    """Returns the core's shape.  Errors: ParameterError unless it is that of a tensor; UnsupportedError for symbolic strides."""
    if isinstance(given, shape):
        if given._steps is not None:
            raise UnsupportedError(
                f"programs do not support symbolic strides, got {given}; "
                "leave dyn_strides out: runs accept values with any strides"
            )
        given = given.core
    if not isinstance(given, Shape):
        raise ParameterError(f"a migraphx.shape is required, got {given!r}")
    return given


def _dimension(given: Any, ranges: Mapping[str, DynamicDimension]) -> DynamicDimension:
    """Parses a range or an expression; ranges: of the names that may occur."""
    if not isinstance(given, str):
        return DynamicDimension.of(given)
    return DynamicDimension(given, {n: r for n, r in ranges.items() if re.search(rf"\b{n}\b", given)})


def _meet(name: str, of: Any) -> DynamicDimension:
    """Returns the range of a name, the intersection if several are given."""
    given = of if isinstance(of, list) and of else [of]
    try:
        ranges = [DynamicDimension.of(r) for r in given]
    except (TypeError, KeyError, IndexError, ValueError):
        raise ParameterError(f"symbols: a range, or a list of ranges, is required for {name!r}, got {of!r}") from None
    spans = ", ".join(f"[{r.min}..{r.max}]" for r in ranges)
    sizes = ", ".join(str(n) for r in ranges for n in sorted(r.optimals))
    return DynamicDimension(f"{name}({{{spans}}}, {{{sizes}}})").ranges()[name]


def _text(d: Dim) -> str:
    return DynamicDimension.of(d).expression or str(d)


def _is_scalar(core: Shape) -> bool:
    return core.ranked and not core.dynamic() and core.lens() == [1] and core.strides() == [0]


def _braced(numbers: list[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
