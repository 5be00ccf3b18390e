"""`migraphx.instruction_ref` and `migraphx.module`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mgx_core import Instruction, Module, ParameterError, Shape, ShapeError

from . import operations
from .adding import added
from .arguments import argument, of_argument
from .debug_symbols import add_symbols, has_symbols, remove_symbols, symbols_of
from .implied_attributes import check_implied, split
from .layouts import laid_out
from .operations import macro, of_operation, op
from .shapes import core_shape, of_shape, shape

__all__ = ["instruction_ref", "module"]


class instruction_ref:
    """An instruction of a module."""

    __slots__ = ("core",)

    def __init__(self, core: Instruction) -> None:
        self.core = core

    def shape(self) -> shape:
        return of_shape(laid_out(self.core))

    def op(self) -> Any:
        return of_operation(self.core.op)

    def inputs(self) -> list[instruction_ref]:
        return list(map(instruction_ref, self.core.inputs))

    def outputs(self) -> list[instruction_ref]:
        return list(map(instruction_ref, self.core.users))

    def name(self) -> str:
        return self.core.name

    def get_literal(self) -> argument:
        """Returns the constant.  Errors: ShapeError if this is not a literal."""
        return of_argument(self.core.get_literal())

    def get_debug_symbols(self) -> set[str]:
        return symbols_of(self.core)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, instruction_ref) and self.core is other.core

    def __hash__(self) -> int:
        return hash(self.core)

    def __repr__(self) -> str:
        return repr(self.core)


class module:
    """A module: instructions in order, with parameters and a return."""

    __slots__ = ("core",)

    def __init__(self, core: Module) -> None:
        self.core = core

    def print(self) -> None:
        print(self)

    def add_instruction(
        self, op: op, args: Sequence[instruction_ref] = (), mod_args: Sequence[module] = ()
    ) -> instruction_ref:
        """Appends an operation on the results of earlier instructions.

        As in MIGraphX, comparisons and logic return their inputs' type, and a data-dependent number of rows is zero-padded.
        Errors: ShapeError if the inputs do not fit; ParameterError for anything but an operation.
        """
        if isinstance(op, macro):
            raise ParameterError(f"{op!r} is a macro, not an operation: use add_macro")
        if not isinstance(op, operations.op):
            raise ParameterError(f'add_instruction requires an operation (e.g. migraphx.op("relu")), got {op!r}')
        inputs, wanted = [_core(a) for a in args], op.core
        if inputs and "steps" in op.extra:
            wanted = split(wanted, op.extra["steps"], inputs[0])
        made = added(self.core, wanted, inputs, [m.core for m in mod_args])
        if op.extra:
            try:
                check_implied(op.name(), op.extra, made.result)
            except ShapeError:
                self.core.remove(made)
                raise
        return instruction_ref(made)

    def add_macro(
        self, macro: macro, args: Sequence[instruction_ref] = (), mod_args: Sequence[module] = ()
    ) -> list[instruction_ref]:
        """Appends the instructions of a macro; returns its results."""
        made = self.core.add_macro(macro.core, [_core(a) for a in args], [m.core for m in mod_args])
        return list(map(instruction_ref, made))

    def insert_macro(
        self,
        ins: instruction_ref,
        macro: macro,
        args: Sequence[instruction_ref] = (),
        mod_args: Sequence[module] = (),
    ) -> list[instruction_ref]:
        """Inserts the instructions of a macro before `ins`; returns its results."""
        made = self.core.insert_macro(_core(ins), macro.core, [_core(a) for a in args], [m.core for m in mod_args])
        return list(map(instruction_ref, made))

    def add_literal(self, data: Any) -> instruction_ref:
        """Adds a constant from an argument or a buffer."""
        value = data if isinstance(data, argument) else argument(data)
        scalar = isinstance(value.shape, Shape) and value.shape.lens() == [1] and value.shape.strides() == [0]
        return instruction_ref(self.core.add_literal(value.to_numpy().reshape(()) if scalar else value))

    def add_parameter(self, name: str, shape: shape) -> instruction_ref:
        return instruction_ref(self.core.add_parameter(name, core_shape(shape)))

    def add_return(self, args: Sequence[instruction_ref]) -> instruction_ref:
        return instruction_ref(self.core.add_return([_core(a) for a in args]))

    def replace_return(self, args: Sequence[instruction_ref]) -> instruction_ref:
        return instruction_ref(self.core.replace_return([_core(a) for a in args]))

    def has_debug_symbols(self) -> bool:
        return has_symbols(self.core)

    def add_debug_symbols(self, ins: instruction_ref, symbols: Iterable[str]) -> None:
        add_symbols(_core(ins), symbols)

    def remove_debug_symbols(self, ins: instruction_ref) -> None:
        remove_symbols(_core(ins))

    def __iter__(self) -> Iterator[instruction_ref]:
        return map(instruction_ref, self.core)

    def __len__(self) -> int:
        return len(self.core)

    def __repr__(self) -> str:
        from .program_text import module_text

        return module_text(self.core)


def _core(given: Any) -> Instruction:
    if not isinstance(given, instruction_ref):
        raise ParameterError(f"an instruction is required, got {given!r}")
    return given.core
