"""Parse-time values other than tensors: lists, complex and ragged tensors, optionals, resource handles.

Loops and branches carry them as their component tensors (`leaves`), from which `rebuilt` restores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from mgx_core import Instruction, ParseError
from mgx_core.records import dataclass
from mgx_core.types.dim import Dim
from mgx_core.types.dtype import DType

__all__ = ["Complex", "Handle", "Optional", "Ragged", "TensorList", "Value", "leaves", "rebuilt"]


@dataclass(frozen=True)
class Complex:
    """A complex tensor as two real tensors of the same shape."""

    real: Instruction
    imag: Instruction


@dataclass(frozen=True)
class Handle:
    """A resource: a variable, a table or an array, identified by the node that creates it."""

    kind: str
    name: str
    node: Any = field(compare=False, repr=False)


@dataclass(frozen=True)
class Ragged:
    """A ragged tensor: row splits, outermost first, and values."""

    splits: tuple[Instruction, ...]
    values: Instruction


@dataclass(frozen=True)
class TensorList:
    """A list of tensors of equal shape, stored as one tensor [count, *element].

    stacked: None until the elements' extents are known; until then `count` is the length, and `seen` records the extents of the
    first inserted element.
    """

    dtype: DType
    stacked: Instruction | None = None
    count: Instruction | None = None
    dims: tuple[Dim, ...] | None = None
    seen: list[tuple[Dim, ...]] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Optional:
    """An optional: values that may be absent at run time.

    there: bool; held: the values, None if none has been assigned.
    """

    there: Instruction
    held: tuple[Value, ...] | None


Value: TypeAlias = "Instruction | Complex | Handle | Optional | Ragged | TensorList"


def leaves(value: Value) -> list[Instruction]:
    """Returns the component tensors of a value."""
    match value:
        case Complex():
            return [value.real, value.imag]
        case Handle():
            return []
        case Optional():
            return [value.there, *(leaf for v in value.held or () for leaf in leaves(v))]
        case Ragged():
            return [*value.splits, value.values]
        case TensorList():
            return [value.stacked] if value.stacked is not None else [value.count] if value.count is not None else []
    return [value]


def rebuilt(like: Value, parts: Sequence[Instruction]) -> Value:
    """Returns a value of the structure of `like` from component tensors.  Errors: ParseError if their number differs."""
    if len(parts) != len(leaves(like)):
        raise ParseError(f"the value consists of {len(leaves(like))} tensors, got {len(parts)}")
    match like:
        case Complex():
            return Complex(*parts)
        case Handle():
            return like
        case Optional():
            rest = list(parts[1:])
            held = [rebuilt(v, [rest.pop(0) for _ in leaves(v)]) for v in like.held or ()]
            return Optional(parts[0], None if like.held is None else tuple(held))
        case Ragged():
            return Ragged(tuple(parts[:-1]), parts[-1])
        case TensorList():
            return replace(like, stacked=parts[0]) if like.stacked is not None else replace(like, count=parts[0])
    return parts[0]
