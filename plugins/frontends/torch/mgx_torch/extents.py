"""Converts torch's symbolic sizes to extents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes

from mgx_core import Shape, UnsupportedError
from mgx_core import dim as dims
from mgx_core.types.dim import Dim, Sym

from .element_types import dtype_of

__all__ = ["DECIDED", "Extents", "asserted", "environment", "names_of_dims", "shape_of", "undecided"]

UNBOUNDED = 1 << 40
# raised by torch under `undecided`; not available in older versions
DECIDED: tuple[type[Exception], ...] = tuple(
    vars(symbolic_shapes)[name] for name in ("_ShapeEnvGuardError",) if name in vars(symbolic_shapes)
)


def _ceil_div(a: Dim, b: Dim) -> Dim:
    return dims.ceil_div(a, b)


# torch's symbolic functions by class name
FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": _ceil_div,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": lambda *xs: reduce(dims.maximum, xs),
    "Min": lambda *xs: reduce(dims.minimum, xs),
    "Abs": lambda a: dims.maximum(a, -a),
}
# rounding functions, identities on integers
ROUNDED = {"TruncToInt", "CeilToInt", "FloorToInt", "RoundToInt", "ToFloat", "Identity"}


class Extents:
    """The symbols of one graph: maps torch's names to extents, with the ranges that torch knows.

    ranges: of symbols, by expression; names: names of symbols that differ from torch's.  torch's symbols for data-dependent sizes
    are bound to the extent of the op's result (`learn`).
    """

    def __init__(self, ranges: Mapping[Any, Any] | None = None, names: Mapping[str, str] | None = None) -> None:
        self._ranges = {str(k): v for k, v in (ranges or {}).items()}
        self._names = dict(names or {})
        self._known: dict[str, Dim] = {}
        self._parts: dict[str, tuple[Dim, Dim]] = {}  # for unbound symbols: see `parts`
        self._renamed: list[tuple[Any, Any]] = []

    def met(self, sizes: Iterable[Any]) -> None:
        """Registers the sizes of all inputs; sizes whose symbols no size equals by itself become new symbols.

        A part of a graph may have an input with s0 * s1 rows, but none from which s0 and s1 can be determined.
        """
        expressions = [s.node.expr for s in sizes if isinstance(s, torch.SymInt)]
        alone = {e for e in expressions if isinstance(e, sympy.Symbol)}
        for size in sizes:
            if not isinstance(size, torch.SymInt):
                continue
            expr = self._named(size.node.expr)
            own = {s for _, new in self._renamed for s in new.free_symbols}
            if expr.free_symbols <= alone | own:
                continue
            new = sympy.Symbol(f"{'_'.join(sorted(map(str, expr.free_symbols)))}_{len(self._renamed)}", integer=True)
            self._ranges[new.name] = size.node.shape_env.bound_sympy(size.node.expr)
            constant, rest = expr.as_coeff_Add()  # in multiples of the size, which torch expands, only the rest occurs
            self._renamed.append((rest, new - constant))

    def _named(self, expr: Any) -> Any:
        for old, new in self._renamed:
            expr = expr.subs(old, new)
        return expr

    def of(self, size: Any) -> Dim:
        """Returns the extent of an int or SymInt.  Errors: UnsupportedError for expressions that extents cannot represent."""
        if isinstance(size, torch.SymInt):
            found = self._translated(self._named(size.node.expr))
            if isinstance(found, (int, Sym)):
                return found
            raise UnsupportedError(f"the size {self.text(size)} is not an integer")
        return int(size)

    def learn(self, size: Any, found: Dim) -> None:
        """Binds a single, still unbound symbol to an extent."""
        if isinstance(size, torch.SymInt):
            expr = size.node.expr
            if isinstance(expr, sympy.Symbol):
                self._known.setdefault(expr.name, found)

    def knows(self, size: Any) -> bool:
        """Returns True if an extent, or all of its symbols, are bound or determined by the graph's inputs."""
        return not isinstance(size, torch.SymInt) or all(s.name in self._known for s in size.node.expr.free_symbols)

    def computable(self, size: Any) -> bool:
        """Returns False for an extent with an unbound data-dependent symbol."""
        return self.knows(size) or not symbolic_shapes.free_unbacked_symbols(size)

    def may_be_negative(self, size: torch.SymInt) -> bool:
        """Returns True unless a number is known to be nonnegative."""
        return _bound(size.node.shape_env.bound_sympy(size.node.expr).lower, -UNBOUNDED) < 0

    def text(self, size: Any) -> str:
        """Returns a torch size or expression as text, with the extents' names."""
        expr = size.node.expr if isinstance(size, torch.SymInt) else size
        if not isinstance(expr, sympy.Basic):
            return str(expr)
        named = {s: sympy.Symbol(self._names[s.name], integer=True) for s in expr.free_symbols if s.name in self._names}
        return str(expr.xreplace(named))

    def _symbol(self, name: str) -> Dim:
        """Returns a symbol; a possibly negative number is the difference of two symbols, one of which is zero."""
        if name not in self._known:
            low, high = 0, UNBOUNDED
            found = self._ranges.get(name)
            if found is not None:
                low, high = _bound(found.lower, -UNBOUNDED), _bound(found.upper, UNBOUNDED)
            shown = self._names.get(name, name)
            above = dims.symbol(f"{shown}.above" if low < 0 else shown, max(low, 0), max(high, 0))
            below = dims.symbol(f"{shown}.below", max(-high, 0), -low) if low < 0 else 0
            self._parts[name] = above, below
            self._known[name] = above - below
        return self._known[name]

    def parts(self, size: Any) -> tuple[Dim, Dim]:
        """Returns two extents whose difference is a number; the second is 0 if it is nonnegative.

        Errors: UnsupportedError for an expression that may be negative.
        """
        found = self.of(size)
        expr = self._named(size.node.expr)
        if isinstance(expr, sympy.Symbol) and expr.name in self._parts:
            return self._parts[expr.name]
        if dims.bounds(found)[0] < 0:
            raise UnsupportedError(
                f"the number {self.text(size)} may be negative, and is an expression of several symbols"
            )
        return found, 0

    def _translated(self, expr: Any) -> Any:
        if isinstance(expr, sympy.Symbol):
            if not expr.is_integer:
                raise UnsupportedError(f"the floating-point number {self.text(expr)} determines a size")
            return self._symbol(expr.name)
        if expr.is_Integer:
            return int(expr)
        kind = type(expr).__name__
        if kind in ("TruncToInt", "FloorToInt") and expr.args[0].is_Mul and expr.args[0].args[0].is_Float:
            return self._share(*expr.args[0].as_two_terms())
        args = [self._translated(a) for a in expr.args]
        if isinstance(expr, sympy.Add):
            return reduce(lambda a, b: a + b, args)
        if isinstance(expr, sympy.Mul):
            return reduce(lambda a, b: a * b, args)
        if kind in ("Pow", "PowByNatural") and isinstance(args[1], int) and args[1] >= 0:
            return reduce(lambda a, b: a * b, [args[0]] * args[1], 1)
        if kind in FUNCTIONS:
            return FUNCTIONS[kind](*args)
        if kind in ROUNDED:
            inner = expr.args[0]
            if kind == "CeilToInt" and type(inner).__name__ == "IntTrueDiv":
                return dims.ceil_div(*map(self._translated, inner.args))
            if kind in ("TruncToInt", "FloorToInt") and type(inner).__name__ == "IntTrueDiv":
                a, b = map(self._translated, inner.args)
                if kind == "TruncToInt" and min(dims.bounds(a)[0], dims.bounds(b)[0]) < 0:
                    raise UnsupportedError(f"{self.text(expr)} rounds toward zero, and its dividend may be negative")
                return a // b
            return args[0]
        raise UnsupportedError(f"the size {self.text(expr)} cannot be represented as an extent ({kind})")

    def _share(self, factor: Any, size: Any) -> Dim:
        """Returns floor(size * number), where the float64 number represents a fraction.

        Noninteger products are further from the next integer than the rounding error.  Integer products are rounded down wrongly
        only if the number is below its fraction by more than half a unit in the last place of a power of two.
        Errors: UnsupportedError for such a number, and if the fraction is not simple.
        """
        number, found = float(factor), self._translated(size)
        share = Fraction(number).limit_denominator(1000)
        short = (share - Fraction(number)) * (1 << 54) > share
        if float(share) != number or share < 0 or short or dims.bounds(found)[0] < 0:
            raise UnsupportedError(f"the size {self.text(size)} times {number} cannot be represented as an extent")
        return found * share.numerator // share.denominator


