"""Character classes of regular expressions: POSIX, Perl and Unicode general categories."""

from __future__ import annotations

from typing import Final

from .automaton import Test

__all__ = ["CATEGORIES", "CLASSES", "PERL", "negated", "ranges", "variants"]

CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\x00-\x7f", "blank": "\t ", "cntrl": "\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@[-`{-~", "space": "\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
PERL: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": "\t\n\f\r "}
GROUPS: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
CATEGORIES: Final = frozenset(group + kind for group, kinds in GROUPS.items() for kind in ("", *kinds))


def variants(c: str) -> set[str]:
    """Returns all case variants of a character."""
    return {c, *(v for v in (c.lower(), c.upper(), c.casefold(), c.upper().lower()) if len(v) == 1)}


def negated(test: Test, invert: bool) -> Test:
    """Returns a test, negated if `invert`."""
    return (lambda c: not test(c)) if invert else test


def ranges(members: str) -> Test:
    """Returns the test of a bracket-style set of characters and ranges (first-last)."""
    spans, i = [], 0
    while i < len(members):
        if members[i + 1 : i + 2] == "-" and i + 2 < len(members):
            spans.append((members[i], members[i + 2]))
            i += 3
        else:
            spans.append((members[i], members[i]))
            i += 1
    return lambda c: any(low <= c <= high for low, high in spans)
