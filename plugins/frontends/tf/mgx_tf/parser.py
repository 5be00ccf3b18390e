"""Parses in-memory models into programs: one signature of a SavedModel, or the outputs of a frozen graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mgx_core import (
    DeviceError,
    Instruction,
    MgxError,
    Module,
    ParameterError,
    ParseError,
    Program,
    Shape,
    UnsupportedError,
    op,
)
from mgx_core.converting.converters import Converters
from mgx_core.converting.joined import with_plugins
from mgx_core.errors import suggestion
from mgx_core.ir.graph import Graph as ProgramGraph
from mgx_core.types.dim import Dim, symbol

from .context import Context
from .converters import STANDARD, VALUES, load_all, load_for
from .effects import effects_of
from .graph import Graph, GraphNode, Port, tensor_port
from .model import Model, Signature
from .node import Node
from .options import TfOptions
from .resources import Resources
from .scope import MALFORMED, Scope
from .values import Complex, Ragged, TensorList, Value
from .wire.tensors import dims_of, dtype_of, has_dtype

__all__ = ["all_converters", "parse_model"]

INPUTS = ("Placeholder", "PlaceholderV2")
IGNORED = ("NoOp", "Assert", "Const", "Placeholder", "PlaceholderV2", "VarHandleOp")


def all_converters() -> tuple[Converters, Converters]:
    """Returns the converters of this package and of plugins: those for tensors, and those for values of any kind."""
    load_all()
    return _joined(), VALUES


def _joined() -> Converters:
    """Returns the converters for tensors: ours, imported on demand, and those of plugins."""
    return with_plugins(STANDARD, "tf")


CHANNELS_FIRST: Final = (0, 3, 1, 2)
CHANNELS_LAST: Final = (0, 2, 3, 1)


def parse_model(model: Model, options: TfOptions) -> Program:
    """Parses a model in memory.

    Errors: ParseError, UnsupportedError with the node's name; ParameterError for unknown names.
    """
    try:
        program, assigned = _program(model, options, frozenset())
        while (
            assigned
        ):  # assigned variables become states, whose reads and writes are ordered, so the model is parsed again
            program, assigned = _program(model, options, assigned)
        return program
    except MgxError:
        raise
    except RecursionError:
        raise ParseError("the model nests too deeply") from None
    except MemoryError as error:
        raise DeviceError(f"not enough memory while parsing: {error}") from None
    except MALFORMED as e:
        raise ParseError(f"malformed model: {type(e).__name__}: {e}") from e


def _program(model: Model, options: TfOptions, changing: frozenset[str]) -> tuple[Program, frozenset[str]]:
    """Returns the program, and the variables that are states: none if they were all in `changing`, else parse again with them."""
    main = Module("main")
    resources = Resources(model, main, changing)
    context = Context(main, options, model.functions, _joined(), VALUES, resources, load_for)
    context.names["main"] = 1
    scope = Scope(context, model.graph, main)
    if model.initial:
        _initialize(scope, model)
    if model.folder is not None:
        signature = model.signature(options.signature)
        names, ports = _declare_signature(scope, signature, options)
    else:
        if options.signature:
            raise ParameterError(f"a frozen graph has no signature, got signature={options.signature!r}")
        names, ports = _declare_graph(scope, model.graph, options)
    effects = context.effects(model.graph)
    before = _producers(model.graph, ports) if effects else set()
    kept = [n for n in effects if n in before]
    scope.wanted = [*ports, *map(Port, kept)]
    scope.require(kept)
    results, named = _result_tensors(scope, names, scope.all_values(ports))
    if options.channels_first:
        results = [_transposed(main, r, CHANNELS_FIRST) for r in results]
    if resources.assigned - changing:
        return Program(ProgramGraph(main), named), changing | resources.assigned
    states = resources.kept()
    main.add_return([*results, *(after for _, _, after in states)])
    main.sweep()
    labels = {made: label for label, made in main.parameters.items()}
    return Program(ProgramGraph(main), named, {labels[made]: start for made, start, _ in states}), frozenset()


def _producers(graph: Graph, ports: Sequence[Port]) -> set[str]:
    """Returns the names of all transitive producers of some ports."""
    seen: set[str] = set()
    stack = [p.node for p in ports]
    while stack:
        name = stack.pop()
        node = graph.nodes.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        stack += [p.node for p in node.inputs] + node.controls
    return seen


def _initialize(scope: Scope, model: Model) -> None:
    """Runs table initializers in a temporary module."""
    trial = Scope(scope.context, scope.graph, Module("initial"))
    node = model.graph.nodes.get(model.initial)
    if node is None:
        return
    wanted = effects_of(model.graph, model.functions)
    scope.context.initializing = True
    try:
        trial.require([n for n in (node.name, *node.controls) if n in wanted])
    except UnsupportedError as error:
        raise error.located("the table initialization") from None
    finally:
        scope.context.initializing = False
    scope.context.known = type(scope.context.known)()


def _declare_signature(scope: Scope, signature: Signature, options: TfOptions) -> tuple[list[str], list[Port]]:
    """Creates the parameters; returns the outputs' names and ports."""
    inputs = _tensors("inputs", signature.inputs)
    _check_inputs(options, list(inputs))
    for name, (tensor, code, dims) in inputs.items():
        port = tensor_port(tensor)
        node = scope.graph.node(port.node)
        scope.values[port.node] = (_parameter(scope, name, dtype_of(code), dims, options),)
        if node.op not in INPUTS:
            scope.values[port.node] = (scope.values[port.node][0],) * (port.place + 1)
    outputs = {label: part[0] for label, part in _tensors("outputs", signature.outputs).items()}
    chosen = list(options.output_names) or list(outputs)
    for name in chosen:
        if name not in outputs:
            raise ParameterError(f"signature {signature.name!r} has no output {name!r}; {suggestion(name, outputs)}")
    return chosen, [tensor_port(outputs[name]) for name in chosen]