def asserted(size: torch.SymInt) -> bool:
    """Returns True for a size that depends on data and that torch replaced by a constant, since an assertion states its value."""
    return not size.node.expr.free_symbols and bool(symbolic_shapes.free_unbacked_symbols(size.node._expr))


def environment(values: Iterable[Any]) -> Any:
    """Returns the ShapeEnv of tensors and sizes; None if all sizes are static."""
    for value in values:
        for size in value.shape if isinstance(value, torch.Tensor) else [value]:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def names_of_dims(values: Iterable[Any], symbols: Iterable[Any]) -> dict[str, str]:
    """Returns the names of `torch.export.Dim` by symbol, as far as the inputs' sizes have them.

    symbols: all of the graph; names that torch generated for one of them are omitted.  Files do not store Dim names, and other
    versions of torch may not either.
    """
    found = environment(values)
    known = {source: str(symbol) for source, symbol in getattr(found, "source_to_var", {}).items()}
    given = getattr(found, "source_name_to_debug_name", {})
    taken = {*known.values(), *map(str, symbols)}
    return {known[s]: n for s, n in given.items() if s in known and str(n).isidentifier() and n not in taken}


def undecided(graph: torch.fx.Graph) -> AbstractContextManager[None]:
    """Context manager in which torch raises `DECIDED` if code specializes a symbol to its example value.

    Graphs are converted after Dynamo has installed its guards, so such a specialization would not be guarded.
    """
    found = environment(n.meta.get("val") for n in graph.nodes)
    return found.error_on_new_guards() if found is not None and DECIDED else nullcontext()


def _bound(value: Any, infinite: int) -> int:
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return infinite
    return min(found, UNBOUNDED)


def shape_of(value: Any, extents: Extents) -> Shape:
    """Returns the shape of a torch tensor or fake tensor."""
    return Shape.of(dtype_of(value.dtype), [extents.of(s) for s in value.shape])
