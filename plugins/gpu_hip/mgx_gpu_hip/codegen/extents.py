"""Symbolic extents: plain numbers to the generators, arguments in the kernel source.  Traced numbers are formatted likewise.

A `SymbolicInt` is an int with its value in this instance, so that generators decide as for a static extent.  When it is formatted
into kernel source under `arguments`, the source gets a parameter and the launch an argument.  One source then serves all
instances in which the generator decides in the same way, and is compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from mgx_core.types.traced_int import Trace, TracedInt, usual, value_of

__all__ = [
    "KernelTrace", "Recorder", "SymbolicInt", "arguments", "estimated", "is_symbolic", "marked", "plain", "remembered",
    "symbolic", "varies",
]  # fmt: skip

Terms: TypeAlias = "Mapping[tuple[str, ...], int]"  # a polynomial: coefficients by the sorted names of the factors

_PLACE: Final = re.compile("«(\\d+)»(ull|ll|u)?")
_KERNEL: Final = re.compile(r"^(KERNEL\([^)]*\)(?: CLUSTER\(\d+\))?) ([^\s(]+)\(([^)]*)\) \{\n", re.M)
# contexts that require compile-time constants: array sizes, template arguments
_FIXED: Final = re.compile(
    r"^ *SHARED\(.*$|^ *\w+(?:<[^<>]*>)? (?:\w+(?:\[[^\]]*\])+(?: = \{\})?,? ?)+;$|\w<[^<>();]*>", re.M
)
_TYPES: Final = {"u32": "n", "u64": "wide", "i32": "s", "i64": "long_"}


class SymbolicInt(int):
    """An extent's value with the polynomial of symbols it was computed from."""

    terms: Terms
    text: str | None = None  # the formatted polynomial, computed on first use

    @classmethod
    def of(cls, value: int, terms: Terms) -> Any:
        """Returns a plain int if the value is static."""
        if not terms or (len(terms) == 1 and () in terms):
            return int(value)
        made = int.__new__(cls, value)
        made.terms = terms
        return made

    @classmethod
    def symbol(cls, name: str, value: int) -> SymbolicInt:
        made: SymbolicInt = cls.of(value, {(name,): 1})
        return made

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        value = int.__mul__(self, other)
        if other.__class__ is not SymbolicInt:
            if other == 1:
                return self
            return SymbolicInt.of(value, {m: c * other for m, c in self.terms.items()} if other else {})
        out: dict[tuple[str, ...], int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                key = tuple(sorted(m + n)) if m and n else m or n
                out[key] = out.get(key, 0) + c * d
        return SymbolicInt.of(value, out)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        if other.__class__ is not SymbolicInt and not other:
            return self
        out = dict(self.terms)
        for m, c in terms_of(other).items():
            out[m] = out.get(m, 0) + c
        return SymbolicInt.of(int.__add__(self, other), {m: c for m, c in out.items() if c})

    __radd__ = __add__

    def __neg__(self) -> Any:
        return SymbolicInt.of(int.__neg__(self), {m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, int) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return _call("/", self, other, int.__floordiv__)

    def __rfloordiv__(self, other: Any) -> Any:
        return _call("/", other, self, int.__floordiv__)

    def __mod__(self, other: Any) -> Any:
        return _call("%", self, other, int.__mod__)

    def __rmod__(self, other: Any) -> Any:
        return _call("%", other, self, int.__mod__)

    def __format__(self, spec: str) -> str:
        if spec:
            return int.__format__(self, spec)
        recorder = _recording.get()
        return int.__repr__(self) if recorder is None else recorder.place(self)

    def __str__(self) -> str:
        return self.__format__("")

    def __repr__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _call(sign: str, a: Any, b: Any, function: Any) -> Any:
    if not (isinstance(a, int) and isinstance(b, int)):
        return NotImplemented
    value = function(int(a), int(b))
    if sign == "/" and b.__class__ is not SymbolicInt and all(c % b == 0 for c in terms_of(a).values()):
        return SymbolicInt.of(value, {m: c // b for m, c in terms_of(a).items()})
    return SymbolicInt.of(value, {(f"({text_of(a)}{sign}{text_of(b)})",): 1})


def terms_of(x: int) -> Terms:
    return x.terms if isinstance(x, SymbolicInt) else {(): int(x)} if x else {}


def text_of(x: int) -> str:
    """Returns the polynomial of a number as text."""
    if type(x) is not SymbolicInt:
        return _text(x)
    if x.text is None:
        x.text = _text(x)
    return x.text


def _text(x: int) -> str:
    return "+".join("*".join((str(c), *m)) for m, c in sorted(terms_of(x).items()))


def plain(x: Any) -> Any:
    """Returns a number without its polynomial; traced numbers are unchanged."""
    return int(x) if type(x) is SymbolicInt else x


def varies(x: Any) -> bool:
    """Returns True for an extent, or a number computed from some, that is an argument of kernels."""
    return isinstance(x, (SymbolicInt, TracedInt))


def estimated(x: Any) -> float:
    """Returns a number for a cost model; a traced one as a choice that is good for numbers of about its size."""
    return float(usual(x) if type(x) is TracedInt else plain(x))


class Recorder:
    """Collects the symbolic extents formatted into a kernel's source."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}  # by polynomial and value
        self.values: list[Any] = []  # ints or traced numbers

    def place(self, x: int) -> str:
        value: Any = plain(x)
        if type(x) is TracedInt:
            key = x.trace.text(x), value_of(x)
        else:
            key = text_of(x), int(getattr(value, "number", value))
        number = self.numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        elif type(value) is TracedInt:
            pass
        elif type(value) is not int:  # numbers in a trace of a generator; the first one of equal extents is kept
            value.shares(self.values[number])
        elif type(self.values[number]) is not int:
            self.values[number].shares(value)
        return f"«{number}»"

    def fixed(self, text: str) -> str:
        """Returns the source with the values substituted for the placeholders."""
        return _PLACE.sub(lambda found: f"{_constant(self.values[int(found[1])])}{found[2] or ''}", text)

    def message(self, text: str) -> str:
        """Returns the text of a message with the values substituted for the placeholders."""
        return _PLACE.sub(lambda found: f"{value_of(self.values[int(found[1])])}{found[2] or ''}", text)

    def resolved(self, text: str) -> tuple[str, dict[str, list[tuple[str, int]]]]:
        """Returns the source with placeholders in kernels replaced by arguments, and each kernel's arguments as (C type, value).

        Where a compile-time constant is required (array sizes, templates, text outside kernels) the value is substituted.
        """
        if "«" not in text:
            return text, {}
        added: dict[str, list[tuple[str, int]]] = {}
        out, last = [], 0
        for head in _KERNEL.finditer(text):
            end = text.find("\n}\n", head.end() - 1)
            body = _FIXED.sub(lambda found: self.fixed(found[0]), text[head.end() : end])
            own: dict[tuple[str, int], str] = {}
            body = _PLACE.sub(lambda found, own=own: self._named(found, own), body)  # type: ignore[misc]
            parameters = [p for p in (head[3], *(f"{kind} {name}" for (kind, _), name in own.items())) if p]
            added[head[2]] = [(kind, self.values[number]) for kind, number in own]
            out.append(self.fixed(text[last : head.start()]))
            out.append(f"{self.fixed(head[1])} {head[2]}({', '.join(parameters)}) {{\n{body}")
            last = end
        out.append(self.fixed(text[last:]))
        return "".join(out), added

    def _named(self, found: re.Match[str], own: dict[tuple[str, int], str]) -> str:
        number = int(found[1])
        value = self.values[number]
        if found[2] in ("u", "ull"):
            kind = "u32" if found[2] == "u" and value < 1 << 32 else "u64"
        else:
            kind = "i32" if not found[2] and -(1 << 31) <= value < 1 << 31 else "i64"
        return own.setdefault((kind, number), f"{_TYPES[kind]}{len(own)}x")


def _constant(x: Any) -> Any:
    """Returns a number that source code contains as a constant; extents that are traced cannot change then."""
    return int(x) if type(x) is TracedInt else x


class KernelTrace(Trace):
    """A trace of extents that are arguments of kernels, like symbolic ones."""

    def formatted(self, number: int) -> str:
        recorder = _recording.get()
        return super().formatted(number) if recorder is None else recorder.place(number)


_recording: ContextVar[Recorder | None] = ContextVar("mgx_gpu_extents", default=None)


def current() -> Recorder | None:
    """Returns the active recorder."""
    return _recording.get()


@contextmanager
def arguments() -> Iterator[Recorder]:
    """Context manager: symbolic extents are formatted as placeholders, which `Recorder.resolved` turns into arguments."""
    recorder = Recorder()
    token = _recording.set(recorder)
    try:
        yield recorder
    finally:
        _recording.reset(token)


def remembered(n: int, shapes: Iterable[Sequence[int]]) -> int:
    """Returns the symbolic extent that a number equals, if there is one: op attributes are plain numbers that may derive from
    extents."""
    if varies(n):
        return n
    return next((d for lens in shapes for d in lens if isinstance(d, SymbolicInt) and d == n), n)


def marked(shape: Any, like: Any) -> Any:
    """Returns a static shape with the symbols of an equal one, as far as that has symbols; op attributes lose them."""
    from mgx_core import Shape

    if not isinstance(like, Shape) or not like.ranked or like.dims != shape.dims or like.dynamic():
        return shape
    if all(new.__class__ is old.__class__ for new, old in zip(like.dims, shape.dims, strict=True)):
        return shape
    dims = [old if isinstance(old, SymbolicInt) else new for new, old in zip(like.dims, shape.dims, strict=True)]
    return Shape.of(shape.dtype, dims) if shape.standard() else Shape(shape.dtype, dims, shape.strides())


def is_symbolic(shape: Any) -> bool:
    """Returns True for a shape with an extent that differs between instances of the program."""
    from mgx_core import Shape

    return isinstance(shape, Shape) and shape.ranked and any(isinstance(d, SymbolicInt) for d in shape.dims)


def symbolic(declared: Any, given: Any) -> Any:
    """Returns the given shape with the symbols of the declared extents."""
    from mgx_core import Shape
    from mgx_core.types.dim import Sym

    if not isinstance(declared, Shape) or not isinstance(given, Shape) or given.dynamic() or not declared.dynamic():
        return given
    if not declared.ranked or declared.rank != given.rank:
        return given
    symbols = [d.symbol if isinstance(d, Sym) else None for d in declared.dims]
    dims = [n if s is None else SymbolicInt.symbol(s.name, int(n)) for s, n in zip(symbols, given.lens(), strict=True)]
    return Shape.of(given.dtype, dims)
