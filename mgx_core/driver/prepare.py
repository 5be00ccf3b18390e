"""Prepares what a command runs: the requested program, compiled for the chosen target, and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ..named_tuples import NamedTuple
from . import data, source
from .compiling import compile_options, compiled, quantized
from .data import data_options, inputs
from .group import DriverCommand
from .source import Source, source_options

if TYPE_CHECKING:
    from ..program import Program
    from ..run.executable import Executable

__all__ = ["Ready", "compiling_command", "ready", "requested_program"]


def compiling_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Declares a command that compiles a model: with the options for the model, its compilation, and its parameters' values."""
    declare = click.command(name, cls=DriverCommand, many=(*source.MANY, *data.MANY))
    return lambda function: declare(source_options(compile_options(data_options(function))))


class Ready(NamedTuple):
    """A program, its executable, and checked inputs."""

    program: Program
    executable: Executable
    values: dict[str, Any]


def requested_program(given: Mapping[str, Any]) -> Program:
    """Returns the program selected by the options, in the requested precision."""
    program = Source.of(given).program()
    return quantized(program, given, lambda: inputs(program.get_parameter_shapes(), given))


def ready(program: Program, given: Mapping[str, Any]) -> Ready:
    """Returns the program compiled for the chosen target, with its inputs and the initial states."""
    executable = compiled(program, given)
    shapes = {name: shape for name, shape in executable.parameters.items() if name not in program.states}
    return Ready(program, executable, {**inputs(shapes, given), **program.states})
