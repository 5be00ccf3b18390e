"""Regular expressions in RE2's syntax, matched by Python's `re`; patterns that may take exponential time are rejected."""

from __future__ import annotations

import re

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.strings import decoded, encoded

from .text import each, strings

__all__: list[str] = []

LONGEST = 1 << 16  # limit of a pattern's characters
SPAN = 8  # ways that an unbounded repeat counts as
MOST_REPEATS = 64  # limit of counted repetitions: with two ways each, they exceed MOST_WAYS by far
MOST_WAYS = 1 << 17  # five unbounded repeats and two optional parts, or 17 optional parts


def pattern_of(text: str) -> re.Pattern[bytes]:
    """Compiles an RE2 pattern with `re`.

    Errors: ParameterError for a malformed pattern, or one with more than MOST_WAYS ways of matching.  Ways of alternatives are
    added, those of a sequence are multiplied; an unbounded repeat counts as SPAN, `{m,n}` as its number of possible counts (at
    most SPAN), an optional part as 2.
    """
    if len(text) > LONGEST:
        raise ParameterError(f"a pattern of {len(text)} characters is longer than {LONGEST}")
    spelled = text.replace("\\pP", r"[!-#%-*,-/:;?@\[-\]_{}]").replace("\\pL", "[A-Za-z]").replace("\\pN", "[0-9]")
    spelled = spelled.replace("\\C", ".").replace("\\z", "\\Z")
    for name, members in CLASSES.items():
        spelled = spelled.replace(f"[:{name}:]", members)
    try:
        made = re.compile(encoded(spelled))
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ParameterError(f"pattern {text!r} is malformed: {error}") from None
    if any(_FOREIGN.match(token[0]) for token in _TOKEN.finditer(spelled)):
        raise ParameterError(f"pattern {text!r} is malformed: RE2 has neither comments nor the flag x")
    if _ways(spelled) > MOST_WAYS:
        raise ParameterError(
            f"pattern {text!r} has more than {MOST_WAYS} ways of matching, which may take exponential time: at most five repeats "
            "without end, or 17 optional parts, may follow one another, and none may be repeated often itself"
        )
    return made


_FLAGS = r"\(\?[a-zA-Z]+\)"
_OPEN = r"\((?:\?(?:P<\w+>|[a-zA-Z-]*:|<?[=!]|#))?"
_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_REPEAT = r"([*+?]|\{\d+\}|\{\d*,\d*\})[?+]?"
_TOKEN = re.compile(rf"\\.|{_CLASS}|{_FLAGS}|{_OPEN}|\)|\||{_REPEAT}|.", re.DOTALL)
_FOREIGN = re.compile(r"\(\?(?:#|[a-zA-Z-]*x)")  # comments and verbose mode, which RE2 lacks and _ways would miscount


def _ways(text: str) -> int:
    """Returns an upper bound of the number of ways in which a well-formed pattern matches; see `pattern_of`."""
    # for each group: ways of the previous alternatives, of this one without its last part, and of its last part
    open_groups = [[0, 1, 1]]
    for token in _TOKEN.finditer(text):
        what, group = token[0], open_groups[-1]
        if token[1]:
            group[2] = _repeated(group[2], token[1])
        elif what == "|":
            group[:] = [group[0] + group[1] * group[2], 1, 1]
        elif what == ")" and len(open_groups) > 1:
            branches, before, last = open_groups.pop()
            open_groups[-1][2] = min(branches + before * last, MOST_WAYS + 1)
        else:
            group[1:] = [min(group[1] * group[2], MOST_WAYS + 1), 1]
            if what.startswith("(") and not what.endswith(")"):
                open_groups.append([0, 1, 1])
    branches, before, last = open_groups[0]
    return branches + before * last


def _repeated(ways: int, repeat: str) -> int:
    """Returns the number of ways of a repeated part, at most MOST_WAYS + 1."""
    low, comma, high = {"*": "0,", "+": "1,", "?": "0,1"}.get(repeat, repeat.strip("{}")).partition(",")
    least = int(low or 0)
    most = int(high) if high else least + (SPAN + MOST_REPEATS if comma else 0)
    repeated: int = min(most - least + 1, SPAN) * ways ** min(most, MOST_REPEATS)
    return min(repeated, MOST_WAYS + 1)


CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\t\n\v\f\r ",
    "punct": r"!-/:-@\[-`{-~", "blank": r"\t ", "xdigit": "0-9A-Fa-f", "word": r"0-9A-Za-z_", "cntrl": r"\x00-\x1f\x7f",
    "print": " -~", "graph": "!-~",
}  # fmt: skip


@op("tf_regex_replace", exact=True)
class RegexReplace(Operation):
    """Strings with the first match of a pattern, or all matches, replaced.

    x: string [..] -> string [..]; pattern: RE2 syntax; ``\\1`` in `rewrite` refers to a group.
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
    """True where a pattern in RE2 syntax matches a whole string.

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
