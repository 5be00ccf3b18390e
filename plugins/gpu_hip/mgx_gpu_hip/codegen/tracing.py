"""Tracing numbers: record a generator's decisions on extents, so that they can be replayed for other extents.

A `Traced` number represents a symbolic extent.  Its sums and products are recorded; so is each decision that depends on it:
comparisons, equality, use as an index.  A generator that decides in the same way for other extents would generate the same
source, and its launch arguments follow from the recorded expressions.  The class does not derive from int, so that nothing can
read its value unnoticed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from .extents import SymbolicInt, current, terms_of

__all__ = ["Trace", "Traced"]

MAX_LINES: Final = 2000  # maximum recorded lines of a trace

Follow = Callable[..., "tuple[Any, ...] | None"]


class Trace:
    """Records a generator's decisions on extents; `lines` are Python statements on ``r0``, ``r1`` and so on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._roots = 0
        self._known: dict[Any, Traced] = {}
        self._noted: set[str] = set()

    def root(self, value: int) -> Traced:
        """Returns the traced number of the next extent."""
        made = Traced(self, f"r{self._roots}", value)
        self._roots += 1
        return made

    def computed(self, text: str, value: Any) -> Any:
        """Returns a number computed by an expression of others."""
        made = self._known.get(text)
        if made is None:
            made = self._known[text] = Traced(self, f"v{len(self._known)}", value)
            self._line(f"{made.text} = {text}")
        return made

    def note(self, condition: str, true: bool = True) -> None:
        """Records the outcome of a condition (a guard)."""
        line = f"if {'not ' if true else ''}({condition}): return None"
        if line not in self._noted:
            self._noted.add(line)
            self._line(line)

    def _line(self, line: str) -> None:
        if len(self.lines) >= MAX_LINES:
            raise OverflowError("the trace of a generator exceeds the maximum number of lines")
        self.lines.append(line)

    def follow(self, numbers: Sequence[Any]) -> Follow:
        """Returns a function from extents to these numbers; it returns None if a recorded condition has another outcome."""
        given = ", ".join(f"r{n}" for n in range(self._roots))
        found = ", ".join(_operand(self, x)[0] for x in numbers)  # type: ignore[index]
        body = "".join(f"  {line}\n" for line in self.lines)
        space: dict[str, Any] = {"ceil": math.ceil, "floor": math.floor, "inf": math.inf, "nan": math.nan}
        exec(f"def follow({given}):\n{body}  return ({found}{',' if numbers else ''})\n", space)
        made: Follow = space["follow"]
        return made


class Traced:
    """A number in a trace: its variable there, and its value in this instance, which may be symbolic."""

    __slots__ = ("number", "text", "trace")

    def __init__(self, trace: Trace, text: str, number: Any) -> None:
        self.trace = trace
        self.text = text
        self.number = number

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of its value, with which generators distinguish symbolic from static numbers."""
        return type(self.number)

    @property
    def terms(self) -> Any:
        return terms_of(self.number)

    def shares(self, other: Any) -> None:
        """Records that a kernel has one argument for this number and another one."""
        given = _operand(self.trace, other)
        if given is not None and given[0] != self.text:
            self.trace.note(f"{self.text} == {given[0]}")

    def _exactly(self) -> Any:
        """Returns the value; the trace then only applies to this value."""
        value = _bare(self.number)
        self.trace.note(f"{self.text} == {value!r}")
        return value

    def __hash__(self) -> int:
        return hash(self._exactly())

    def __index__(self) -> int:
        return operator.index(self._exactly())

    def __int__(self) -> int:
        value = int(_bare(self.number))
        self.trace.note(f"int({self.text}) == {value!r}")
        return value

    def __float__(self) -> float:
        return float(self._exactly())

    def __bool__(self) -> bool:
        value = bool(self.number)
        self.trace.note(self.text, value)
        return value

    def __repr__(self) -> str:
        return repr(self._exactly())

    def __format__(self, spec: str) -> str:
        recorder = current()
        if spec or recorder is None or not isinstance(self.number, SymbolicInt):
            return format(self._exactly(), spec)
        return recorder.place(self)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.__format__("")

    def __ceil__(self) -> Any:
        return self.trace.computed(f"ceil({self.text})", math.ceil(_bare(self.number)))

    def __floor__(self) -> Any:
        return self.trace.computed(f"floor({self.text})", math.floor(_bare(self.number)))

    def __round__(self, digits: int | None = None) -> Any:
        return self.trace.computed(f"round({self.text}, {digits!r})", round(_bare(self.number), digits))

    def __abs__(self) -> Any:
        return self.trace.computed(f"abs({self.text})", abs(self.number))

    def __neg__(self) -> Any:
        return self.trace.computed(f"-{self.text}", -self.number)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return self.trace.computed(f"~{self.text}", ~_bare(self.number))

    def bit_length(self) -> Any:
        return self.trace.computed(f"{self.text}.bit_length()", _bare(self.number).bit_length())


def _bare(x: Any) -> Any:
    return int(x) if isinstance(x, SymbolicInt) else x


def _operand(trace: Trace, x: Any) -> tuple[str, Any] | None:
    """Returns a number as expression and value; None if it cannot be traced.  Numbers of other traces count as constants."""
    if type(x) is Traced:
        return (x.text, x.number) if x.trace is trace else _operand(trace, _bare(x.number))
    return (repr(_bare(x)), x) if type(x) in (int, float, bool, SymbolicInt) else None


def _binary(sign: str, function: Callable[[Any, Any], Any], turned: bool) -> Callable[[Traced, Any], Any]:
    def of(self: Traced, other: Any) -> Any:
        given = _operand(self.trace, other)
        if given is None:
            return NotImplemented
        (a, x), (b, y) = (given, (self.text, self.number)) if turned else ((self.text, self.number), given)
        return self.trace.computed(f"({a}) {sign} ({b})", function(x, y))

    return of


def _comparison(sign: str, function: Callable[[Any, Any], bool]) -> Callable[[Traced, Any], Any]:
    def of(self: Traced, other: Any) -> Any:
        given = _operand(self.trace, other)
        if given is None:
            return NotImplemented
        if self.text == given[0]:
            return function(0, 0)
        answer = bool(function(_bare(self.number), _bare(given[1])))
        self.trace.note(f"{self.text} {sign} {given[0]}", answer)
        return answer

    return of


_BINARY: Final[dict[str, tuple[str, Callable[[Any, Any], Any]]]] = {
    "add": ("+", operator.add), "sub": ("-", operator.sub), "mul": ("*", operator.mul),
    "truediv": ("/", operator.truediv), "floordiv": ("//", operator.floordiv), "mod": ("%", operator.mod),
    "pow": ("**", operator.pow), "lshift": ("<<", operator.lshift), "rshift": (">>", operator.rshift),
    "and": ("&", operator.and_), "or": ("|", operator.or_), "xor": ("^", operator.xor),
}  # fmt: skip
for _word, (_sign, _function) in _BINARY.items():
    setattr(Traced, f"__{_word}__", _binary(_sign, _function, False))
    setattr(Traced, f"__r{_word}__", _binary(_sign, _function, True))
for _word, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Traced, f"__{_word}__", _comparison(_sign, getattr(operator, _word)))
