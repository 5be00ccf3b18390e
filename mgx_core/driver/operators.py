"""Operators that an installed frontend reads, printed."""

from __future__ import annotations

import difflib

from ..errors import UnsupportedError
from .report import Report

__all__ = ["print_operators"]


def print_operators(title: str, names: list[str], name: str | None, as_json: bool) -> None:
    """Prints all names, or one.  Errors: UnsupportedError if it is none of them."""
    report = Report(as_json)
    if name is not None and name not in names:
        close = difflib.get_close_matches(name, names, 1)
        raise UnsupportedError(
            f"{title} operator {name!r} cannot be read" + (f"; did you mean {close[0]!r}?" if close else "")
        )
    shown = names if name is None else [name]
    report.document(shown)
    for one in shown:
        report.say(one)
