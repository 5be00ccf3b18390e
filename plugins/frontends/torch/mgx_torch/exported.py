"""Converts torch's exported programs to mgx programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument, TensorArgument

from mgx_core import MgxError, Module, ParameterError, ParseError, Program, UnsupportedError
from mgx_core.ir.graph import Graph

from .autocasting import with_casts
from .decompositions import all_converters, table
from .extents import Extents, names_of_dims, shape_of
from .graph import GraphConverter
from .node import Complex
from .trees import leaves_are_copied

__all__ = ["from_exported", "is_result", "parse_exported", "parts_of_complex"]

STATE = {InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR}
CHANGED = {OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION}


def from_exported(exported: ExportedProgram) -> Program:
    """Converts an exported program: weights become literals that share torch's memory, user inputs become parameters.

    A mutated buffer or input is a parameter under its own name; its new value is a result of that name, after the user's results.
    A complex input or result `x` is two of real numbers, `x.real` and `x.imag`.
    Errors: UnsupportedError for an operator without a converter or a constant without data; ParseError for a malformed graph;
    ParameterError if `exported` is not an exported program.
    """
    if not isinstance(exported, ExportedProgram):
        raise ParameterError(
            f"from_exported requires a result of torch.export.export, got {type(exported).__name__}; lower_to_mgx takes modules, "
            "mgx_core.parse files"
        )
    for name, value in exported.constants.items():
        if isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value):
            raise UnsupportedError(
                f"the constant {name!r} has no data: torch.export does not keep that of tensors inside a transform of "
                "torch.func; call the transform outside of the exported module, or use torch.compile(backend='mgx')"
            )
    converters = all_converters()
    try:
        with leaves_are_copied():
            functional = with_casts(exported).run_decompositions(table(converters))
    except MgxError:
        raise
    except Exception as error:  # torch's decompositions raise arbitrary errors
        raise ParseError(f"torch could not functionalize the exported program: {error}") from error
    return parse_exported(functional, converters)


def parse_exported(exported: ExportedProgram, converters: Any) -> Program:
    """Converts an exported program in functional form."""
    signature = exported.graph_signature
    main = Module("main")
    changed = {spec.target for spec in signature.output_specs if spec.kind in CHANGED}
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    ranges = exported.range_constraints
    extents = Extents(ranges, names_of_dims([n.meta.get("val") for n in placeholders], ranges))
    graph = GraphConverter(main, converters, extents)
    if len(placeholders) != len(signature.input_specs):
        raise ParseError(f"the graph has {len(placeholders)} inputs, its signature {len(signature.input_specs)}")
    inputs = [
        _input(graph, exported, spec, fx, changed) for spec, fx in zip(signature.input_specs, placeholders, strict=True)
    ]
    found = graph.convert(exported.graph, inputs)
    outputs, names = [], []
    order = [s for s in signature.output_specs if s.kind not in CHANGED] + [
        s for s in signature.output_specs if s.kind in CHANGED
    ]
    by_spec = {id(s): v for s, v in zip(signature.output_specs, found, strict=True)}
    for spec in order:
        value = by_spec[id(spec)]
        if spec.kind is OutputKind.TOKEN or not is_result(value):
            continue
        name = spec.target if spec.kind in CHANGED else spec.arg.name
        if isinstance(value, Complex):
            outputs += [value.real, value.imag]
            names += parts_of_complex(name)
            continue
        outputs.append(graph.output(value))
        names.append(name)
    main.add_return(outputs)
    main.sweep()
    return Program(Graph(main), names)


def parts_of_complex(name: str) -> list[str]:
    """Returns the names of the parameters or results that hold the parts of a complex tensor."""
    return [f"{name}.real", f"{name}.imag"]


def is_result(value: Any) -> bool:
    """Returns True if a result of the module is a result of the program; None and strings are not."""
    return value is not None and not isinstance(value, str)


def _input(graph: GraphConverter, exported: ExportedProgram, spec: Any, fx: Any, changed: set[Any]) -> Any:
    """Returns the value of a placeholder: a literal for weights, a parameter for user inputs."""
    if spec.kind in STATE:
        tensors: Mapping[str, Any] = (
            exported.constants if spec.kind is InputKind.CONSTANT_TENSOR else exported.state_dict
        )
        tensor = tensors.get(spec.target)
        if tensor is None:  # nonpersistent buffers
            tensor = exported.constants.get(spec.target)
        if tensor is None:
            raise ParseError(f"the exported program does not contain the tensor {spec.target!r}")
        if spec.target in changed:
            return graph.module.add_parameter(spec.target, shape_of(tensor, graph.extents))
        return graph.constant(tensor, str(spec.target))
    if spec.kind is InputKind.TOKEN:  # orders effects, of which a program has none
        return None
    if spec.kind is not InputKind.USER_INPUT:
        raise UnsupportedError(f"the input {fx.name!r} is a {spec.kind.name.lower()}, which mgx does not support")
    if isinstance(spec.arg, ConstantArgument):
        return spec.arg.value
    value = fx.meta["val"]
    if isinstance(spec.arg, SymIntArgument):
        return graph.extents.of(value)
    if not isinstance(spec.arg, TensorArgument):
        raise UnsupportedError(f"the input {fx.name!r} is a {type(spec.arg).__name__}, which mgx does not support")
    shape = shape_of(value, graph.extents)
    if value.is_complex():
        return Complex(*(graph.module.add_parameter(name, shape) for name in parts_of_complex(fx.name)))
    return graph.module.add_parameter(fx.name, shape)
