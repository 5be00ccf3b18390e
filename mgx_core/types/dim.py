"""Extents: an int, or a `Sym`, a polynomial over named symbols with bounds.

Polynomials are kept in one canonical form, so structural equality decides most questions; what it leaves open is decided
by interval arithmetic on the bounds, or left open (`compare` gives None).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from ..errors import ShapeError

__all__ = [
    "FUNCTIONS",
    "Dim",
    "Sym",
    "Symbol",
    "bounds",
    "broadcast",
    "ceil_div",
    "compare",
    "fresh",
    "maximum",
    "may_equal",
    "minimum",
    "product",
    "substitute",
    "symbol",
    "symbols_of",
    "trunc_div",
]

UNBOUNDED: Final = 1 << 40  # the upper bound of a symbol that states none; also what "absurdly large" starts at


class Symbol:
    """A named unknown extent with inclusive bounds and the sizes worth optimising for."""

    __slots__ = ("_hash", "hi", "lo", "name", "optimals")

    def __init__(self, name: str, lo: int = 0, hi: int = UNBOUNDED, optimals: Iterable[int] = ()) -> None:
        if not 0 <= lo <= hi:
            raise ShapeError(f"dimension {name!r}: bounds must satisfy 0 <= min <= max, got min {lo}, max {hi}")
        self.name = name
        self.lo = lo
        self.hi = hi
        self.optimals = tuple(sorted(set(optimals)))
        self._hash = hash((name, lo, hi))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Symbol) and (self.name, self.lo, self.hi) == (other.name, other.lo, other.hi)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name


class _Call:
    """An integer function that is not a polynomial: floordiv, mod, max, min, or broadcast (the one that is not 1)."""

    __slots__ = ("_hash", "_text", "args", "function")

    def __init__(self, function: str, args: tuple[Dim, ...]) -> None:
        self.function = function
        self.args = args
        self._hash = hash((function, args))
        self._text = ""  # made when first asked for: terms are sorted by text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and (self.function, self.args) == (other.function, other.args)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if not self._text:
            if self.function in _INFIX:
                left, right = (f"({a})" if isinstance(a, Sym) and not a.is_atom else str(a) for a in self.args)
                self._text = f"({left}{_INFIX[self.function]}{right})"
            else:
                self._text = f"{self.function}({', '.join(map(str, self.args))})"
        return self._text


_INFIX: Final = {"floordiv": "//", "mod": "%"}
Atom: TypeAlias = "Symbol | _Call"
Monomial: TypeAlias = "tuple[Atom, ...]"  # sorted by text, repeated for powers; () is the constant


class Sym:
    """A symbolic extent: the canonical polynomial ``sum(coefficient * product(atoms))``; never constant."""

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._text = ""

    @property
    def is_atom(self) -> bool:
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1

    @property
    def name(self) -> str:
        """The symbol's name if this is a lone symbol, else the whole expression's text."""
        lone = self.symbol
        return str(self) if lone is None else lone.name

    @property
    def symbol(self) -> Symbol | None:
        """The symbol that this is, if it is nothing but one."""
        if len(self.terms) == 1:
            atoms, coefficient = self.terms[0]
            if coefficient == 1 and len(atoms) == 1 and isinstance(atoms[0], Symbol):
                return atoms[0]
        return None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Sym) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        raise ShapeError(f"the truth of the symbolic extent {self} is known only at run time")

    def __index__(self) -> int:
        raise ShapeError(f"the symbolic extent {self} has no value before running")

    def __repr__(self) -> str:
        if self._text:
            return self._text
        parts = []
        for atoms, coefficient in self.terms:
            factors = [str(a) for a in atoms]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors).replace("-1*", "-", 1) if coefficient == -1 else "*".join(factors))
        self._text = "+".join(parts).replace("+-", "-")
        return self._text

    def __add__(self, other: Dim) -> Dim:
        return _sum((self, other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _from_terms({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return _sum((self, -other))

    def __rsub__(self, other: Dim) -> Dim:
        return _sum((other, -self))

    def __mul__(self, other: Dim) -> Dim:
        out: dict[Monomial, int] = {}
        for (m, c), (n, d) in itertools.product(self.terms, _terms(other)):
            key = tuple(sorted(m + n, key=repr)) if m and n else m or n
            out[key] = out.get(key, 0) + c * d
        return _from_terms(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _mod(other, self)


Dim: TypeAlias = "int | Sym"


def _terms(d: Dim) -> tuple[tuple[Monomial, int], ...]:
    return d.terms if isinstance(d, Sym) else ((((), d),) if d else ())


def _from_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    if len(kept) == 1:
        return Sym(tuple(kept.items()))
    return Sym(tuple(sorted(kept.items(), key=lambda t: (not t[0], repr(t[0])))))


def _atom(a: Atom) -> Sym:
    return Sym((((a,), 1),))


def _sum(parts: Iterable[Dim]) -> Dim:
    out: dict[Monomial, int] = {}
    for part in parts:
        for m, c in _terms(part):
            out[m] = out.get(m, 0) + c
    return _from_terms(out)


def _divides(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is a monomial that divides every term of a exactly."""
    terms = _terms(b)
    if len(terms) != 1:
        return 1 if a == b else None
    (divisor, scale) = terms[0]
    out: dict[Monomial, int] = {}
    for m, c in _terms(a):
        rest = list(m)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % scale:
            return None
        out[tuple(rest)] = c // scale
    return _from_terms(out)


