"""MIGraphX's dynamic dimensions: ranges of extents, and symbolic expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final

from ..errors import ParameterError, ParseError
from .dim import Dim, Sym, Symbol, bounds, symbol, symbols_of
from .polynomial import UNBOUNDED

__all__ = ["DynamicDimension"]

# n({[1..8], [2..10]}, {2, 4}): a name, its ranges and optimal sizes, also as constraints= and optimals=
_RANGED: Final = (  # the patterns are compiled when they are first used: most programs have no such text
    r"([A-Za-z_]\w*)\s*\(\s*(?:constraints\s*=\s*)?\{([^{}]*)\}\s*(?:,\s*(?:optimals\s*=\s*)?\{([^{}]*)\}\s*)?\)"
)
_SPANS: Final = r"\[\s*(\d+)\s*\.\.\s*(\d+)\s*\]"
_NAME: Final = r"[A-Za-z_]\w*"


class DynamicDimension:
    """A range of extents as MIGraphX's users write it: min, max and the optimal sizes; ``int`` fields, inclusive.

    Or an expression of names and the range of each: ``DynamicDimension("3*n + 1", {"n": DynamicDimension(1, 8)})``, or with the
    ranges in the text, ``DynamicDimension("3*n({[1..8]}, {2, 4}) + 1")``.  One name is one number in the whole program.
    Errors: ParameterError for bounds other than ints, for a text that is not an expression, and for names without a range.
    """

    __slots__ = ("extent", "max", "min", "optimals")

    def __init__(self, min: int | str = 0, max: int | Mapping[str, Any] = 0, optimals: Iterable[int] = ()) -> None:
        self.extent: Dim | None = None  # of an expression
        if isinstance(min, str):
            given = max or {}
            if not isinstance(given, Mapping) or optimals:
                raise ParameterError(
                    f"with the expression {min!r}, a mapping from its names to their ranges is required"
                )
            self._set(_expression(min, given))
            return
        try:
            self.min, self.max = index(min), index(max)  # type: ignore[arg-type]
        except TypeError:
            raise ParameterError(
                f"a dimension takes ints for min and max, or an expression and a mapping, got {min!r} and {max!r}"
            ) from None
        Symbol("dimension", self.min, self.max)
        self.optimals = set(optimals)

    def _set(self, extent: Dim) -> None:
        low, high = bounds(extent)
        self.extent = extent
        self.min, self.max = low if low > 0 else 0, high if high > 0 else 0
        lone = extent.symbol if isinstance(extent, Sym) else None
        self.optimals = set() if lone is None else set(lone.optimals)

    def is_fixed(self) -> bool:
        return self.min == self.max

    def is_symbolic(self) -> bool:
        """Returns True if this is an expression, and not a range."""
        return self.extent is not None

    @property
    def expression(self) -> str | None:
        """The text of an expression with the range of each name, which can be parsed again; None for a range."""
        if self.extent is None:
            return None
        told = {n: f"{n}(constraints={{[{r.min}..{r.max}]}}{_optimals(r)})" for n, r in self.ranges().items()}
        spaced = re.sub(r"(?<=[\w)])([+-])(?=[\w(])", r" \1 ", str(self.extent))
        return re.sub(r"[A-Za-z_]\w*(?!\w|\()", lambda name: told[name[0]], spaced)

    def named(self, name: str) -> Dim:
        """Returns the extent of this expression, or this range as the extent called `name`."""
        return symbol(name, self.min, self.max, self.optimals) if self.extent is None else self.extent

    def ranges(self) -> dict[str, DynamicDimension]:
        """Returns the range of each name in the expression."""
        found = sorted(symbols_of(0 if self.extent is None else self.extent), key=lambda s: s.name)
        return {s.name: DynamicDimension(s.lo, s.hi, s.optimals) for s in found}

    def record(self) -> dict[str, Any]:
        """Plain data that `of` converts back."""
        if self.extent is not None:
            return {"expression": str(self.extent), "names": {n: r.record() for n, r in self.ranges().items()}}
        return {"min": self.min, "max": self.max, "optimals": sorted(self.optimals)}

    @classmethod
    def of(cls, value: Any) -> DynamicDimension:
        """From a range, an int, an extent, a (min, max[, optimals]) sequence or a ``{"min":, "max":}`` mapping.

        An extent becomes an expression if its names come from one, a range otherwise.
        """
        if isinstance(value, DynamicDimension):
            return value
        if isinstance(value, Sym):
            made = cls()
            made._set(value)
            if not any(s.written for s in symbols_of(value)):
                made.extent = None
            return made
        if isinstance(value, Mapping):
            if "expression" in value:
                return cls(value["expression"], value.get("names", {}))
            return cls(_bound(value["min"]), _bound(value["max"]), value.get("optimals", ()))
        if isinstance(value, (tuple, list)):
            return cls(_bound(value[0]), _bound(value[1]), value[2] if len(value) > 2 else ())
        return cls(_bound(value), _bound(value))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.min == self.max == other
        return isinstance(other, DynamicDimension) and (self.min, self.max, self.optimals, self.extent) == (
            other.min,
            other.max,
            other.optimals,
            other.extent,
        )

    def __hash__(self) -> int:
        return hash((self.min, self.max))

    def __repr__(self) -> str:
        if self.extent is not None:
            spans = [f"{name} in {r.min}..{r.max}" for name, r in self.ranges().items()]
            return f"[{self.extent}{' with ' if spans else ''}{', '.join(spans)}]"
        return f"[{self.min}, {self.max}, {{{', '.join(map(str, sorted(self.optimals)))}}}]"


def _bound(value: Any) -> int:
    """Returns a bound of a range from an int or digits.  Errors: TypeError for a fraction, ValueError for other text."""
    return int(value) if isinstance(value, str) else index(value)


def _optimals(of: DynamicDimension) -> str:
    return f", optimals={{{', '.join(map(str, sorted(of.optimals)))}}}" if of.optimals else ""


def _expression(text: str, given: Mapping[str, Any]) -> Dim:
    """Parses an extent; given: the ranges of its names.  Errors: ParameterError."""
    from .dim_text import parse  # imports Python's parser, which most programs do not need

    ranges: dict[str, Dim] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ParameterError(f"extent {text!r}: a name of letters, digits and _ is required, got {name!r}")
        try:
            of = DynamicDimension.of(value)
        except (TypeError, KeyError, IndexError, ValueError):
            raise ParameterError(f"extent {text!r}: a range is required for {name!r}, got {value!r}") from None
        ranges[name] = symbol(name, of.min, of.max, of.optimals, written=True)

    def stated(match: re.Match[str]) -> str:
        name, spans, optimals = match.groups()
        found = [(int(low), int(high)) for low, high in re.findall(_SPANS, spans)]
        sizes = (optimals or "").replace(",", " ").split()
        if not found or re.sub(r"[\s,]", "", re.sub(_SPANS, "", spans)) or not all(s.isdecimal() for s in sizes):
            raise ParameterError(
                f"extent {text!r}: ranges as {name}({{[1..8]}}, {{2, 4}}) are required, got {match[0]!r}"
            )
        low, high = max(a for a, _ in found), min(b for _, b in found)
        if low > high:
            raise ParameterError(f"extent {text!r}: a range with min <= max is required for {name!r}, got {match[0]!r}")
        made = symbol(name, low, high, map(int, sizes), written=True)
        if ranges.setdefault(name, made) != made:
            raise ParameterError(f"extent {text!r}: one range is required for {name!r}, got two that differ")
        return name

    plain = re.sub(_RANGED, stated, text)
    try:
        extent = parse(plain, ranges)
    except ParseError as error:
        raise ParameterError(f"an extent consists of ints, names, +, -, *, // and %: {error.message}") from None
    unknown = sorted({s.name for s in symbols_of(extent)} - ranges.keys())
    if unknown:
        raise ParameterError(f"extent {text!r}: no range is given for {', '.join(map(repr, unknown))}")
    if bounds(extent)[0] < 0:
        raise ParameterError(f"extent {text!r}: it must not be negative, and its least value is {bounds(extent)[0]}")
    if bounds(extent)[1] > UNBOUNDED:
        raise ParameterError(f"extent {text!r}: its greatest value, {bounds(extent)[1]}, is larger than any extent")
    return extent
