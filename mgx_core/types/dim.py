"""Extents: an int, or a `Sym`, a polynomial over named symbols with bounds.

Polynomials have a canonical form, so most comparisons reduce to structural equality; the others use interval arithmetic on the
bounds, and may be undecided (`compare` returns None).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..errors import ShapeError
from .polynomial import UNBOUNDED, Call, Dim, Sym, Symbol, floordiv, mod, of_atom, symbol

__all__ = [
    "FUNCTIONS", "Dim", "Replacements", "Sym", "Symbol", "arithmetic", "bounds", "broadcast", "broadcasts", "ceil_div", "compare",
    "fresh", "fresh_prefix", "linear", "maximum", "may_equal", "minimum", "product", "solve", "solved", "substitute", "symbol",
    "symbols_of", "trunc_div",
]  # fmt: skip

_counter = itertools.count()


def fresh(prefix: str = "n", lo: int = 0, hi: Dim = UNBOUNDED) -> Dim:
    """Returns a data-dependent extent (the number of nonzero elements, ...), at most `hi`."""
    top = min(bounds(hi)[1], UNBOUNDED)  # a product of unbounded extents exceeds 64 bits and bounds nothing
    return symbol(f"{prefix}?{next(_counter)}", min(lo, top), top)


def fresh_prefix(name: str) -> str | None:
    """Returns the prefix of a symbol that `fresh` has named, whose number is arbitrary; None for other symbols."""
    prefix, _, number = name.rpartition("?")
    return prefix if number.isdecimal() and len(number) < len(name) else None


def ceil_div(a: Dim, b: Dim) -> Dim:
    """a / b rounded up, b > 0."""
    return floordiv(a + b - 1, b)


def trunc_div(a: Dim, b: Dim) -> Dim:
    """a / b rounded toward zero, as ONNX divides integers."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise ShapeError(f"the extent {a} is divided by zero")
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if bounds(b)[0] < 0:
        raise ShapeError(f"{a} / {b}: the sign of the quotient is known only at run time")
    if bounds(a)[0] < 0:  # one of the two terms is zero: extents' quotients are rounded down
        return maximum(a // b, 0) - maximum(-a // b, 0)
    return a // b


def arithmetic(parameters: Iterable[str], text: str) -> Callable[..., Any]:
    """Compiles an expression of integer parameters: operators and functions.  The text must not contain names from a file."""
    functions = {"__builtins__": {}, "max": max, "min": min, "broadcast": broadcast}
    made: Callable[..., Any] = eval(f"lambda {', '.join(parameters)}: {text}", functions)
    return made


def product(dims: Iterable[Dim]) -> Dim:
    """Returns the product of all; 1 for none."""
    out: Dim = 1
    for d in dims:
        out = out * d
    return out


def maximum(a: Dim, b: Dim) -> Dim:
    """Returns the larger of two extents."""
    return _pick("max", a, b, lambda difference: difference >= 0)


def minimum(a: Dim, b: Dim) -> Dim:
    """Returns the smaller of two extents."""
    return _pick("min", a, b, lambda difference: difference <= 0)


def _pick(function: str, a: Dim, b: Dim, a_wins: Callable[[int], bool]) -> Dim:
    a, b = sorted((a, b), key=lambda d: (isinstance(d, Sym), repr(d)))  # a canonical order of operands, also for ties
    lo, hi = bounds(a - b)
    if a_wins(lo) and a_wins(hi):
        return a
    if a_wins(-lo) and a_wins(-hi):
        return b
    for whole, part in ((a, b), (b, a)):
        call = _call_of(whole, function)
        if call is not None and part in call.args:  # min(min(a, b), b)
            return whole
        call = _call_of(whole, "min" if function == "max" else "max")
        gaps = [] if call is None else [bounds(arg - part) for arg in call.args]
        if gaps and all(a_wins(low) and a_wins(high) for low, high in gaps):  # min(max(n - 1, 0), n)
            return whole
        if any(a_wins(-low) and a_wins(-high) for low, high in gaps):  # min(max(n + 1, m), n)
            return part
    left, right = sorted((a, b), key=repr)
    return of_atom(Call(function, (left, right)))


def broadcast(a: Dim, b: Dim) -> Dim:
    """Returns the extent that results from broadcasting a against b.

    Errors: ShapeError if they can never be equal and neither can be 1.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"extents {a} and {b} do not broadcast")
    if isinstance(a, int) or isinstance(b, int):
        fixed, open_ = (a, b) if isinstance(a, int) else (b, a)
        if not may_equal(open_, 1) and not may_equal(open_, fixed):
            raise ShapeError(f"extents {a} and {b} do not broadcast")
        return fixed
    if not may_equal(a, 1) or not may_equal(b, 1):  # one is never 1: the other is 1 or equal to it
        fixed, open_ = (b, a) if may_equal(a, 1) else (a, b)
        if not may_equal(open_, 1) and not may_equal(a, b):
            raise ShapeError(f"extents {a} and {b} do not broadcast")
        return fixed
    parts = {*_broadcast_parts(a), *_broadcast_parts(b)}
    kept = sorted((d for d in parts if not any(_implied(d, other) for other in parts)), key=repr)
    return functools.reduce(lambda left, right: of_atom(Call("broadcast", (left, right))), kept)


def _broadcast_parts(d: Dim) -> Iterable[Dim]:
    """Returns the operands of a `broadcast` call."""
    call = _call_of(d, "broadcast")
    return (d,) if call is None else (part for arg in call.args for part in _broadcast_parts(arg))


def broadcasts(d: Dim) -> list[Dim]:
    """Returns the extents that an extent results from by broadcasting; empty for others."""
    return [] if _call_of(d, "broadcast") is None else list(_broadcast_parts(d))


def _implied(d: Dim, other: Dim) -> bool:
    """Returns True if `d` is redundant in a broadcast with `other`: min(n, c) with n is n, or invalid (c > 0)."""
    call = _call_of(d, "min")
    return call is not None and other in call.args and all(a == other or bounds(a)[0] > 0 for a in call.args)


def _call_of(d: Dim, function: str) -> Call | None:
    """Returns the call if an extent is a single call of this function, else None."""
    if isinstance(d, Sym) and d.is_atom:
        atom = d.terms[0][0][0]
        if isinstance(atom, Call) and atom.function == function:
            return atom
    return None


def _bounds_call(call: Call) -> tuple[int, int]:
    if call.bounds is None:  # subexpressions are shared many times
        call.bounds = _found_bounds(call)
    return call.bounds


def _found_bounds(call: Call) -> tuple[int, int]:
    (alo, ahi), (blo, bhi) = bounds(call.args[0]), bounds(call.args[1])
    match call.function:
        case "max":
            return max(alo, blo), max(ahi, bhi)
        case "min":
            return min(alo, blo), min(ahi, bhi)
        case "broadcast":
            return min(alo, blo), max(ahi, bhi)
        case "mod":
            if alo >= 0 and blo >= 0:
                return 0, max(0, min(ahi, bhi - 1))
            return min(0, blo + 1), max(0, bhi - 1)
        case _:
            divisors = {y for y in (blo, bhi, *(y for y in (-1, 1) if blo <= y <= bhi)) if y} or {1}
            corners = [x // y for x in (alo, ahi) for y in divisors]
            return min(corners), max(corners)


def bounds(d: Dim) -> tuple[int, int]:
    """Returns the smallest and largest value that an extent can take (inclusive; conservative)."""
    if not isinstance(d, Sym):
        return d, d
    low = high = 0
    for atoms, coefficient in d.terms:
        lo = hi = 1
        for atom in atoms:
            alo, ahi = (atom.lo, atom.hi) if isinstance(atom, Symbol) else _bounds_call(atom)
            corners = (lo * alo, lo * ahi, hi * alo, hi * ahi)
            lo, hi = min(corners), max(corners)
        lo, hi = (lo * coefficient, hi * coefficient) if coefficient > 0 else (hi * coefficient, lo * coefficient)
        low, high = low + lo, high + hi
    return low, high


def may_equal(a: Dim, b: Dim) -> bool:
    """Returns True if some values of the symbols make both equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    lo, hi = bounds(a - b)
    return lo <= 0 <= hi


def compare(a: Dim, relation: str, b: Dim) -> bool | None:
    """``a relation b`` with relation one of ``== != < <= > >=``; None if it depends on the symbols' values."""
    lo, hi = bounds(a - b)
    match relation:
        case "==":
            return True if lo == hi == 0 else (None if lo <= 0 <= hi else False)
        case "!=":
            equal = compare(a, "==", b)
            return None if equal is None else not equal
        case "<":
            return True if hi < 0 else (False if lo >= 0 else None)
        case "<=":
            return True if hi <= 0 else (False if lo > 0 else None)
        case ">":
            return compare(b, "<", a)
        case ">=":
            return compare(b, "<=", a)
    raise ValueError(f"relation must be one of == != < <= > >=, got {relation!r}")


def symbols_of(d: Dim) -> set[Symbol]:
    """Returns the symbols in an extent."""
    out: set[Symbol] = set()
    if isinstance(d, Sym):
        for atoms, _ in d.terms:
            for atom in atoms:
                if isinstance(atom, Symbol):
                    out.add(atom)
                else:
                    if atom.symbols is None:
                        atom.symbols = frozenset(s for arg in atom.args for s in symbols_of(arg))
                    out |= atom.symbols
    return out


def linear(d: Sym) -> tuple[Sym, int, int] | None:
    """Returns x, a and c of an extent ``a*x + c``; None for others.

    x: a single symbol, or an expression whose symbols cannot be solved for individually: ``n//2``, ``n*m``.
    """
    found, coefficient, constant = None, 0, 0
    for atoms, factor in d.terms:
        if not atoms:
            constant = factor
        elif found is None:
            found, coefficient = Sym(((atoms, 1),)), factor
        else:
            return None
    return None if found is None else (found, coefficient, constant)


def solved(parts: tuple[Sym, int, int], n: int) -> int | None:
    """Returns the value of x, within its bounds, that makes a linear extent `n`; None if there is none."""
    of, coefficient, constant = parts
    quotient, rest = divmod(n - constant, coefficient)
    low, high = bounds(of)
    return None if rest or not low <= quotient <= high else quotient


def solve(extents: Iterable[tuple[Dim, Dim]], known: dict[str, Dim] | dict[str, int]) -> None:
    """Solves linear extents with given values and adds the unknowns to `known`, by text; single symbols are bound elsewhere."""
    left = [(d, n) for d, n in extents if isinstance(d, Sym) and isinstance(n, int) and d.symbol is None]
    count = -1
    while left and count != len(known):
        count = len(known)
        for d, n in left:
            try:
                rest = substitute(d, known)
            except ShapeError:  # a division by zero, reported by `check_symbols`
                continue
            parts = linear(rest) if isinstance(rest, Sym) else None
            found = None if parts is None else solved(parts, n)
            if parts is not None and found is not None:
                known[str(parts[0])] = found


FUNCTIONS: Final[dict[str, Callable[[Dim, Dim], Dim]]] = {
    "floordiv": floordiv,
    "mod": mod,
    "max": maximum,
    "min": minimum,
    "broadcast": broadcast,
}


def _unnamed(d: Dim) -> bool:
    """Returns True if an extent is an expression other than a single symbol, which was replaced by name already."""
    return isinstance(d, Sym) and d.symbol is None


class Replacements(dict[str, Dim]):
    """Extents by the symbols (or texts) that they replace in many extents; remembers the results.  It must not be edited."""

    __slots__ = ("_calls", "_made")

    def __init__(self, values: Mapping[str, Dim]) -> None:
        super().__init__(values)
        self._made: dict[Sym, Dim] = {}
        self._calls: dict[Call, Dim] = {}

    def of(self, d: Sym) -> Dim:
        """Returns the extent with symbols replaced; the extent itself if none is."""
        if d.marked:  # equal ones may differ
            return _substituted(d, self, {})
        found = self._made.get(d)
        if found is None:
            made = _substituted(d, self, self._calls)
            same = made == d and not (isinstance(made, Sym) and made.marked)
            found = self._made[d] = d if same else made
        return found


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """Returns the extent with symbols replaced by name, and products and calls by their text; unknown ones are kept."""
    if isinstance(values, Replacements):
        return values.of(d) if isinstance(d, Sym) else d
    return _substituted(d, values, {})


def _substituted(d: Dim, values: Mapping[str, Dim], calls: dict[Call, Dim]) -> Dim:
    """Returns an extent with symbols replaced by name; calls: memoized replacements of calls."""
    if not isinstance(d, Sym):
        return d
    if d.symbol is not None:  # most are
        return values.get(d.symbol.name, d)
    out: Dim = 0
    for atoms, coefficient in d.terms:
        term: Dim = 1
        for atom in atoms:
            if isinstance(atom, Symbol):
                term = term * values.get(atom.name, of_atom(atom))
            else:
                made = calls.get(atom)
                if made is None:
                    first, second = (_substituted(a, values, calls) for a in atom.args)
                    made = FUNCTIONS[atom.function](first, second)
                    made = calls[atom] = values.get(str(made), made) if _unnamed(made) else made
                term = term * made
        if len(atoms) > 1 and _unnamed(term):
            term = values.get(str(term), term)
        out = out + coefficient * term
    return out
