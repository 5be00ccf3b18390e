"""The frontend's entry point: parses files and bytes into programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgx_core import Frontend, Program
from mgx_core.types.argument import Array

from .converter import Converters
from .messages import onnx
from .model import read_model, read_model_bytes
from .model_parser import all_converters, parse_proto
from .options import OnnxOptions

if TYPE_CHECKING:
    from mgx_core import Instruction, UnrankedError

    from .node import Node
    from .parser import GraphParser

__all__ = ["OnnxFrontend", "parse_model"]


class OnnxFrontend(Frontend):
    """Parses ONNX models into programs."""

    converter_type = Converters
    options = OnnxOptions

    def parse(self, path: str | os.PathLike[str], **options: Any) -> Program:
        """Parses a file; external data is read from its folder only.

        Errors: ParseError for corrupt or malformed files, UnsupportedError for operators without a converter, ParameterError for
        invalid options.
        """
        record = OnnxOptions.of(**options)
        model = read_model(path)
        folder = record.external_data_path or Path(path).resolve().parent
        linked = None if record.external_data_path else Path(path).absolute().parent
        program = parse_model(model.proto, record, folder, weights=model.weights, linked=linked)
        program.files = (Path(path), *program.files)
        if record.external_data_path:  # a relative folder may differ between processes
            program.beside = {}
        return program

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Parses a serialized model; external data needs the option `external_data_path`."""
        record = OnnxOptions.of(**options)
        return parse_model(read_model_bytes(data), record, record.external_data_path or None)

    def operators(self) -> list[str]:
        """Returns the sorted names of all operators with a converter or a standard function body."""
        names = {name for _, name in all_converters().names()}
        schemas: Iterable[Any] = onnx.defs.get_all_schemas()  # onnx's stubs lack their function bodies
        names |= {s.name for s in schemas if s.has_function or s.has_context_dependent_function}
        return sorted(names)

    def export(self, program: Program, path: str | os.PathLike[str]) -> None:
        """Writes a program of any stage as an ONNX model for viewers such as Netron (it cannot be run; see `export`)."""
        from .export import write_model

        write_model(program, path)


def parse_model(
    model: onnx.ModelProto,
    options: OnnxOptions,
    folder: str | os.PathLike[str] | None = None,
    weights: Mapping[int, Array] | None = None,
    linked: str | os.PathLike[str] | None = None,
) -> Program:
    """Parses a model in memory; nodes whose ranks are known only at run time are deferred.

    weights: raw data of initializers by position, if it is not in the model itself; linked: see `DataFolder`.
    """
    return parse_proto(model, options, folder, _defer, weights, linked)


def _defer(parser: GraphParser, node: Node, error: UnrankedError) -> Sequence[Instruction]:
    from .deferred import defer  # the ranks of most models are known

    return defer(parser, node, error)
