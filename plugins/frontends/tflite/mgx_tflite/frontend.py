"""The frontend's entry point: parses files and bytes into programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mgx_core import Frontend, Program
from mgx_core.converting.converters import Converters
from mgx_core.sources import unreadable
from mgx_core.types.mapped import map_file

from .model import read_model
from .options import TfliteOptions
from .parser import all_converters, parse_model

__all__ = ["TfliteFrontend"]


class TfliteFrontend(Frontend):
    """Parses TFLite models into programs."""

    options = TfliteOptions
    converter_type = Converters

    def parse(self, path: str | os.PathLike[str], **options: Any) -> Program:
        """Parses a memory-mapped file; constants are borrowed from it.

        Errors: ParseError for corrupt files, UnsupportedError for operators without a converter, ParameterError for invalid
        options.
        """
        record = TfliteOptions.of(**options)
        try:
            data = map_file(path).bytes
        except OSError as error:
            raise unreadable(path, error) from None
        program = parse_model(read_model(memoryview(data), record.limit_bytes), record)
        program.files = (Path(path),)
        return program

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Parses the bytes of a file."""
        record = TfliteOptions.of(**options)
        return parse_model(read_model(bytes(data), record.limit_bytes), record)

    def operators(self) -> list[str]:
        """Returns the sorted names of all operators with a converter."""
        return sorted(name for _, name in all_converters().names())