def _floordiv(a: Dim, b: Dim) -> Dim:
    if isinstance(b, int):
        if b == 0:
            raise ShapeError(f"the extent {a} is divided by zero")
        if isinstance(a, int):
            return a // b
    exact = _divides(a, b)
    if exact is not None:
        return exact
    if (
        isinstance(b, int) and b > 0 and isinstance(a, Sym)
    ):  # pull out the part that divides: (4*s + 3) // 4 = s + 3 // 4
        whole = {m: c // b for m, c in a.terms if m and c % b == 0}
        rest = _from_terms({m: c for m, c in a.terms if not m or c % b})
        if whole:
            return _sum((_from_terms(whole), _floordiv(rest, b)))
    return _atom(_Call("floordiv", (a, b)))


def _mod(a: Dim, b: Dim) -> Dim:
    if isinstance(b, int):
        if b == 0:
            raise ShapeError(f"the extent {a} is divided by zero")
        if isinstance(a, int):
            return a % b
        a = _from_terms({m: c % b for m, c in a.terms})  # (4*s + 3) % 4 = 3 % 4
        if isinstance(a, int):
            return a % b
    if _divides(a, b) is not None:
        return 0
    return _atom(_Call("mod", (a, b)))


def symbol(name: str, lo: int = 0, hi: int = UNBOUNDED, optimals: Iterable[int] = ()) -> Dim:
    """The extent called `name`; an int if the bounds leave one value."""
    return lo if lo == hi else _atom(Symbol(name, lo, hi, optimals))


_counter = itertools.count()


def fresh(prefix: str = "n", lo: int = 0, hi: Dim = UNBOUNDED) -> Dim:
    """Returns a data-dependent extent (the number of nonzero elements, ...), at most `hi`."""
    top = bounds(hi)[1]
    return symbol(f"{prefix}?{next(_counter)}", min(lo, top), top)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """a / b rounded up, b > 0."""
    return _floordiv(a + b - 1, b)


def trunc_div(a: Dim, b: Dim) -> Dim:
    """a / b rounded toward zero, as ONNX divides integers."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise ShapeError(f"the extent {a} is divided by zero")
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if bounds(a)[0] < 0 or bounds(b)[0] < 0:
        raise ShapeError(f"{a} / {b}: the sign of the quotient is known only at run time")
    return a // b


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all; 1 for none."""
    out: Dim = 1
    for d in dims:
        out = out * d
    return out


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two extents."""
    return _pick("max", a, b, lambda difference: difference >= 0)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two extents."""
    return _pick("min", a, b, lambda difference: difference <= 0)


def _pick(function: str, a: Dim, b: Dim, a_wins: Callable[[int], bool]) -> Dim:
    a, b = sorted((a, b), key=lambda d: (isinstance(d, Sym), repr(d)))  # one form for both orders, also for a tie
    lo, hi = bounds(a - b)
    if a_wins(lo) and a_wins(hi):
        return a
    if a_wins(-lo) and a_wins(-hi):
        return b
    left, right = sorted((a, b), key=repr)
    return _atom(_Call(function, (left, right)))


def broadcast(a: Dim, b: Dim) -> Dim:
    """The extent that results from broadcasting a against b.

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
    return functools.reduce(lambda left, right: _atom(_Call("broadcast", (left, right))), kept)


def _broadcast_parts(d: Dim) -> Iterable[Dim]:
    """The extents that were broadcast against each other to give this one."""
    call = _call_of(d, "broadcast")
    return (d,) if call is None else (part for arg in call.args for part in _broadcast_parts(arg))


def _implied(d: Dim, other: Dim) -> bool:
    """True if `d` adds nothing to a broadcast with `other`: min(n, c) against n is n, or 1, or no broadcast at all (c > 0)."""
    call = _call_of(d, "min")
    return call is not None and other in call.args and all(a == other or bounds(a)[0] > 0 for a in call.args)


def _call_of(d: Dim, function: str) -> _Call | None:
    """The call that an extent is, if it is nothing but one of this function."""
    if isinstance(d, Sym) and d.is_atom:
        atom = d.terms[0][0][0]
        if isinstance(atom, _Call) and atom.function == function:
            return atom
    return None


def _bounds_call(call: _Call) -> tuple[int, int]:
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
    """The smallest and largest value that an extent can take (inclusive; conservative)."""
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
    """True if some values of the symbols make both equal."""
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
    """The symbols that an extent is made of."""
    out: set[Symbol] = set()
    if isinstance(d, Sym):
        for atoms, _ in d.terms:
            for atom in atoms:
                if isinstance(atom, Symbol):
                    out.add(atom)
                else:
                    for arg in atom.args:
                        out |= symbols_of(arg)
    return out


FUNCTIONS: Final[dict[str, Callable[[Dim, Dim], Dim]]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "max": maximum,
    "min": minimum,
    "broadcast": broadcast,
}


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """The extent with symbols replaced by name; symbols without a value stay."""
    if not isinstance(d, Sym):
        return d
    out: Dim = 0
    for atoms, coefficient in d.terms:
        term: Dim = coefficient
        for atom in atoms:
            if isinstance(atom, Symbol):
                term = term * values.get(atom.name, _atom(atom))
            else:
                first, second = (substitute(a, values) for a in atom.args)
                term = term * FUNCTIONS[atom.function](first, second)
        out = out + term
    return out
