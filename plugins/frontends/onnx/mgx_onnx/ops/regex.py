"""Regular expressions in RE2's syntax, matched in time linear in the text.

A pattern becomes an automaton, whose size is bounded when it is compiled, so no pattern from a model file can make a match slow.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache
from typing import Final, TypeAlias

from mgx_core.errors import ParameterError

from .automaton import Automaton, Test
from .character_sets import CATEGORIES, CLASSES, PERL, negated, ranges, variants

__all__ = ["compile_pattern"]

MAX_REPEAT: Final = 1000  # RE2's own bound
MAX_DEPTH: Final = 100

CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
Fragment: TypeAlias = "tuple[int, int]"  # first and last state


class _Reader:
    """Recursive descent over the pattern's text; each part becomes a run of states, which repetition copies."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.flags: frozenset[str] = frozenset()
        self.pattern = Automaton()

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

    # grammar

    def alternatives(self) -> Fragment:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(f"groups are nested more than {MAX_DEPTH} deep")
        flags = self.flags
        branches = [self.sequence()]
        while self.take("|"):
            branches.append(self.sequence())
        self.flags = flags
        self.depth -= 1
        if len(branches) == 1:
            return branches[0]
        first, last = self.pattern.state(), self.pattern.state()
        for a, b in branches:
            self.pattern.link(first, a)
            self.pattern.link(b, last)
        return first, last

    def sequence(self) -> Fragment:
        first = last = self.pattern.state()
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            a, b = self.repeated()
            self.pattern.link(last, a)
            last = b
        return first, last

    def repeated(self) -> Fragment:
        build = self.pattern
        begin = len(build.tests)
        part = self.atom()
        count = self.counts()
        if count is None:
            return part
        if self.counts() is not None:
            raise self.fail("a repetition is repeated")
        end, used = len(build.tests), False

        def again() -> Fragment:
            nonlocal used
            if not used:
                used = True
                return part
            shift = build.copy(begin, end)
            return part[0] + shift, part[1] + shift

        low, high, lazy = count
        loops = [again() for _ in range(low + 1 if high is None else high)]
        first = last = build.state()
        out = build.state()
        for i, (a, b) in enumerate(loops):
            if i >= low and lazy:
                build.link(last, out)
            build.link(last, a)
            if i >= low and not lazy:
                build.link(last, out)
            last = b
        ends = [out] if high is not None else [out, loops[-1][0]] if lazy else [loops[-1][0], out]
        for target in ends:
            build.link(last, target)
        return first, out

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

    def atom(self) -> Fragment:
        c = self.next()
        multi = "m" in self.flags
        match c:
            case "(":
                return self.group()
            case "[":
                return self.consume(self.brackets())
            case ".":
                return self.consume((lambda c: True) if "s" in self.flags else (lambda c: c != "\n"))
            case "^":
                return self.anchor("line begin" if multi else "begin")
            case "$":
                return self.anchor("line end" if multi else "end")
            case "*" | "+" | "?":
                raise self.fail(f"nothing to repeat before {c!r}")
            case "\\":
                return self.escape()
        return self.consume(self.literal(c))

    def group(self) -> Fragment:
        if self.take("?"):
            if self.take("P<") or (not self.peek("<=") and not self.peek("<!") and self.take("<")):
                if not self.until(">").isidentifier():
                    raise self.fail("a group's name must be made of letters, digits and underscores")
            else:
                on, sign = set(self.flags), True
                while not (self.peek(":") or self.peek(")")):
                    c = self.next()
                    if c == "-" and sign:
                        sign = False
                    elif c in "imsU":
                        (on.add if sign else on.discard)(c)
                    else:
                        raise self.fail(f"'(?{c}' is not supported (no look-around, conditions or back references)")
                if self.take(")"):
                    self.flags = frozenset(on)  # until the end of the enclosing group
                    here = self.pattern.state()
                    return here, here
                self.take(":")
                outer, self.flags = self.flags, frozenset(on)
                inside = self.alternatives()
                self.flags = outer
                return self.close(inside)
        return self.close(self.alternatives())

    def close(self, inside: Fragment) -> Fragment:
        if not self.take(")"):
            raise self.fail("')' is missing")
        return inside

    def escape(self) -> Fragment:
        c = self.next()
        anchor = {"A": "begin", "z": "end", "b": "boundary", "B": "inside"}.get(c)
        if anchor:
            return self.anchor(anchor)
        if c == "Q":
            end = self.text.find("\\E", self.at)
            quoted = self.text[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.text)
            first = last = self.pattern.state()
            for letter in quoted:
                a, b = self.consume(self.literal(letter))
                self.pattern.link(last, a)
                last = b
            return first, last
        test = self.class_escape(c)
        return self.consume(test if test is not None else self.literal(self.character(c)))

    def class_escape(self, c: str) -> Test | None:
        if c.lower() in PERL:
            return negated(ranges(PERL[c.lower()]), c.isupper())
        if c in "pP":
            word = self.until("}") if self.take("{") else self.next()
            invert = word.startswith("^")
            word = word.removeprefix("^")
            if word == "Any":
                return negated(lambda c: True, invert != (c == "P"))
            if word not in CATEGORIES:
                raise self.fail(f"\\{c}{{{word}}} is not supported; known are general categories and Any")
            return negated(lambda c: unicodedata.category(c).startswith(word), invert != (c == "P"))
        return None

    def character(self, c: str) -> str:
        """The one character that an escape means; `c` is what follows the backslash."""
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

    # automaton

    def literal(self, wanted: str) -> Test:
        return self.span(wanted, wanted)

    def span(self, low: str, high: str) -> Test:
        if "i" in self.flags:
            return lambda c: any(low <= v <= high for v in variants(c))
        return lambda c: low <= c <= high

    def consume(self, test: Test) -> Fragment:
        first, last = self.pattern.state(), self.pattern.state()
        self.pattern.tests[first] = (test, last)
        return first, last

    def anchor(self, name: str) -> Fragment:
        first, last = self.pattern.state(), self.pattern.state()
        self.pattern.link(first, last, name)
        return first, last


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> Automaton:
    """The automaton of a pattern.  Errors: ParameterError if it is malformed, too large or uses what RE2 does not have."""
    reader = _Reader(text)
    accept = reader.pattern.state()
    first, last = reader.alternatives()
    if reader.at < len(text):
        raise reader.fail("')' without '('")
    reader.pattern.link(last, accept)
    reader.pattern.start = first
    return reader.pattern
