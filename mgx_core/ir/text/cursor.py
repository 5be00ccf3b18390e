"""A scanner over one line of the text form: parses names, extents, shapes, attributes and elements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from ...errors import MgxError, ParseError
from ...types import dtype as dt
from ...types.argument import Value
from ...types.dim import Dim
from ...types.dim_text import parse as parse_dim
from ...types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape
from .literals import array_from_base64, array_from_words, unescaped, words_of

__all__ = ["Cursor"]

T = TypeVar("T")

NAME: Final = re.compile(r"[A-Za-z0-9_./:\-]+")
SYMBOL: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_?.:]*)|`([^`]*)`")
INT: Final = re.compile(r"[+-]?\d{1,40}(?!\d)")
FLOAT: Final = re.compile(r"[+-]?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
BOOL: Final = re.compile(r"(?:true|false)\b")
STRING: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
BYTES: Final = re.compile(r'b"((?:[0-9a-f]{2})*)"')
DTYPE: Final = re.compile(r"[A-Za-z0-9_]+")
WORD: Final = re.compile(r"[A-Za-z0-9_?.:]+")
ELEMENTS: Final = re.compile(r'(?:[^()"]+|"[^"\\]*(?:\\.[^"\\]*)*"|\([^()]*\))*')
BARE: Final = re.compile(r"[^,]*")
DTYPES: Final = {word: t for t in dt.ALL for word in (t.name, t.alias)}
FUNCTIONS: Final = frozenset({"floordiv", "mod", "max", "min", "broadcast"})


class Cursor:
    """A position in one line, with methods that parse what follows and advance."""

    def __init__(self, number: int, text: str, symbols: dict[str, Dim]) -> None:
        self.number = number
        self.text = text
        self.at = 0
        self.symbols = symbols

    def fail(self, expected: str) -> NoReturn:
        rest = self.text[self.at :].strip()
        got = f"{rest[:40]!r}{'...' if len(rest) > 40 else ''}" if rest else "the end of the line"
        raise ParseError(f"line {self.number}: expected {expected}, got {got}")

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r":
            self.at += 1

    def sees(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.at)

    def accept(self, token: str) -> bool:
        if self.sees(token):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"{token!r}")

    def accept_word(self, word: str) -> bool:
        self.skip()
        found = NAME.match(self.text, self.at)
        if found and found[0] == word:
            self.at = found.end()
            return True
        return False

    def take(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail(expected)
        self.at = found.end()
        return found

    def items(self, one: Callable[[], T], end: str) -> Iterator[T]:
        """Parses comma-separated items up to `end`."""
        if self.accept(end):
            return
        while True:
            yield one()
            if self.accept(end):
                return
            if not self.accept(","):
                self.fail(f"',' or {end!r}")

    # values

    def string(self) -> str:
        body = self.take(STRING, "a string in double quotes")[1]
        try:
            return unescaped(body)
        except (ValueError, OverflowError) as error:
            raise ParseError(
                f"line {self.number}: expected a string with known escapes, got {body!r}: {error}"
            ) from None

    def name(self, what: str) -> str:
        return self.string() if self.sees('"') else self.take(NAME, what)[0]

    def symbol_name(self) -> str:
        found = self.take(SYMBOL, "a symbol's name")
        try:
            return found[1] or unescaped(found[2])
        except (ValueError, OverflowError) as error:
            raise ParseError(
                f"line {self.number}: expected a name with known escapes, got {found[2]!r}: {error}"
            ) from None

    def integer(self) -> int:
        return int(self.take(INT, "an integer")[0])

    def dim(self) -> Dim:
        """Parses an extent: everything up to a comma or bracket of the enclosing list."""
        self.skip()
        start, depth, source = self.at, 0, ""
        names: dict[str, Dim] = {}
        while self.at < len(self.text):
            ch = self.text[self.at]
            if ch == "`":
                quoted = self.symbol_name()
                names[f"?{len(names)}"] = self.known(quoted)
                source += f"?{len(names) - 1}"
                continue
            if (ch in ",])}#>" and not depth) or (ch == ")" and not depth):
                break
            depth += (ch == "(") - (ch == ")")
            source += ch
            self.at += 1
        source = source.strip()
        if INT.fullmatch(source):
            return int(source)
        if not source:
            self.fail("an extent")
        for word in WORD.findall(source):
            if not word.isdigit() and word not in FUNCTIONS and word not in names:
                names[word] = self.known(word)
        try:
            return parse_dim(source, names)
        except MgxError:
            self.at = start
            self.fail("an extent")

    def known(self, name: str) -> Dim:
        if name not in self.symbols:
            declared = ", ".join(map(repr, self.symbols)) or "none"
            raise ParseError(f"line {self.number}: expected a symbol that is declared ({declared}), got {name!r}")
        return self.symbols[name]

    def dtype(self) -> dt.DType:
        start = self.at
        word = self.take(DTYPE, "an element type")[0]
        if word not in DTYPES:
            self.at = start
            self.fail("an element type")
        return DTYPES[word]

    def shape(self) -> AnyShape:
        if self.accept("("):
            return TupleShape(list(self.items(self.shape, ")")))
        for word, make in (("sequence<", SequenceShape), ("optional<", OptionalShape)):
            if self.accept(word):
                element = self.shape()
                self.expect(">")
                return make(element)
        dtype = self.dtype()
        self.expect("[")
        if self.accept("*"):
            self.expect("]")
            return Shape.unranked(dtype)
        dims = list(self.items(self.dim, "]"))
        strides = list(self.items(self.integer, "}")) if self.accept("{") else None
        try:
            return Shape(dtype, dims, strides)
        except MgxError as error:
            raise ParseError(f"line {self.number}: {error}") from None

    def attribute(self, annotation: str) -> Any:
        """Parses an attribute value of the annotated type."""
        if annotation.endswith(" | None"):
            if self.accept_word("none"):
                return None
            annotation = annotation.removesuffix(" | None")
        if annotation.startswith("tuple["):
            inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
            self.expect("[")
            return tuple(self.items(lambda: self.attribute(inner), "]"))
        match annotation:
            case "int":
                return self.integer()
            case "float":
                return float(self.take(FLOAT, "a number")[0])
            case "bool":
                return self.take(BOOL, "true or false")[0] == "true"
            case "str":
                return self.string()
            case "bytes":
                return bytes.fromhex(self.take(BYTES, 'bytes as b"0123"')[1])
            case "Dim":
                return self.dim()
            case "DType":
                return self.dtype()
            case "Shape" | "AnyShape":
                return self.shape()
        return self.string() if self.sees('"') else self.integer()  # a Literal

    def value(self, shape: AnyShape | None) -> Value:
        """Parses the elements in the parentheses of a literal of this shape (None: of a nested item, which states its own)."""
        for word, kind in (("tuple", tuple), ("list", list)):
            if self.accept(word):
                self.expect("{")
                return kind(self.items(lambda: self.value(None), "}"))
        if self.accept_word("none"):
            return None
        if shape is None:
            own = self.shape()
            self.expect("(")
            value = self.value(own)
            self.expect(")")
            return value
        if self.sees("<"):
            self.fail("a literal's elements (text(full=True) writes them out)")
        if not isinstance(shape, Shape) or shape.dynamic():
            self.fail(f"a value of shape {shape}")
        count = shape.elements()
        start = self.at
        array = None
        if self.accept("base64"):
            array = array_from_base64(self.string(), shape.dtype, count)
        else:
            words = words_of(self.take(ELEMENTS, "elements")[0])
            if len(words) == count:
                array = array_from_words(words, shape.dtype)
        if array is None:
            self.at = start
            self.fail(f"{count} elements of {shape.dtype}")
        return array.reshape(shape.lens())

    def sources(self) -> tuple[str, ...]:
        """Parses the comment at the end of a line: the names of source nodes."""
        self.skip()
        if self.at == len(self.text):
            return ()
        self.expect("#")
        names = []
        while True:
            if self.sees('"'):
                names.append(self.string())
            else:
                names += filter(None, [self.take(BARE, "a name")[0].strip()])
            self.skip()
            if self.at == len(self.text):
                return tuple(names)
            self.expect(",")

    def closing(self) -> int:
        """Returns the position of the matching closing parenthesis."""
        depth, at = 0, self.at
        while at < len(self.text):
            ch = self.text[at]
            string = STRING.match(self.text, at) if ch == '"' else None
            at = at + 1 if string is None else string.end()
            depth += (ch == "(") - (ch == ")")
            if not depth and ch == ")":
                return at
        self.at = len(self.text)
        return self.fail("')'")
