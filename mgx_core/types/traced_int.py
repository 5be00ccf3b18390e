"""Traced numbers: ints that know how they were computed from extents of arguments, and the conditions that code tested on them.

Steps emitted for traced extents are valid for all extents that meet the recorded conditions.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, SupportsIndex

from .dim import Dim, Sym, arithmetic, compare, maximum, substitute, symbol, symbols_of

__all__ = [
    "SMALLEST", "Trace", "TracedInt", "alignment", "dim_of", "divides", "larger", "int_or_traced", "surely_equal", "usual",
    "value_of",
]  # fmt: skip

SPAN: Final = 64  # how much larger or smaller numbers may be than those that choices were made for
SMALLEST: Final = 2  # the least value of a traced extent: axes of extent 0 and 1 are treated differently everywhere


_serial = itertools.count()


class Trace:
    """The symbols of traced extents, and the conditions under which the traced computation is valid.

    Each condition is a pair of an expression and a relation to 0.
    like: a trace of the same extents with other values, whose choices are repeated.
    """

    def __init__(self, like: Trace | None = None) -> None:
        self.names: list[str] = []
        self.conditions: dict[tuple[Dim, str], None] = {}
        self._suffix = f"t{next(_serial)}"  # caches must not mistake the numbers of one trace for those of another
        self._values: dict[str, Dim] = {}
        self._like = like

    def extent(self, value: int) -> int:
        """Returns an extent with a symbol of its own."""
        name = f"x{len(self.names)}{self._suffix}"
        usual = value if self._like is None else self._like._values[self._like.names[len(self.names)]]
        self.names.append(name)
        self._values[name] = usual
        return TracedInt.of(value, symbol(name, SMALLEST), self)

    def text(self, number: int) -> str:
        """Returns the expression of a number as text, which is the same in a trace like this one."""
        return self.plain(str(dim_of(number)))

    def plain(self, text: str) -> str:
        """Returns a text of expressions as a trace like this one has it."""
        return text.replace(self._suffix, "")

    def formatted(self, number: int) -> str:
        """Returns a number as part of a text, such as source code.  Default: its value, without the expression."""
        return int.__repr__(number)

    def usual(self, dim: Dim, span: int = SPAN) -> int:
        """Returns the number that a choice is made for; the choice is valid for other numbers of about its size.

        span: how much larger or smaller these may be.
        """
        found = substitute(dim, self._values)
        assert isinstance(found, int)
        for difference, relation in ((span * dim - found, ">="), (dim - span * found, "<=")):
            self.decides(difference, relation, True)
        return found

    def evaluator(self, numbers: Sequence[int]) -> Callable[..., list[int]]:
        """Returns a function of the symbols' values that computes numbers."""
        return arithmetic(self.names, f"[{', '.join(self._own(dim_of(n)) for n in numbers)}]")

    def test(self) -> Callable[..., bool]:
        """Returns a function of the symbols' values that tests the conditions."""
        tests = [f"{name} >= {SMALLEST}" for name in self.names]
        tests += [f"{self._own(dim)} {relation} 0" for dim, relation in self.conditions]
        return arithmetic(self.names, " and ".join(tests))

    def _own(self, dim: Dim) -> str:
        """Returns an expression as text, once it is certain that it has no symbols of a file, which are any text."""
        if not all(s.name in self._values for s in symbols_of(dim)):
            raise ValueError(f"the extent {dim} has symbols that were not traced")
        return str(dim)

    def decides(self, difference: Dim, relation: str, holds: bool) -> bool:
        """Records that a comparison of a difference with 0 was true or false; returns this outcome."""
        if compare(difference, relation, 0) is None:
            self.conditions[difference, relation if holds else OPPOSITE[relation]] = None
        return holds


