"""Compiles regular expressions in RE2's syntax to automata that match in time linear in the text.

The automaton's size is bounded at compile time, so no pattern in a model file can cause slow matches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from .automaton import Automaton, Test
from .regex_text import PatternText

__all__ = ["compile_pattern"]

MAX_DEPTH: Final = 100

Fragment: TypeAlias = "tuple[int, int]"  # first and last state


class _Reader(PatternText):
    """Recursive-descent parser; each subexpression becomes a contiguous range of states, which repetition copies."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.pattern = Automaton()

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
                    raise self.fail("a group's name must consist of letters, digits and underscores")
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

    def consume(self, test: Test) -> Fragment:
        first, last = self.pattern.state(), self.pattern.state()
        self.pattern.tests[first] = (test, last)
        return first, last

    def anchor(self, name: str) -> Fragment:
        first, last = self.pattern.state(), self.pattern.state()
        self.pattern.link(first, last, name)
        return first, last


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> Automaton:
    """Returns the automaton of a pattern.

    Errors: ParameterError if it is malformed, too large or uses what RE2 does not have.
    """
    reader = _Reader(text)
    accept = reader.pattern.state()
    first, last = reader.alternatives()
    if reader.at < len(text):
        raise reader.fail("')' without '('")
    reader.pattern.link(last, accept)
    reader.pattern.start = first
    return reader.pattern
