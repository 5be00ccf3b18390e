"""Types of values: tensors (`Shape`), tuples, sequences and optionals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeAlias

from .dim import Dim, Sym, may_equal, symbols_of
from .tensor_shape import Shape, row_major

__all__ = [
    "AnyShape", "OptionalShape", "SequenceShape", "Shape", "TupleShape", "matches", "row_major", "same_type",
    "open_extents", "symbols_in",
]  # fmt: skip


class TupleShape:
    """The type of an op's several results; the items are read with `get_tuple_elem`."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[AnyShape]) -> None:
        self.items = tuple(items)

    def sub_shapes(self) -> list[AnyShape]:
        return list(self.items)

    def substitute(self, values: Mapping[str, Dim]) -> TupleShape:
        return TupleShape(s.substitute(values) for s in self.items)

    def dynamic(self) -> bool:
        return any(s.dynamic() for s in self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TupleShape) and self.items == other.items

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


class _Wrapper:
    """Base of types that contain values of one other type."""

    __slots__ = ("element",)

    word: ClassVar[str]

    def __init__(self, element: AnyShape) -> None:
        self.element = element

    def substitute(self, values: Mapping[str, Dim]) -> Self:
        return type(self)(self.element.substitute(values))

    def dynamic(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.element == other.element

    def __hash__(self) -> int:
        return hash((self.word, self.element))

    def __repr__(self) -> str:
        return f"{self.word}<{self.element}>"


class SequenceShape(_Wrapper):
    """The type of a list of values of one type; its length is known only at run time."""

    __slots__ = ()

    word = "sequence"


class OptionalShape(_Wrapper):
    """The type of a value that may be absent (None at run time)."""

    __slots__ = ()

    word = "optional"


AnyShape: TypeAlias = "Shape | TupleShape | SequenceShape | OptionalShape"


def matches(declared: AnyShape, actual: AnyShape) -> bool:
    """Returns True if a value of shape `actual` is accepted where `declared` is expected (symbols, unknown ranks match all)."""
    match declared, actual:
        case Shape(), Shape():
            if declared.dtype is not actual.dtype:
                return False
            if not (declared.ranked and actual.ranked):
                return True
            if declared.rank != actual.rank:
                return False
            return all(map(may_equal, declared.dims, actual.dims))
        case (TupleShape(), TupleShape()):
            return len(declared.items) == len(actual.items) and all(map(matches, declared.items, actual.items))
        case (SequenceShape(), SequenceShape()):
            return matches(declared.element, actual.element)
        case (OptionalShape(), OptionalShape()):
            return matches(declared.element, actual.element)
        case OptionalShape(), _:
            return matches(declared.element, actual)
    return False


def symbols_in(value: Any) -> set[str]:
    """Returns the names of the symbols in an extent, a shape, or several of them."""
    if isinstance(value, Shape) and not value.dynamic():
        return set()
    return {s.name for extent in open_extents(value) for s in symbols_of(extent)}


def open_extents(value: Any) -> Iterator[Sym]:
    """Yields the extents that are not numbers in an extent, a shape, or several of them."""
    if isinstance(value, Sym):
        yield value
    elif isinstance(value, Shape):
        if value.ranked and value.dynamic():
            yield from open_extents(value.dims)
    elif isinstance(value, TupleShape):
        yield from open_extents(value.items)
    elif isinstance(value, (tuple, list)):
        for item in value:
            if not isinstance(item, int):  # most are
                yield from open_extents(item)


def same_type(a: AnyShape, b: AnyShape) -> bool:
    """Returns True if two results have the same dtype and structurally equal dims (strides are ignored)."""
    if a is b or (a.__class__ is b.__class__ is Shape and a.dtype is b.dtype and a.ranked and a._dims == b._dims):
        return True
    return matches(a, b) or matches(b, a)
