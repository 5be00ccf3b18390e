"""The interface of a frontend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from .errors import PluginError, UnsupportedError
from .program import Program

__all__ = ["Frontend", "checked_frontend"]


class Frontend:
    """Parses models of one format into programs.

    Required: `parse_buffer`, or `parse` for a format that cannot be read from bytes.
    """

    converter_type: type | None = None
    """The type of objects that plugins add through the hook `converters`.  Default: None, any."""

    options: ClassVar[type[Any] | None] = None
    """A dataclass whose fields are the options of `parse` and `parse_buffer`: the core rejects unknown names and values of other
    types than annotated, and fixes extents itself if the class has no field for them.  Default: None; the signatures of the two
    functions define the options."""

    def parse(self, path: str | os.PathLike[str], **options: Any) -> Program:
        """Parses a file.  Default: `parse_buffer` on its contents.

        Errors: ParseError for a corrupt file, UnsupportedError for unsupported features, ParameterError for invalid options.
        """
        return self.parse_buffer(Path(path).read_bytes(), **options)

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Parses the contents of a file.  Errors: as `parse`."""
        raise UnsupportedError(f"{type(self).__name__} cannot parse bytes; pass the path of a file")

    def operators(self) -> list[str]:
        """Returns the sorted names of the supported operators.  Default: none."""
        return []

    def export(self, program: Program, path: str | os.PathLike[str]) -> None:
        """Exports a program of any stage for viewers of this format.

        Errors: UnsupportedError if that is not supported (the default).
        """
        raise UnsupportedError(f"{type(self).__name__} cannot export models")


def checked_frontend(found: object, whose: str) -> Frontend:
    """Checks that an object is a frontend.  whose: the plugin's title.  Errors: PluginError."""
    if not isinstance(found, Frontend):
        raise PluginError(
            f"frontend of {whose} must be an instance of a class derived from mgx_core.Frontend, got {found!r}"
        )
    return found
