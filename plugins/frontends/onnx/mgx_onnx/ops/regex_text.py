"""The lexer of regular expressions in RE2's syntax: characters, escapes, sets and repetition counts."""

from __future__ import annotations

import sys
import unicodedata
from typing import Final

from mgx_core.errors import ParameterError

from .automaton import Test
from .character_sets import CATEGORIES, CLASSES, PERL, negated, ranges, variants

__all__ = ["PatternText"]

MAX_REPEAT: Final = 1000  # RE2's limit
CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class PatternText:
    """A pattern and the current position in it; flags: the active flags, as in ``(?i)``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags: frozenset[str] = frozenset()

    def fail(self, why: str) -> ParameterError:
        return ParameterError(f"regular expression {self.text!r}, character {self.at}: {why}")

    def peek(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def take(self, word: str) -> bool:
        if self.peek(word):
            self.at += len(word)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.fail("ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def until(self, word: str) -> str:
        end = self.text.find(word, self.at)
        if end < 0:
            raise self.fail(f"{word!r} is missing")
        found = self.text[self.at : end]
        self.at = end + len(word)
        return found

    def counts(self) -> tuple[int, int | None, bool] | None:
        """Returns the bounds of a repetition and whether it is lazy; None if no repetition follows."""
        found: tuple[int, int | None] | None = None
        if self.take("*"):
            found = 0, None
        elif self.take("+"):
            found = 1, None
        elif self.take("?"):
            found = 0, 1
        elif self.peek("{"):
            end = self.text.find("}", self.at)
            low, comma, high = self.text[self.at + 1 : end].partition(",")
            if end > 0 and _digits(low) and (_digits(high) or not high):
                self.at = end + 1
                if max(len(low), len(high)) > 4 or max(int(low), int(high or 0)) > MAX_REPEAT:
                    raise self.fail(f"a repetition exceeds {MAX_REPEAT}")
                found = int(low), (int(high) if high else None) if comma else int(low)
                if found[1] is not None and found[1] < found[0]:
                    raise self.fail("a repetition's bounds are swapped")
        if found is None:
            return None
        return (*found, self.take("?") != ("U" in self.flags))

    def class_escape(self, c: str) -> Test | None:
        """Returns the test of a class escape such as ``\\d``; None for other escapes."""
        if c.lower() in PERL:
            return negated(ranges(PERL[c.lower()]), c.isupper())
        if c in "pP":
            word = self.until("}") if self.take("{") else self.next()
            invert = word.startswith("^")
            word = word.removeprefix("^")
            if word == "Any":
                return negated(lambda c: True, invert != (c == "P"))
            if word not in CATEGORIES:
                raise self.fail(f"\\{c}{{{word}}} is not supported; supported are general categories and Any")
            return negated(lambda c: unicodedata.category(c).startswith(word), invert != (c == "P"))
        return None

    def character(self, c: str) -> str:
        """Returns the character of an escape; `c` is the character after the backslash."""
        if c in CONTROL:
            return CONTROL[c]
        if c == "x":
            digits = self.until("}") if self.take("{") else self.next() + self.next()
            try:
                value = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                value = -1
            if not 0 <= value <= sys.maxunicode:
                raise self.fail(f"\\x{digits} is not a character")
            return chr(value)
        if c in "01234567":
            if c != "0" and (self.text[self.at : self.at + 1] or "x") not in "01234567":
                raise self.fail("back references are not supported")
            digits = c
            while len(digits) < 3 and (self.text[self.at : self.at + 1] or "x") in "01234567":
                digits += self.next()
            return chr(int(digits, 8))
        if c.isascii() and c.isalnum():
            raise self.fail(f"\\{c} has no meaning")
        return c

    def brackets(self) -> Test:
        """Returns the test of a bracket expression whose opening bracket was consumed."""
        invert = self.take("^")
        tests: list[Test] = []
        first = True
        while first or not self.peek("]"):
            first = False
            if self.take("[:"):
                name = self.until(":]")
                members = CLASSES.get(name.removeprefix("^"))
                if members is None:
                    raise self.fail(f"[:{name}:] is not a class of characters")
                tests.append(negated(ranges(members), name.startswith("^")))
                continue
            low = self.next()
            if low == "\\":
                escaped = self.next()
                test = self.class_escape(escaped)
                if test is not None:
                    tests.append(test)
                    continue
                low = self.character(escaped)
            high = low
            if self.peek("-") and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.next()
                if high == "\\":
                    high = self.character(self.next())
                if high < low:
                    raise self.fail(f"the range {low}-{high} is empty")
            tests.append(self.span(low, high))
        self.take("]")
        return negated(lambda c: any(t(c) for t in tests), invert)

    def literal(self, wanted: str) -> Test:
        return self.span(wanted, wanted)

    def span(self, low: str, high: str) -> Test:
        if "i" in self.flags:
            return lambda c: any(low <= v <= high for v in variants(c))
        return lambda c: low <= c <= high


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
