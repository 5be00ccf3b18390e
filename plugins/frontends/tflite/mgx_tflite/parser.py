"""Parses in-memory models into programs: a signature, or subgraph 0."""

from __future__ import annotations

import re

from mgx_core import DeviceError, Module, ParameterError, ParseError, Program, Shape, UnsupportedError
from mgx_core.converting.converters import Converters
from mgx_core.converting.joined import with_plugins
from mgx_core.errors import suggestion
from mgx_core.extents import requested_dims, warn_overridden
from mgx_core.ir.graph import Graph
from mgx_core.types.dim import Dim, symbol

from .context import Context
from .converter import STANDARD
from .model import Model, Signature
from .options import TfliteOptions
from .scope import Scope

__all__ = ["all_converters", "parse_model"]


def all_converters() -> Converters:
    """Returns this package's converters and those of installed plugins."""
    return with_plugins(STANDARD, "tflite")


def parse_model(model: Model, options: TfliteOptions) -> Program:
    """Parses a model in memory.

    Errors: ParseError, UnsupportedError with the operator's location; ParameterError for an unknown signature.
    """
    signature = _signature(model, options.signature)
    main = Module("main")
    context = Context(main, model, options, all_converters())
    context.names["main"] = 1
    asked = _asked(options, signature)
    try:
        scope = Scope(context, signature.subgraph, main)
        for name, index in signature.inputs.items():
            tensor = scope.tensor(index)
            if tensor.dtype is None:
                raise UnsupportedError(f"input {name!r} is a resource")
            word = re.sub(r"[^A-Za-z0-9_.]", "_", name)
            dims = asked.get(name, [d if d >= 0 else symbol(f"{word}_{k}") for k, d in enumerate(tensor.dims)])
            if name in asked:
                warn_overridden(name, [d if d >= 0 else None for d in tensor.dims], dims)
            scope.values[index] = main.add_parameter(name, Shape.of(tensor.dtype, dims))
        wanted = list(signature.outputs.values())
        scope.run(wanted)
        results = [scope.raw(i) for i in wanted]
    except RecursionError:
        raise ParseError("the model nests too deeply") from None
    except MemoryError as error:
        raise DeviceError(f"not enough memory while parsing: {error}") from None
    names = list(signature.outputs)
    kept = [context.assigned.current.get(key, made) for key, (made, _) in context.states.items()]
    main.add_return([*results, *kept])
    main.sweep()
    labels = {made: label for label, made in main.parameters.items()}
    return Program(Graph(main), names, {labels[made]: value for made, value in context.states.values()})


def _asked(options: TfliteOptions, signature: Signature) -> dict[str, list[Dim]]:
    """Returns the extents set by options, by input.  Errors: ParameterError for an unknown input."""
    asked = requested_dims(options.map_input_dims, options.map_dyn_input_dims)
    for name in asked:
        if name not in signature.inputs:
            raise ParameterError(
                f"extents are set for input {name!r}, which does not exist; {suggestion(name, signature.inputs)}"
            )
    return asked


def _signature(model: Model, name: str) -> Signature:
    if name:
        if name not in model.signatures:
            raise ParameterError(f"there is no signature {name!r}; {suggestion(name, model.signatures)}")
        return model.signatures[name]
    if model.signatures:
        return next(iter(model.signatures.values()))
    graph = model.subgraphs[0]
    return Signature("", 0, _unique(graph.tensors, graph.inputs), _unique(graph.tensors, graph.outputs))


def _unique(tensors: list, indices: list[int]) -> dict[str, int]:  # type: ignore[type-arg]
    """Returns tensors by name; duplicate names get a number appended."""
    found: dict[str, int] = {}
    for index in indices:
        name = tensors[index].name
        found[name if name not in found else f"{name}_{index}"] = index
    return found
