"""Interprets modules with the reference implementations of their ops, for target ref, constant folding and groups on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DeviceError, MgxError, ShapeError, counted
from ..ops.operation import Operation, Run
from ..types.argument import Argument, Value, as_value
from ..types.memory_limit import require_bytes, static_bytes
from ..types.shape import AnyShape, Shape, TupleShape
from ..types.symbol_binding import bind_all, bind_symbols
from .instruction import Instruction
from .module import Module
from .ordering import reads
from .symbols import introduced

__all__ = ["Interpreter", "Observer", "as_array", "evaluate_module", "location_of"]

Observer = Callable[[Instruction, Value], None]


class Interpreter:
    """Evaluates modules instruction by instruction.

    observe: called with every instruction and its value, in order (nested modules included).
    Errors: any error that an op's compute raises, located at the instruction and its source nodes.
    """

    def __init__(self, observe: Observer | None = None) -> None:
        self.observe = observe
        self._open: dict[Instruction, tuple[list[str], bool]] = {}
        self._replaced: dict[Instruction, tuple[list[int | None], Operation]] = {}

    def run(
        self,
        module: Module,
        args: Sequence[Value],
        outer: Mapping[Instruction, Value] | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> list[Value]:
        """Returns the module's results for values of its parameters in order; `outer` are values of enclosing modules."""
        values: dict[Instruction, Value] = dict(outer or {})
        known: dict[str, int] = dict(symbols or {})
        parameters = module.parameters
        if len(args) != len(parameters):
            raise ShapeError(f"module {module.name!r} takes {counted(len(parameters), 'value')}, got {len(args)}")
        values.update(zip(parameters.values(), args, strict=True))
        bind_all((p.result for p in parameters.values()), args, known)
        for ins, done in module.derive("schedule", schedule):
            if ins.is_param or ins.is_absent:
                continue
            if ins.literal is not None:
                values[ins] = ins.literal.value
                continue
            values[ins] = value = self.step(ins, values, known)
            if self.observe is not None:
                self.observe(ins, value)
            if ins.result.dynamic():
                bind_symbols(ins.result, value, known)
            for i in done:
                del values[i]
        return [None if o.is_absent else values[o] for o in module.outputs]

    def evaluate(self, op: Operation, args: Sequence[Value], modules: Sequence[Module], run: Run) -> Value:
        """Returns the value of one op; executors override it to run kernels instead of the reference implementation."""
        return op.evaluate(args, modules, run)

    def step(self, ins: Instruction, values: dict[Instruction, Value], known: dict[str, int]) -> Value:
        """Returns an instruction's value from the values of its inputs; `known` maps symbols to their values so far."""
        try:
            args = [None if i.is_absent else values[i] for i in ins.inputs]
            op = ins.op
            if known:
                in_op, in_result = self._open.get(ins) or self._extents_of(ins)
                if in_op:
                    op = self._with_extents(ins, in_op, known)
                size = static_bytes(ins.result.substitute(known)) if in_result else None
                if size is not None:
                    require_bytes(size, "the result")

            def run(inner: Module, inner_args: Sequence[Value]) -> list[Value]:
                return self.run(inner, inner_args, values, known)

            value = self.evaluate(op, args, ins.modules, run)
        except MgxError as error:
            raise located(error, ins) from error.__cause__
        except MemoryError as error:
            raise located(DeviceError(f"not enough memory for the result: {error}"), ins) from None
        return as_array(_with_known_extents(value, ins.result, known) if ins.op.control and known else value)

    def _extents_of(self, ins: Instruction) -> tuple[list[str], bool]:
        """Returns the symbols in an op's attributes, and whether the known ones determine its result's size."""
        found = self._open[ins] = sorted(ins.op.symbols()), ins.result.dynamic() and not introduced(ins)
        return found

    def _with_extents(self, ins: Instruction, names: Sequence[str], known: Mapping[str, int]) -> Operation:
        """Returns an op with its symbols replaced; reuses the last one if the values are unchanged."""
        values = [known.get(name) for name in names]
        last = self._replaced.get(ins)
        if last is None or last[0] != values:
            last = self._replaced[ins] = values, ins.op.substitute(known)
        return last[1]


def as_array(value: Value) -> Value:
    """Returns a numpy scalar as an array, other values unchanged."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def location_of(op: Operation, error: MgxError) -> str:
    """Returns the text of an op as the location of its error; the name alone if an attribute is the error's message."""
    texts = [value for value in op.attributes().values() if isinstance(value, str)]
    return op.name if error.message in texts else repr(op)


def located(error: MgxError, ins: Instruction) -> MgxError:
    """Returns the error with the instruction's text and source nodes as its location."""
    place = f"{location_of(ins.op, error)}({', '.join('-' if i.is_absent else str(i.result) for i in ins.inputs)})"
    if ins.sources:
        place = f"node {', '.join(map(repr, ins.sources))}: {place}"
    return error.located(place)


def schedule(module: Module) -> list[tuple[Instruction, list[Instruction]]]:
    """Returns the instructions in order, each with the values of this module whose last use it is."""
    last: dict[Instruction, int] = {}
    steps = [i for i in module if not i.is_return]
    outputs = set(module.outputs)
    for index, ins in enumerate(steps):
        for read in reads(ins):
            if read.parent is module and read not in outputs:
                last[read] = index
        if not ins._users and ins not in outputs and not ins.is_param and not ins.is_absent:
            last[ins] = index
    done: list[list[Instruction]] = [[] for _ in steps]
    for ins, index in last.items():
        if not ins.is_absent:
            done[index].append(ins)
    return list(zip(steps, done, strict=True))


def _with_known_extents(value: Value, shape: AnyShape, known: Mapping[str, int]) -> Value:
    """Returns the empty scan outputs of a loop with zero trips, with the extents that each row would have had."""
    if isinstance(value, tuple) and isinstance(shape, TupleShape):
        return tuple(_with_known_extents(v, s, known) for v, s in zip(value, shape.items, strict=True))
    if not isinstance(value, np.ndarray) or value.size or not isinstance(shape, Shape) or not shape.dynamic():
        return value
    dims = shape.substitute(known).dims if shape.ranked and shape.rank == value.ndim else value.shape
    lens = [d if isinstance(d, int) else n for d, n in zip(dims, value.shape, strict=True)]
    return value.reshape(lens) if 0 in lens else value


def evaluate_module(module: Module, args: Sequence[Any]) -> list[Argument]:
    """Returns a module's results as Arguments; args: anything that Argument accepts."""
    return [Argument.from_value(v) for v in Interpreter().run(module, [as_value(a) for a in args])]
