"""Strings that match patterns: RE2's syntax, on Python's matcher, without what may take exponential time."""

from __future__ import annotations

import re

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_core.ops.operation import Operation, op
from mgx_core.types.argument import Array

from .text import decoded, each, encoded, strings

__all__: list[str] = []

LONGEST = 1 << 16  # characters of a pattern
SAFE_REPEATS = 4  # times that a part may be repeated whose own length varies


def pattern_of(text: str) -> re.Pattern[bytes]:
    """A pattern of RE2 as Python's.  Errors: ParameterError for one that is malformed or may take exponential time."""
    if len(text) > LONGEST:
        raise ParameterError(f"a pattern of {len(text)} characters is longer than {LONGEST}")
    spelled = text.replace("\\pP", r"[!-#%-*,-/:;?@\[-\]_{}]").replace("\\pL", "[A-Za-z]").replace("\\pN", "[0-9]")
    spelled = spelled.replace("\\C", ".").replace("\\z", "\\Z").replace("(?P<", "(?P<")
    for name, members in CLASSES.items():
        spelled = spelled.replace(f"[:{name}:]", members)
    try:
        if _explodes(spelled):
            raise ParameterError(f"pattern {text!r} repeats what repeats or branches, which may take exponential time")
        return re.compile(encoded(spelled))
    except re.error as error:
        raise ParameterError(f"pattern {text!r} is malformed: {error}") from None


_CLASS = r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]"
_TOKEN = re.compile(rf"\\.|{_CLASS}|\((?:\?[^:=!)]*[:=!])?|\)|\||([*+?]|\{{\d*,?\d*\}})[?+]?|.", re.DOTALL)


def _explodes(text: str) -> bool:
    """True if a group that may be repeated often can match the same text in several ways: it repeats or branches itself."""
    varies = [False]  # of each open group: it has a branch or a part whose number of repetitions is open
    closed = False  # the group that has just been closed does
    for token in _TOKEN.finditer(text):
        what, repeat = token[0], token[1]
        if repeat:
            if closed and _often(repeat):
                return True
            varies[-1] = varies[-1] or not re.fullmatch(r"\{\d+\}", repeat)
            continue
        closed = False
        if what.startswith("("):
            varies.append(False)
        elif what == ")" and len(varies) > 1:
            closed = varies.pop()
            varies[-1] = varies[-1] or closed
        elif what == "|":
            varies[-1] = True
    return False


def _often(repeat: str) -> bool:
    numbers = re.fullmatch(r"\{(\d*)(,?)(\d*)\}", repeat)
    if numbers is None:
        return repeat != "?"
    most = numbers[3] if numbers[2] else numbers[1]
    return not most or int(most) > SAFE_REPEATS


CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\t\n\v\f\r ",
    "punct": r"!-/:-@\[-`{-~", "blank": r"\t ", "xdigit": "0-9A-Fa-f", "word": r"0-9A-Za-z_", "cntrl": r"\x00-\x1f\x7f",
    "print": " -~", "graph": "!-~",
}  # fmt: skip


@op("tf_regex_replace", exact=True)
class RegexReplace(Operation):
    """Strings with what matches a pattern rewritten: everywhere, or the first place.

    x: string [..] -> string [..]; pattern in RE2's syntax, ``\\\\1`` in `rewrite` stands for a group.
    Errors: ParameterError for a malformed pattern.  Source: TensorFlow StaticRegexReplace.
    """

    pattern: str
    rewrite: str
    everywhere: bool = True

    def infer(self, x: Shape) -> Shape:
        strings(x)
        pattern_of(self.pattern)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        found, by = pattern_of(self.pattern), self._rewriting
        return each(lambda w: decoded(found.sub(by, encoded(w), 0 if self.everywhere else 1)), x)

    def _rewriting(self, match: re.Match[bytes]) -> bytes:
        return re.sub(rb"\\(.)", lambda m: self._group(match, m.group(1)), encoded(self.rewrite))

    def _group(self, match: re.Match[bytes], word: bytes) -> bytes:
        if not word.isdigit():
            return word
        return match.group(int(word)) or b"" if int(word) <= len(match.groups()) else b""


@op("tf_regex_match", exact=True)
class RegexMatch(Operation):
    """True where a string as a whole matches a pattern in RE2's syntax.

    x: string [..] -> bool [..].  Errors: ParameterError for a malformed pattern.  Source: TensorFlow RegexFullMatch.
    """

    pattern: str

    def infer(self, x: Shape) -> Shape:
        strings(x)
        pattern_of(self.pattern)
        return x.with_dtype(dt.bool_)

    def compute(self, x: Array) -> Array:
        found = pattern_of(self.pattern)
        return each(lambda w: found.fullmatch(encoded(w)) is not None, x, bool)
