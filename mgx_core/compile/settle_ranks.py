"""Settles what waits for the shapes of a run: branches on extents, and ops of unknown rank.

Exporters write an `if` on an extent where an axis of one element goes (a squeeze, a state that may be absent).  Its branches
differ in rank, so everything behind it has an unknown rank, until the shapes of the inputs are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import MgxError
from ..ir.instruction import Instruction, infer_shape
from ..ir.interpreter import Interpreter
from ..ir.module import Module, nested
from ..ir.symbols import Substitution, learn_symbols
from ..ops.builtin import Param
from ..ops.control import GetTupleElem, If
from ..ops.fill import DimensionsOf
from ..ops.operation import Operation
from ..types.argument import Argument, Value
from ..types.shape import AnyShape, Shape

__all__ = ["settle_ranks", "waits_for_shapes"]

LIMIT: Final = 4096  # elements of a value that is computed here: sizes, positions and conditions


def waits_for_shapes(module: Module) -> bool:
    """Returns True if a branch on extents, or an op of unknown rank, may become static with the shapes of the inputs."""
    for inner in nested(module):
        for ins in inner:
            if ins.op.module_for is not None or (isinstance(ins.op, If) and not _depends_on_data(ins.inputs[0])):
                return True
    return False


def _depends_on_data(value: Instruction) -> bool:
    """Returns True if a value is computed from elements of parameters, and not from extents and constants alone."""
    waiting, met = [value], {value}
    while waiting:
        ins = waiting.pop()
        if ins.is_param or ins.modules:
            return True
        if not isinstance(ins.op, DimensionsOf):
            waiting += [i for i in ins.inputs if i not in met]
            met.update(ins.inputs)
    return False


def settle_ranks(module: Module) -> Module | None:
    """Returns a copy in which branches on extents are taken and ops that waited for ranks are spelled out; None if none was.

    module: its parameters have the shapes of a run.  What still depends on data stays as it is.
    """
    settler = _Settler()
    copy = settler.copied(module, {})
    if not settler.changed:
        return None
    copy.sweep()
    return copy


class _Settler:
    """Copies modules in order, so that each shape is inferred from operands whose own is known already."""

    def __init__(self) -> None:
        self.changed = False
        self._by = Substitution({})
        self._items: dict[Instruction, list[Instruction]] = {}  # the results of what was spelled out

    def copied(self, module: Module, went: dict[Instruction, Instruction]) -> Module:
        copy = Module(module.name)
        results = self._into(copy, module, went)
        copy.add_return(results)
        return copy

    def _into(self, copy: Module, module: Module, went: dict[Instruction, Instruction]) -> list[Instruction]:
        """Puts a module's instructions at the end of another one; returns the results."""
        for ins in module:
            if not ins.is_return and ins not in went:
                self._put(copy, ins, went)
        return [went[o] for o in module.outputs]

    def _put(self, copy: Module, ins: Instruction, went: dict[Instruction, Instruction]) -> None:
        if ins.literal is not None:
            went[ins] = copy.append(Instruction(ins.op, ins.result, literal=ins.literal, sources=ins.sources))
            return
        if isinstance(ins.op, Param):
            shape = ins.result.substitute(self._by.symbols)
            went[ins] = copy.append(Instruction(Param(label=ins.op.label, shape=shape), shape, sources=ins.sources))
            return
        if isinstance(ins.op, GetTupleElem) and ins.inputs[0] in self._items:
            went[ins] = self._items[ins.inputs[0]][ins.op.index]
            learn_symbols(ins.result, went[ins].result, self._by.symbols)
            return
        inputs = [went.get(i, i) for i in ins.inputs]
        results = self._spelled_out(copy, ins, inputs, went)
        if results is not None:
            self.changed = True
            self._items[ins] = results
            return
        op = self._by.op(ins.op) if self._by.symbols else ins.op
        value = _value(op, inputs, ins)
        if value is not None:
            literal = Argument.from_value(value)
            went[ins] = copy.add_literal(literal)
            went[ins].sources = ins.sources
        else:
            modules = tuple(self.copied(m, dict(went)) for m in ins.modules)
            try:
                result = infer_shape(op, inputs, modules)
            except MgxError as error:
                error.at_nodes(ins.sources)
                raise
            went[ins] = copy.append(Instruction(op, result, tuple(inputs), modules, None, ins.sources))
        learn_symbols(ins.result, went[ins].result, self._by.symbols)

    def _spelled_out(
        self, copy: Module, ins: Instruction, inputs: Sequence[Instruction], went: dict[Instruction, Instruction]
    ) -> list[Instruction] | None:
        """Returns the results of a branch that is taken, or of an op that waited for the ranks of its operands."""
        if not all(isinstance(u.op, GetTupleElem) for u in ins.users):
            return None
        if isinstance(ins.op, If):
            condition = inputs[0].literal
            if condition is None or np.size(condition) != 1:
                return None
            branch = ins.modules[0 if np.asarray(condition).reshape(()) else 1]
            return self._into(copy, branch, went)
        if ins.op.module_for is None or not all(i.is_absent or _known(i.result) for i in inputs):
            return None
        shapes = [i.result for i in inputs]
        found = ins.op.module_for(shapes, [None if i.literal is None else i.literal.value for i in inputs])
        if found is None:
            return None
        body, taken = found
        args = dict(zip(body.parameters.values(), [inputs[n] for n in taken], strict=True))
        return self._into(copy, body, args)


def _known(shape: AnyShape) -> bool:
    return isinstance(shape, Shape) and shape.ranked


def _value(op: Operation, inputs: Sequence[Instruction], ins: Instruction) -> Value | None:
    """Returns the value of a small instruction whose operands are constants, or that reads static extents; else None."""
    if ins.modules or ins.op.random or ins.op.effect or ins.op.compute is None:
        return None
    if isinstance(ins.op, DimensionsOf):
        shape = inputs[0].result
        if not isinstance(shape, Shape) or shape.dynamic():
            return None
        return ins.op.evaluate([np.broadcast_to(np.int8(0), shape.lens())])
    literals = [i.literal for i in inputs]
    if not isinstance(ins.result, Shape) or any(
        v is None and not i.is_absent for v, i in zip(literals, inputs, strict=True)
    ):
        return None
    if not literals or any(
        not isinstance(v.shape, Shape) or v.shape.elements() > LIMIT for v in literals if v is not None
    ):
        return None
    try:
        shape = infer_shape(op, inputs, ())
        if not isinstance(shape, Shape) or shape.dynamic() or shape.elements() > LIMIT:
            return None
        if op.widens and shape.elements() > 1 and inputs[0].shape.dtype.bits <= 8:
            return None  # quantized weights stay narrow for the rules of products
        return Interpreter.settle(op.evaluate([None if v is None else v.value for v in literals]))
    except MgxError:
        return None  # wrong values are reported at run time, where they are used
