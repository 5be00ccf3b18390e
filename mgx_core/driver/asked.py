"""From a command's words to the program that they ask for, and to what runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .compiling import compiled, quantized
from .data import inputs
from .source import Source

if TYPE_CHECKING:
    from ..program import Program
    from ..run.executable import Executable

__all__ = ["Ready", "asked_program", "ready"]


class Ready(NamedTuple):
    """A program, what it was compiled to, and checked inputs."""

    program: Program
    executable: Executable
    values: dict[str, Any]


def asked_program(given: Mapping[str, Any]) -> Program:
    """Returns the program that the options name, in the precision that they ask for."""
    program = Source.of(given).program()
    return quantized(program, given, lambda: inputs(program.get_parameter_shapes(), given))


def ready(program: Program, given: Mapping[str, Any]) -> Ready:
    """A program compiled for the chosen target, with the inputs that the options ask for and the states that runs begin with."""
    executable = compiled(program, given)
    asked = {name: shape for name, shape in executable.parameters.items() if name not in program.states}
    return Ready(program, executable, {**inputs(asked, given), **program.states})