def _tensors(what: str, given: Mapping[str, Any]) -> dict[str, tuple[str, int, list[int] | None]]:
    """Returns the tensors of inputs or outputs with types and extents, by name.  Errors: UnsupportedError for a name clash."""
    found: dict[str, tuple[str, int, list[int] | None]] = {}
    for name, info in given.items():
        for label, part in _parts(name, info).items():
            if label in found:
                raise UnsupportedError(
                    f"{what} of the signature: {label!r} names both a tensor and a component of another"
                )
            found[label] = part
    return found


def _parts(name: str, info: Any) -> dict[str, tuple[str, int, list[int] | None]]:
    """Returns the component tensors of an input or output, with types and extents, by name: `NAME`, or `NAME_0`, `NAME_1` ...

    Components of a sparse tensor are indices, values and extents; of a ragged one values and row splits.
    """
    match info.WhichOneof("encoding"):
        case "coo_sparse":
            rank = -1 if info.tensor_shape.unknown_rank else len(info.tensor_shape.dim)
            held, integer = info.coo_sparse, 9  # DT_INT64
            parts: list[tuple[str, int, list[int] | None]] = [
                (held.indices_tensor_name, integer, [-1, rank]),
                (held.values_tensor_name, info.dtype, [-1]),
                (held.dense_shape_tensor_name, integer, [rank]),
            ]
        case "composite_tensor":
            parts = [(c.name, c.dtype, dims_of(c.tensor_shape)) for c in info.composite_tensor.components]
        case _:
            return {name: (info.name, info.dtype, dims_of(info.tensor_shape))}
    return {f"{name}_{k}": part for k, part in enumerate(parts)}


