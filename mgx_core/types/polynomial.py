"""Polynomials over bounded symbols in canonical form, so that equal ones are structurally equal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from ..errors import ShapeError

__all__ = ["UNBOUNDED", "Call", "Dim", "Sym", "Symbol", "of_atom", "floordiv", "mod", "symbol"]

UNBOUNDED: Final = 1 << 40  # the default upper bound of a symbol; larger extents are rejected


class Symbol:
    """A named unknown extent with inclusive bounds and the sizes worth optimizing for.

    written: True if its name comes from an expression that a user wrote, and not from a range.
    """

    __slots__ = ("_hash", "hi", "lo", "name", "optimals", "written")

    def __init__(
        self, name: str, lo: int = 0, hi: int = UNBOUNDED, optimals: Iterable[int] = (), written: bool = False
    ) -> None:
        if not 0 <= lo <= hi:
            raise ShapeError(f"dimension {name!r}: bounds must satisfy 0 <= min <= max, got min {lo}, max {hi}")
        self.name = name
        self.lo = lo
        self.hi = hi
        self.optimals = tuple(sorted(set(optimals)))
        self.written = written
        self._hash = hash((name, lo, hi))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Symbol) and (self.name, self.lo, self.hi) == (other.name, other.lo, other.hi)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name


class Call:
    """An integer function that is not a polynomial: floordiv, mod, max, min, or broadcast (the one that is not 1)."""

    __slots__ = ("_hash", "_text", "args", "bounds", "function", "marked", "symbols")

    def __init__(self, function: str, args: tuple[Dim, ...]) -> None:
        self.function = function
        self.args = args
        self._hash = hash((function, args))
        self._text = ""  # computed lazily; terms are sorted by text
        self.bounds: tuple[int, int] | None = None  # cached by `mgx_core.types.dim`
        self.symbols: frozenset[Symbol] | None = None
        self.marked = any(isinstance(a, Sym) and a.marked for a in args)  # see `Sym.marked`

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Call) or self._hash != other._hash or self.function != other.function:
            return False
        if self.args is not other.args:
            if self.args != other.args:
                return False
            if not (self.marked or other.marked):
                other.args = self.args  # compares shared subexpressions once
        return True

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
Atom: TypeAlias = "Symbol | Call"
Monomial: TypeAlias = "tuple[Atom, ...]"  # sorted by text, repeated for powers; () is the constant


class Sym:
    """A symbolic extent: the canonical polynomial ``sum(coefficient * product(atoms))``; never constant."""

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._text = ""

    @property
    def marked(self) -> bool:
        """True if equal extents may differ in text: a symbol has optimal values, or was written by the user."""
        return any(
            a.marked if isinstance(a, Call) else a.optimals or a.written for atoms, _ in self.terms for a in atoms
        )

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
        """The symbol, if this is a single one."""
        if len(self.terms) == 1:
            atoms, coefficient = self.terms[0]
            if coefficient == 1 and len(atoms) == 1 and isinstance(atoms[0], Symbol):
                return atoms[0]
        return None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sym) or self._hash != other._hash:
            return False
        if self.terms is not other.terms:
            if self.terms != other.terms:
                return False
            if not (self.marked or other.marked):
                other.terms = self.terms  # compares shared subexpressions once
        return True

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        raise ShapeError(f"whether the symbolic extent {self} is 0 is known only at run time")

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
        return total((self, other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _from_terms({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return total((self, -other))

    def __rsub__(self, other: Dim) -> Dim:
        return total((other, -self))

    def __mul__(self, other: Dim) -> Dim:
        out: dict[Monomial, int] = {}
        for (m, c), (n, d) in itertools.product(self.terms, terms_of(other)):
            key = tuple(sorted(m + n, key=repr)) if m and n else m or n
            out[key] = out.get(key, 0) + c * d
        return _from_terms(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)


Dim: TypeAlias = "int | Sym"


def terms_of(d: Dim) -> tuple[tuple[Monomial, int], ...]:
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


def of_atom(a: Atom) -> Sym:
    return Sym((((a,), 1),))


def total(parts: Iterable[Dim]) -> Dim:
    out: dict[Monomial, int] = {}
    for part in parts:
        for m, c in terms_of(part):
            out[m] = out.get(m, 0) + c
    return _from_terms(out)


def _divides(a: Dim, b: Dim) -> Dim | None:
    """Returns a / b, where the monomial b divides every term of a exactly."""
    terms = terms_of(b)
    if len(terms) != 1:
        return 1 if a == b else None
    (divisor, scale) = terms[0]
    out: dict[Monomial, int] = {}
    for m, c in terms_of(a):
        rest = list(m)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % scale:
            return None
        out[tuple(rest)] = c // scale
    return _from_terms(out)


def _whole_part(a: Sym, b: int) -> tuple[Dim, Dim]:
    """Returns q and r with a = q*b + r, q as large as its terms show: 4*s + n - 3 is (s-1)*4 + n+1."""
    quotients = {m: c // b for m, c in a.terms if not m or c % b == 0}
    rest = {m: c % b if not m else c for m, c in a.terms if not m or c % b}
    return _from_terms(quotients), _from_terms(rest)


def _as_quotient(a: Sym) -> tuple[Dim, int] | None:
    """Returns x and n > 0 of ``x//n``, and of ``x//n + k``, which is ``(x + k*n)//n``; None for others."""
    constant = 0
    found: Call | None = None
    for atoms, coefficient in a.terms:
        if not atoms:
            constant = coefficient
        elif found is None and coefficient == 1 and len(atoms) == 1 and isinstance(atoms[0], Call):
            found = atoms[0]
        else:
            return None
    if found is None or found.function != "floordiv":
        return None
    x, n = found.args
    return (total((x, constant * n)), n) if isinstance(n, int) and n > 0 else None


def floordiv(a: Dim, b: Dim) -> Dim:
    """Returns a / b rounded down; nested quotients are merged, and terms that b divides are factored out."""
    if isinstance(b, int):
        if b == 0:
            raise ShapeError(f"the extent {a} is divided by zero")
        if isinstance(a, int):
            return a // b
    exact = _divides(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b > 0 and isinstance(a, Sym):
        whole, rest = _whole_part(a, b)
        if whole != 0:
            return total((whole, floordiv(rest, b)))
        nested = _as_quotient(a)
        if nested is not None:
            return floordiv(nested[0], nested[1] * b)
    return of_atom(Call("floordiv", (a, b)))


def mod(a: Dim, b: Dim) -> Dim:
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
    return of_atom(Call("mod", (a, b)))


def symbol(name: str, lo: int = 0, hi: int = UNBOUNDED, optimals: Iterable[int] = (), written: bool = False) -> Dim:
    """Returns the extent called `name`; an int if the bounds leave one value."""
    return lo if lo == hi else of_atom(Symbol(name, lo, hi, optimals, written))
