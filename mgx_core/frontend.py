"""The interface of a frontend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from .errors import PluginError, UnsupportedError
from .program import Program

__all__ = ["Frontend", "checked_frontend"]


class Frontend:
    """Makes programs of models in one format.

    Required: `parse_buffer`, or `parse` for a format that cannot be read from bytes.
    """

    converter_type: type | None = None
    """The type of the objects that packages give it through the hook `converters`.  Default: None, any."""

    options: ClassVar[type[Any] | None] = None
    """A dataclass whose fields are the options of `parse` and `parse_buffer`: the core refuses others with near names and
    values of other types than the annotations say, and fixes extents itself where the class has no such field.  Default: None,
    their signatures say what they take."""

    def parse(self, path: str | os.PathLike[str], **options: Any) -> Program:
        """Returns the program of a file.  Default: `parse_buffer` of its bytes.

        Errors: ParseError for a damaged file, UnsupportedError for what cannot be expressed, ParameterError for bad options.
        """
        return self.parse_buffer(Path(path).read_bytes(), **options)

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Returns the program of a file's bytes.  Errors: as `parse`."""
        raise UnsupportedError(f"{type(self).__name__} reads no models from bytes; give it a file")

    def operators(self) -> list[str]:
        """Returns the names of the format's operators that can be parsed, sorted.  Default: none are listed."""
        return []

    def export(self, program: Program, path: str | os.PathLike[str]) -> None:
        """Writes a program of any stage as a model for viewers of this format.

        Errors: UnsupportedError if it cannot, which is the default.
        """
        raise UnsupportedError(f"{type(self).__name__} writes no models")


def checked_frontend(found: object, whose: str) -> Frontend:
    """Returns the object, which must be a frontend.  whose: the plugin that brings it.  Errors: PluginError."""
    if not isinstance(found, Frontend):
        raise PluginError(
            f"frontend of {whose} must be an instance of a class derived from mgx_core.Frontend, got {found!r}"
        )
    return found
