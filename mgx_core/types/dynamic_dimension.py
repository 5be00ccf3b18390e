"""Ranges of extents as MIGraphX's users write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from ..errors import ParameterError
from .dim import Dim, Sym, Symbol, bounds, symbol, symbols_of

__all__ = ["DynamicDimension"]


class DynamicDimension:
    """A range of extents as MIGraphX's users write it: min, max and the optimal sizes; ``int`` fields, inclusive.

    Errors: ParameterError for bounds other than ints.
    """

    __slots__ = ("max", "min", "optimals")

    def __init__(self, min: int = 0, max: int = 0, optimals: Iterable[int] = ()) -> None:
        try:
            self.min, self.max = index(min), index(max)
        except TypeError:
            raise ParameterError(
                f"the range of a dimension takes ints for min and max, got {min!r} and {max!r}; extents that are expressions "
                "of names come from the model"
            ) from None
        Symbol("dimension", self.min, self.max)
        self.optimals = set(optimals)

    def is_fixed(self) -> bool:
        return self.min == self.max

    def named(self, name: str) -> Dim:
        """This range as the extent called `name`."""
        return symbol(name, self.min, self.max, self.optimals)

    @classmethod
    def of(cls, value: Any) -> DynamicDimension:
        """From a range, an int, an extent, a (min, max[, optimals]) sequence or a ``{"min":, "max":}`` mapping."""
        if isinstance(value, DynamicDimension):
            return value
        if isinstance(value, Sym):
            lo, hi = bounds(value)
            return cls(
                max(lo, 0), max(hi, 0), {o for s in symbols_of(value) for o in s.optimals} if value.is_atom else ()
            )
        if isinstance(value, Mapping):
            return cls(int(value["min"]), int(value["max"]), value.get("optimals", ()))
        if isinstance(value, (tuple, list)):
            return cls(int(value[0]), int(value[1]), value[2] if len(value) > 2 else ())
        return cls(int(value), int(value))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.min == self.max == other
        return isinstance(other, DynamicDimension) and (self.min, self.max, self.optimals) == (
            other.min,
            other.max,
            other.optimals,
        )

    def __hash__(self) -> int:
        return hash((self.min, self.max))

    def __repr__(self) -> str:
        return f"[{self.min}, {self.max}, {{{', '.join(map(str, sorted(self.optimals)))}}}]"
