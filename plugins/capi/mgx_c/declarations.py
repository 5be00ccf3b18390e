"""Parses the declarations of a C header into records: functions with the types and names of their parameters.

Used before anything is installed, to generate the library's sources: it imports the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Function", "Parameter", "functions", "types"]


@dataclass(frozen=True)
class Parameter:
    """A parameter: its C type and name; `...` has the type "..." and no name."""

    type: str
    name: str


@dataclass(frozen=True)
class Function:
    """An exported function that returns a status."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def arguments(self) -> str:
        """The parameter list in C."""
        return ", ".join(f"{p.type} {p.name}".strip() for p in self.parameters) or "void"


_FUNCTION = re.compile(r"MIGRAPHX_C_EXPORT\s+migraphx_status\s+(\w+)\(([^)]*)\);")


def _parameter(text: str) -> Parameter:
    words = " ".join(text.split())
    if words == "...":
        return Parameter(words, "")
    kind, _, name = words.rpartition(" ")
    return Parameter(kind, name)


def functions(header: str) -> tuple[Function, ...]:
    """Returns the functions that a header exports, in order."""
    found = _FUNCTION.findall(header)
    return tuple(Function(name, tuple(_parameter(p) for p in arguments.split(","))) for name, arguments in found)


def types(header: str) -> str:
    """Returns a header's type definitions in plain C, without comments, preprocessor lines and functions."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"#(?:[^\n]*\\\n)*[^\n]*", "", text)
    text = re.sub(r'extern "C" \{|^\}$', "", text, flags=re.M)
    return re.sub(r"MIGRAPHX_C_EXPORT[^;]*;", "", text)