COMPARISONS: Final = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "<=": operator.le,
}  # fmt: skip
OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class TracedInt(int):
    """A number computed from traced extents, with the expression."""

    dim: Sym
    trace: Trace

    @classmethod
    def of(cls, value: int, dim: Dim, trace: Trace) -> int:
        """Returns a plain int if the expression is constant."""
        if not isinstance(dim, Sym):
            return dim
        made = int.__new__(cls, value)
        made.dim, made.trace = dim, trace
        return made

    # arithmetic

    def _with(self, value: int, dim: Dim) -> int:
        return TracedInt.of(value, dim, self.trace)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return self._with_float(operator.add, other)
        return self._with(int.__add__(self, other), self.dim + dim_of(other))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self._with(int.__neg__(self), -self.dim)

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, (int, float)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return self._with_float(operator.mul, other)
        return self._with(int.__mul__(self, other), self.dim * dim_of(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return self._with_float(operator.floordiv, other)
        return self._with(int.__floordiv__(self, other), self.dim // _divisor(other))

    def __rfloordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return self._with(int.__rfloordiv__(self, other), dim_of(other) // _divisor(self))

    def __mod__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return self._with_float(operator.mod, other)
        return self._with(int.__mod__(self, other), self.dim % _divisor(other))

    def __rmod__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return self._with(int.__rmod__(self, other), dim_of(other) % _divisor(self))

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pos__(self) -> Any:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    # comparisons

    def _decides(self, other: Any, relation: str, holds: Any) -> Any:
        if holds is NotImplemented or not isinstance(other, int):
            return self._with_float(COMPARISONS[relation], other)
        return self.trace.decides(self.dim - dim_of(other), relation, holds)

    def __eq__(self, other: object) -> Any:
        return self._decides(other, "==", int.__eq__(self, other))

    def __ne__(self, other: object) -> Any:
        return self._decides(other, "!=", int.__ne__(self, other))

    def __lt__(self, other: Any) -> Any:
        return self._decides(other, "<", int.__lt__(self, other))

    def __le__(self, other: Any) -> Any:
        return self._decides(other, "<=", int.__le__(self, other))

    def __gt__(self, other: Any) -> Any:
        return self._decides(other, ">", int.__gt__(self, other))

    def __ge__(self, other: Any) -> Any:
        return self._decides(other, ">=", int.__ge__(self, other))

    def __bool__(self) -> bool:
        return self != 0  # type: ignore[no-any-return]

    def __hash__(self) -> int:
        return hash(self.dim)  # not that of the number, so that caches distinguish both

    # what has no expression makes the trace valid for this number only

    def _fixed(self) -> int:
        value = int.__int__(self)
        self.trace.decides(self.dim - value, "==", True)
        return value

    def _with_float(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        """Returns a function of this number and a float; NotImplemented for other types."""
        return function(self._fixed(), other) if isinstance(other, float) else NotImplemented

    def __int__(self) -> int:
        return self._fixed()

    def __truediv__(self, other: Any) -> Any:
        return self._fixed() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._fixed()

    def __float__(self) -> float:
        return float(self._fixed())

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return pow(self._fixed(), other, modulus)

    def __rpow__(self, other: Any, modulus: Any = None) -> Any:
        return pow(other, self._fixed(), modulus)

    def __and__(self, other: Any) -> Any:
        return self._fixed() & other

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self._fixed() | other

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return self._fixed() ^ other

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Any:
        return self._fixed() << other

    def __rlshift__(self, other: Any) -> Any:
        return other << self._fixed()

    def __rshift__(self, other: Any) -> Any:
        return self._fixed() >> other

    def __rrshift__(self, other: Any) -> Any:
        return other >> self._fixed()

    def __invert__(self) -> int:
        return ~self._fixed()

    def bit_length(self) -> int:
        return self._fixed().bit_length()

    def __repr__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else self.trace.formatted(self)

    def __str__(self) -> str:
        return self.trace.formatted(self)

    def __reduce__(self) -> Any:
        return int, (value_of(self),)


def usual(number: int, span: int = SPAN) -> int:
    """Returns a number for a choice that is right for all numbers, and good for similar ones; records no exact condition.

    span: how much larger or smaller similar ones are.
    """
    return number.trace.usual(number.dim, span) if type(number) is TracedInt else number


def divides(divisor: int, number: int) -> bool:
    """Returns True if a number is a multiple of another for all traced extents."""
    rest = number % divisor
    return type(rest) is not TracedInt and rest == 0


def alignment(number: int, most: int) -> int:
    """Returns the largest power of two up to `most`, which is one, that divides a number for all traced extents."""
    if type(number) is not TracedInt:
        return min(most, number & -number) if number else most
    while not divides(most, number):
        most //= 2
    return most


def surely_equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Returns True if numbers are equal in pairs, traced ones for all traced extents."""
    return [*map(dim_of, a)] == [*map(dim_of, b)]


def larger(a: int, b: int) -> int:
    """Returns the larger number: an expression, and no condition, if one is traced."""
    traced = next((n for n in (a, b) if type(n) is TracedInt), None)
    if traced is None:
        return max(a, b)
    return TracedInt.of(max(value_of(a), value_of(b)), maximum(dim_of(a), dim_of(b)), traced.trace)


def value_of(number: int) -> int:
    """Returns a number without its trace, for what may differ between extents: sizes of memory that can grow, estimates."""
    return int.__int__(number) if type(number) is TracedInt else number


def int_or_traced(number: SupportsIndex) -> int:
    """Returns a number without what a target's own type of ints carries, unless that is a trace."""
    return number if type(number) is TracedInt else int(number)


def _divisor(number: int) -> Dim:
    """Returns the expression of a number that another is divided by; records the condition that it is not 0."""
    if type(number) is TracedInt:
        number.trace.decides(number.dim, "!=", True)
    return dim_of(number)


def dim_of(number: Dim) -> Dim:
    """Returns the expression of a number; the number itself if it is not traced."""
    return number.dim if type(number) is TracedInt else number
