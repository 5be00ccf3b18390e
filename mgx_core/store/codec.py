"""Encodes extents, shapes and attribute values as plain data: numbers, strings, bytes, lists and maps with string keys."""

from __future__ import annotations

import math
from typing import Any, Final

from ..errors import StoreError
from ..types import dim, dtype
from ..types.dim import Dim, Sym, Symbol
from ..types.dtype import DType
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape

__all__ = ["Decoder", "Encoder", "dtype_named"]

_DTYPES: Final = {t.name: t for t in dtype.ALL}


class Encoder:
    """Encodes values as plain data, and collects a table of symbols."""

    def __init__(self) -> None:
        self.symbols: dict[Symbol, int] = {}

    def table(self) -> list[Any]:
        return [[s.name, s.lo, s.hi, list(s.optimals), *([True] if s.written else [])] for s in self.symbols]

    def dim(self, d: Dim) -> Any:
        """An int, or a list of terms ``[coefficient, *factors]``; a factor is a symbol's index or ``[function, a, b]``."""
        if not isinstance(d, Sym):
            return d
        return [[c, *map(self._factor, atoms)] for atoms, c in d.terms]

    def _factor(self, atom: Any) -> Any:
        if isinstance(atom, Symbol):
            return self.symbols.setdefault(atom, len(self.symbols))
        return [atom.function, *map(self.dim, atom.args)]

    def shape(self, shape: AnyShape) -> Any:
        match shape:
            case TupleShape():
                return {"tuple": [self.shape(s) for s in shape.items]}
            case SequenceShape():
                return {"sequence": self.shape(shape.element)}
            case OptionalShape():
                return {"optional": self.shape(shape.element)}
        plain: dict[str, Any] = {"type": shape.dtype.name}
        if shape.ranked:
            plain["dims"] = [self.dim(d) for d in shape.dims]
        if not shape.standard():
            plain["strides"] = shape.strides()
        return plain

    def attribute(self, value: Any) -> Any:
        match value:
            case None | bool() | str() | bytes():
                return value
            case int():
                return value if -(1 << 63) <= value < 1 << 63 else {"int": str(value)}
            case float():
                return value if math.isfinite(value) else repr(value)
            case tuple():
                return [self.attribute(v) for v in value]
            case Sym():
                return self.dim(value)
            case DType():
                return value.name
            case Shape() | TupleShape() | SequenceShape() | OptionalShape():
                return self.shape(value)
        raise StoreError(f"an attribute value of type {type(value).__name__} cannot be stored")


class Decoder:
    """Decodes what `Encoder` wrote.  Data-dependent symbols are created again, to avoid capturing others of the same name."""

    def __init__(self, table: Any) -> None:
        self.symbols: list[Dim] = []
        # memoized by text, since a program's extents share subexpressions
        self._dims: dict[str, Dim] = {}
        for name, lo, hi, optimals, *written in table:
            prefix = dim.fresh_prefix(_typed(name, str)) if lo < hi else None  # else `symbol` refuses the bounds
            self.symbols.append(
                dim.symbol(name, lo, hi, optimals, written == [True]) if prefix is None else dim.fresh(prefix, lo, hi)
            )

    def dim(self, plain: Any) -> Dim:
        if not isinstance(plain, list):
            return int(_typed(plain, int))
        text = repr(plain)
        found = self._dims.get(text)
        if found is None:
            found = self._dims[text] = self._sum(plain)
        return found

    def _sum(self, plain: list[Any]) -> Dim:
        total: Dim = 0
        for coefficient, *factors in plain:
            term: Dim = _typed(coefficient, int)
            for factor in factors:
                term = term * self._factor(factor)
            total = total + term
        return total

    def _factor(self, plain: Any) -> Dim:
        if isinstance(plain, int) and 0 <= plain < len(self.symbols):
            return self.symbols[plain]
        function, a, b = plain
        return dim.FUNCTIONS[function](self.dim(a), self.dim(b))

    def shape(self, plain: Any) -> AnyShape:
        if "tuple" in plain:
            return TupleShape([self.shape(s) for s in plain["tuple"]])
        if "sequence" in plain:
            return SequenceShape(self.shape(plain["sequence"]))
        if "optional" in plain:
            return OptionalShape(self.shape(plain["optional"]))
        kind = dtype_named(plain["type"])
        if "dims" not in plain:
            return Shape.unranked(kind)
        return Shape(kind, [self.dim(d) for d in plain["dims"]], plain.get("strides"))

    def attribute(self, annotation: str, plain: Any) -> Any:
        """Decodes a value by the attribute's annotation; the op validates it afterwards."""
        if plain is None:
            return None
        annotation = annotation.removesuffix(" | None")
        if annotation.startswith("tuple["):
            inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
            return tuple(self.attribute(inner, p) for p in _typed(plain, list))
        if isinstance(plain, dict) and "int" in plain:
            return int(plain["int"])
        match annotation:
            case "Dim":
                return self.dim(plain)
            case "Shape" | "AnyShape":
                return self.shape(plain)
            case "DType":
                return dtype_named(plain)
            case "float":
                return float(plain)
        return plain


def dtype_named(name: Any) -> DType:
    """Returns an element type by its stored name.  Errors: StoreError."""
    found = _DTYPES.get(_typed(name, str))
    if found is None:
        raise StoreError(f"{name!r} is not an element type")
    return found


def _typed(plain: Any, kind: type) -> Any:
    if not isinstance(plain, kind) or (kind is int and isinstance(plain, bool)):
        raise TypeError(f"{kind.__name__} expected, got {plain!r}")
    return plain
