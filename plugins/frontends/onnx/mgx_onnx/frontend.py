"""The frontend as mgx sees it: files and bytes in, programs out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mgx_core import DeviceError, Frontend, MgxError, Module, ParseError, Program
from mgx_core.plugins.manager import manager
from mgx_core.types.argument import Array

from .converter import Converters
from .functions import expanded_nodes
from .messages import onnx
from .model import functions_of, opsets_of, read_model, read_model_bytes
from .options import OnnxOptions
from .parser import GraphParser, ModelContext
from .tensors import DataFolder

__all__ = ["OnnxFrontend", "all_converters", "parse_model"]


class OnnxFrontend(Frontend):
    """Parses ONNX models into programs."""

    def parse(self, path: str | os.PathLike[str], **options: Any) -> Program:
        """A program from a file; external data is read from its folder only.

        Errors: ParseError for damaged or malformed files, UnsupportedError for operators that nothing converts, ParameterError
        for bad options.
        """
        record = OnnxOptions.of(**options)
        model = read_model(path)
        folder = record.external_data_path or Path(path).resolve().parent
        return parse_model(model.proto, record, folder, weights=model.weights)

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """A program from bytes; external data needs the option `external_data_path`."""
        record = OnnxOptions.of(**options)
        return parse_model(read_model_bytes(data), record, record.external_data_path or None)

    def operators(self) -> list[str]:
        """Names of all operators with a converter or a function body in the standard, sorted."""
        names = {name for _, name in all_converters().names()}
        schemas: Iterable[Any] = onnx.defs.get_all_schemas()  # onnx's stubs lack their function bodies
        names |= {s.name for s in schemas if s.has_function or s.has_context_dependent_function}
        return sorted(names)

    def export(self, program: Program, path: str | os.PathLike[str]) -> None:
        """Write a program of any stage as an ONNX model for viewers such as Netron (it cannot be run; see `export`)."""
        from .export import write_model

        write_model(program, path)


def all_converters() -> Converters:
    """Our converters and those of installed plugins."""
    from . import converters

    out = converters.STANDARD
    for more in manager().converters("onnx", Converters):
        out = out + more
    return out


def parse_model(
    model: onnx.ModelProto,
    options: OnnxOptions,
    folder: str | os.PathLike[str] | None = None,
    deferring: bool = True,
    weights: Mapping[int, Array] | None = None,
) -> Program:
    """A program from a model that is in memory.

    weights: raw data of initializers by position, where it is not in the model itself.

    deferring: put nodes off whose ranks are not known yet; without it they raise UnrankedError.
    """
    options.check_inputs([i.name for i in model.graph.input])
    main = Module("main")
    context = ModelContext(opsets_of(model), functions_of(model), options, all_converters(), DataFolder(folder))
    context.names["main"] = 1
    context.deferring = deferring
    try:
        there = expanded_nodes(model.graph.node, context.functions, options.limit_nodes, options.limit_depth)
        context.budget = min(options.limit_nodes, 100_000 + 16 * there)  # bodies of loops are parsed more than once
        outputs = GraphParser(context, main).parse_graph(model.graph, weights=weights or {})
    except RecursionError:
        raise ParseError("the model nests too deeply") from None
    except MemoryError as error:
        raise DeviceError(f"not enough memory while parsing: {error}") from None
    except MgxError:
        if options.print_program_on_error:
            print(main)
        raise
    main.add_return(outputs)
    main.sweep()
    from mgx_core.ir.graph import Graph

    return Program(Graph(main), [o.name for o in model.graph.output])
