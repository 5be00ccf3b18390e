"""Programs with one module for a single token and one for the longest prompt: MIGraphX's prefill and decode options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mgx_core import DynamicDimension, Module, ParameterError, Program
from mgx_core.types.shape import symbols_in

from .specializing import share

__all__ = ["OPTIONS", "with_two_lengths"]

OPTIONS: Final = ("split_prefill_decode", "unify_prefill_decode")  # both names occur in MIGraphX's branches
LENGTH: Final = "sequence_length"


def with_two_lengths(option: str, dim_params: Mapping[str, Any], parse: Callable[..., Program]) -> Program:
    """Returns a program that selects by sequence length between the model parsed for one token and for the maximum.

    parse: parses the model for given `dim_params`.  Constants of both modules are shared in the main module.
    Errors: ParameterError unless dim_params gives sequence_length a range from 1; at run time ShapeError for other lengths.
    """
    from mgx_core.ops.control import GetTupleElem
    from mgx_core.ops.modules import SelectModule

    whole = parse(dim_params)  # validates the values
    said = dim_params.get(LENGTH)
    of = DynamicDimension.of(said) if said is not None else DynamicDimension(0, 0)
    if of.min != 1 or of.max == 1:
        raise ParameterError(
            f"{option} requires dim_params[{LENGTH!r}] with a range from 1 to the longest prompt, got {said!r}"
        )
    shapes = whole.get_parameter_shapes()
    if not any(LENGTH in symbols_in(s) for s in shapes.values()):
        raise ParameterError(f"{option} requires an input with an open extent {LENGTH!r}, got {shapes}")
    made = Program(output_names=whole.get_output_names())
    main = made.get_main_module()
    inputs = {name: main.add_parameter(name, s) for name, s in shapes.items()}
    phases = {
        name: _phase(made.create_module(f"main:phase:{name}"), parse({**dim_params, LENGTH: length}), list(inputs))
        for name, length in (("decode", 1), ("prefill", of.max))
    }
    share(main, list(phases.values()))
    selected = main.add(SelectModule(), *inputs.values(), modules=list(phases.values()))
    main.add_return([main.add(GetTupleElem(index=i), selected) for i in range(len(whole.get_output_shapes()))])
    made.files = whole.files
    return made


def _phase(module: Module, program: Program, order: Sequence[str]) -> Module:
    """Fills a module with the program of one length; order: of its parameters."""
    shapes = program.get_parameter_shapes()
    given = {name: module.add_parameter(name, shapes[name]) for name in order}
    source = program.get_main_module()
    module.add_return(module.inline(source, [given[name] for name in source.parameters]))
    return module
