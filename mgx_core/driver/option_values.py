"""Parses option values: ``@name 1 3``, JSON with unquoted keys, ranges."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

import click

from .group import SEPARATOR

__all__ = ["Limit", "assigned", "by_name", "json_value", "split"]


class Limit(click.FloatRange):
    """A number that results are compared with; NaN, to which every comparison is false, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail("NaN is not a limit.", param, ctx)
        return number


def split(given: Iterable[str]) -> list[str]:
    """Returns the tokens of all uses of a many-valued option, in order."""
    return [word for token in given for word in token.split(SEPARATOR) if word]


def by_name(given: Iterable[str], option: str) -> dict[str, list[str]]:
    """Groups tokens by the preceding ``@name``."""
    groups: dict[str, list[str]] = {}
    at: list[str] | None = None
    for word in split(given):
        if word.startswith("@"):
            if word[1:] in groups:
                raise click.UsageError(f"{option}: {word} is given twice")
            at = groups[word[1:]] = []
        elif at is None:
            raise click.UsageError(f"{option} takes @name and then its values, got {word!r} first")
        else:
            at.append(word)
    for name, words in groups.items():
        if not words:
            raise click.UsageError(f"{option}: @{name} has no value")
    return groups


def assigned(given: Iterable[str], option: str) -> dict[str, Any]:
    """Returns values of ``NAME=VALUE`` by name: JSON where they are, else text."""
    found: dict[str, Any] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} takes NAME=VALUE, got {word!r}")
        if name in found:
            raise click.UsageError(f"{option}: {name} is given twice")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def json_value(text: str, option: str) -> Any:
    """JSON, with keys quoted or not: ``[{min:1, max:8, optimals:[1, 4]}, 3]``."""
    quoted = re.sub(r"([{,]\s*)([A-Za-z_]\w*)\s*:", r'\1"\2":', text)
    try:
        return json.loads(quoted)
    except ValueError:
        raise click.UsageError(f"{option}: {text!r} is neither a number nor JSON") from None