def _declare_graph(scope: Scope, graph: Graph, options: TfOptions) -> tuple[list[str], list[Port]]:
    placeholders = [n for n in graph.nodes.values() if n.op in INPUTS]
    _check_inputs(options, [n.name for n in placeholders])
    chosen = list(options.output_names) or _sinks(graph)
    ports = [tensor_port(name) for name in chosen]
    for name, port in zip(chosen, ports, strict=True):
        if port.node not in graph.nodes:
            hint, last = suggestion(port.node, graph.nodes), ", ".join(map(repr, _sinks(graph)[-5:]))
            raise ParameterError(f"the graph has no node {name!r}; {hint}; nodes that no other one reads are {last}")
    needed = _producers(graph, ports)
    for node in placeholders:
        if node.name not in needed and node.name.startswith("unused_control_flow_input"):
            continue  # left behind by TensorFlow's lowering of loops
        dtype = node.attributes["dtype"].type if "dtype" in node.attributes else 1  # DT_FLOAT
        shape = node.attributes.get("shape")
        if not has_dtype(dtype):
            if node.name in needed:
                raise UnsupportedError(
                    f"input {node.name!r} is a resource or variant: frozen graphs do not contain tables and lists passed "
                    "as inputs; parse the SavedModel instead"
                )
            continue
        dims = None
        if shape is not None and shape.WhichOneof("value") == "shape":
            dims = dims_of(shape.shape)
        scope.values[node.name] = (_parameter(scope, node.name, dtype_of(dtype), dims, options),)
    return chosen, ports


def _sinks(graph: Graph) -> list[str]:
    """Returns the names of the nodes without data or control consumers, in order.

    Errors: ParseError if there is none.
    """
    used = {p.node for n in graph.nodes.values() for p in n.inputs} | {
        c for n in graph.nodes.values() for c in n.controls
    }
    found = [n.name for n in graph.nodes.values() if n.name not in used and n.op not in IGNORED]
    if not found:
        found = [n.name for n in graph.nodes.values() if n.name not in used and n.op not in ("NoOp", "Assert")]
    if not found:
        raise ParseError("the graph has no output: every node is read by another node")
    return found


def _check_inputs(options: TfOptions, names: list[str]) -> None:
    for name in options.map_input_dims:
        if name not in names:
            raise ParameterError(f"map_input_dims: there is no input {name!r}; {suggestion(name, names)}")


def _parameter(scope: Scope, name: str, dtype: Any, dims: list[int] | None, options: TfOptions) -> Instruction:
    given = options.map_input_dims.get(name)
    word = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    if given is not None:
        extents: list[Dim] = list(given)
    elif dims is None:
        return scope.module.add_parameter(name, Shape.unranked(dtype))
    else:
        extents = [d if d >= 0 else symbol(f"{word}_{k}") for k, d in enumerate(dims)]
        if dims and dims[0] == -1 and options.batch_size is not None:
            extents[0] = options.batch_size
        if options.channels_first and len(extents) == len(CHANNELS_FIRST):
            extents = [extents[axis] for axis in CHANNELS_FIRST]
    made = scope.module.add_parameter(name, Shape.of(dtype, extents))
    return _transposed(scope.module, made, CHANNELS_LAST) if options.channels_first else made


def _transposed(module: Module, x: Instruction, order: tuple[int, ...]) -> Instruction:
    """Transposes images; returns values of other ranks unchanged."""
    if not isinstance(x.result, Shape) or not x.result.ranked or x.result.rank != len(order):
        return x
    return module.add(op("transpose", permutation=order), x)


def _result_tensors(scope: Scope, names: Sequence[str], values: Sequence[Value]) -> tuple[list[Instruction], list[str]]:
    """Returns the results as tensors, with names: complex ones with both parts along a last axis, ragged ones as components."""
    results, named = [], []
    for name, value in zip(names, values, strict=True):
        match value:
            case Complex():
                rank = value.real.shape.rank
                n = Node(scope, GraphNode(_OutputNode(name), [], []))
                parts = [n.unsqueeze(v, [rank]) for v in (value.real, value.imag)]
                results.append(n.add("concat", *parts, axis=rank))
                named.append(name)
            case Ragged():
                for k, part in enumerate((value.values, *value.splits)):
                    results.append(part)
                    named.append(f"{name}_{k}")
            case TensorList(stacked=Instruction() as stacked):
                results.append(stacked)
                named.append(name)
            case Instruction():
                results.append(value)
                named.append(name)
            case _:
                raise UnsupportedError(f"output {name!r} is a {type(value).__name__}, a tensor is required")
    return results, named


class _OutputNode:
    """A placeholder NodeDef for an output that has no node in the graph."""

    op = "Complex"
    attr: dict[str, Any] = {}

    def __init__(self, name: str) -> None:
        self.name = name
