"""Prepares what a command runs: the requested program, compiled for the chosen target, and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .compiling import compiled, quantized
from .data import inputs
from .source import Source

if TYPE_CHECKING:
    from ..program import Program
    from ..run.executable import Executable

__all__ = ["Ready", "ready", "requested_program"]


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
