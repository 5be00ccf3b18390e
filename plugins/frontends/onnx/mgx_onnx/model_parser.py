"""Parses in-memory models into programs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mgx_core import DeviceError, MgxError, Module, ParseError, Program
from mgx_core.converting.joined import with_plugins
from mgx_core.extents import check_symbols
from mgx_core.ir.graph import Graph
from mgx_core.types.argument import Array

from .channel_blocks import block_of
from .converter import STANDARD, Converters
from .functions import expanded_nodes
from .messages import onnx
from .model import functions_of, opsets_of
from .model_context import Defer, ModelContext
from .options import OnnxOptions
from .parser import GraphParser
from .tensors import DataFolder

__all__ = ["all_converters", "parse_proto"]


def all_converters() -> Converters:
    """Returns this package's converters and those of installed plugins."""
    return with_plugins(STANDARD, "onnx")


def parse_proto(
    model: onnx.ModelProto,
    options: OnnxOptions,
    folder: str | os.PathLike[str] | None = None,
    defer: Defer | None = None,
    weights: Mapping[int, Array] | None = None,
    linked: str | os.PathLike[str] | None = None,
) -> Program:
    """Parses a model in memory.

    weights: raw data of initializers by position, if it is not in the model itself; defer: defers a node whose ranks are not
    known yet (None: it raises UnrankedError); linked: see `DataFolder`.
    """
    graph = model.graph
    options.check_inputs([i.name for i in graph.input])
    if options.dim_params:
        infos = (*graph.input, *graph.output, *graph.value_info)
        check_symbols(options.dim_params, {d.dim_param for i in infos for d in i.type.tensor_type.shape.dim} - {""})
    main = Module("main")
    context = ModelContext(opsets_of(model), functions_of(model), options, all_converters(), DataFolder(folder, linked))
    context.names["main"] = 1
    context.defer = defer
    context.channel_block = options.channel_block or block_of(graph)
    try:
        there = expanded_nodes(model.graph.node, context.functions, options.limit_nodes, options.limit_depth)
        context.budget = min(options.limit_nodes, 100_000 + 16 * there)  # loop bodies are parsed more than once
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
    program = Program(Graph(main), [o.name for o in model.graph.output])
    program.files = context.folder.files
    program.beside = context.folder.identities
    return program
