"""The frontend's entry point: parses files and bytes into programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mgx_core import Frontend, Program
from mgx_core.converting.converters import Converters

from .model import read_bytes, read_model
from .options import TfOptions
from .parser import all_converters, parse_model

__all__ = ["TfFrontend"]


class TfFrontend(Frontend):
    """Parses frozen graphs and SavedModels into programs."""

    options = TfOptions
    converter_type = Converters

    def parse(self, path: str | os.PathLike[str], **options: Any) -> Program:
        """Parses a frozen graph file or a SavedModel folder; options: see `TfOptions`.

        Errors: ParseError for corrupt or malformed files, UnsupportedError for operators without a converter, ParameterError for
        invalid options.
        """
        record = TfOptions.of(**options)
        model = read_model(path, record.tags)
        program = parse_model(model, record)
        program.files = (Path(path),) if model.folder is None else ()  # a SavedModel is a folder of several files
        return program

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Parses a serialized frozen graph."""
        return parse_model(read_bytes(data), TfOptions.of(**options))

    def operators(self) -> list[str]:
        """Returns the sorted names of all operators with a converter."""
        return sorted({name for table in all_converters() for _, name in table.names()})
