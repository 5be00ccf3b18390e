"""Constant folding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter, as_array
from ..ir.module import Module, nested
from ..ir.ordering import captures
from ..ir.symbols import found_extents
from ..named_tuples import NamedTuple
from ..ops.axes import normalize
from ..ops.broadcast import Multibroadcast
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.elementwise import Pointwise
from ..ops.quantized import Dequantizelinear
from ..records import dataclass
from ..rules.constants import aligned
from ..rules.engine import Rewriter, Rules
from ..rules.outline import is_view, through_views
from ..types.argument import Argument, Array, Value
from ..types.shape import Shape
from .interface import CountingPass

__all__ = ["FoldConstants"]

COSTLY: Final = 16  # the factor for gathers and slow ops, which cost more in every run than reading their results
WORK: Final = 1 << 28  # elements of large values that are computed to fold others: a second or two in numpy


class _Large(NamedTuple):
    """A value computed from literals that is too large to be folded: these literals, and the values between, in order."""

    literals: frozenset[Instruction]
    between: tuple[Instruction, ...]


class _Postponed:
    """The large values of a module, and how many elements of them may still be computed: each value read from one repeats it."""

    def __init__(self) -> None:
        self.values: dict[Instruction, _Large] = {}
        self.left = WORK

    def add(self, ins: Instruction, literals: frozenset[Instruction], between: Iterable[Instruction]) -> None:
        values = (*between, ins)
        if not ins.modules and _elements(values) <= self.left:
            self.values[ins] = _Large(literals, values)

    def charge(self, between: Iterable[Instruction]) -> bool:
        """Returns True if these values may be computed."""
        work = _elements(between)
        if work > self.left:
            return False
        self.left -= work
        return True


def _elements(values: Iterable[Instruction]) -> int:
    return sum(i.shape.elements() for i in values)


@dataclass(frozen=True)
class FoldConstants(CountingPass):
    """Replaces instructions whose inputs are all literals by literals.

    A larger value that is computed from literals (powers of poles by position) is evaluated if a value computed from it is
    folded (their sum).

    limit: the most elements that a folded value may have beyond the total of its literals, so that broadcast literals do not
    bloat the program file; `COSTLY` times as many for gathers and slow ops; widened: whether narrow constants
    of many elements are folded to their wider type, which is done after all rules that use the narrow form; rules: applied
    again where anything was folded, since they match the values of constants.
    """

    limit: int = 1 << 18
    widened: bool = False
    rules: Rules | None = field(default=None, repr=False, compare=False)
    name: str = "fold-constants"

    def apply(self, module: Module) -> bool:
        changed = again = self._fold_all(module)
        while again and self.rules is not None:
            again = Rewriter(self.rules, self.tally).apply(module) and self._fold_all(module)
        return changed

    def _fold_all(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            postponed = _Postponed()
            for ins in inner:
                changed |= self._fold(inner, ins, postponed) is not None
        return changed

    def follow(self, literals: Iterable[Instruction]) -> None:
        """Folds the instructions that became foldable because of these literals."""
        waiting = list(literals)
        while waiting:
            for user in waiting.pop().users:
                if is_view(user):
                    waiting.append(user)
                elif user.parent is not None and (folded := self._fold(user.parent, user)) is not None:
                    waiting.append(folded)

    def _fold(self, module: Module, ins: Instruction, postponed: _Postponed | None = None) -> Instruction | None:
        """Returns the literal that replaces an instruction; None if it is not folded.

        postponed: large values computed from literals; the instruction is added if it is one.
        """
        sources = []
        between: dict[Instruction, None] = {}
        for i in ins.inputs:  # most instructions read a value that varies
            source = through_views(i)
            if isinstance(source.op, (Literal, Undefined)):
                sources.append(source)
            elif postponed is not None and (found := postponed.values.get(source)) is not None:
                sources += found.literals
                between |= dict.fromkeys(found.between)
            else:
                return None
        if isinstance(ins.op, (Param, Literal, Return, Undefined)) or ins.op.random or ins.op.effect:
            return None
        if is_view(ins) or any(captures(m) for m in ins.modules):
            return None
        if not isinstance(ins.result, Shape) or (ins.modules and not self._foldable(ins)) or ins.op.compute is None:
            return None
        if not between and (repeated := self._fold_repeated(module, ins)) is not None:
            return repeated
        size = 0 if ins.result.dynamic() else ins.result.elements()
        if ins.op.widens and not self.widened and size > 1 and ins.inputs[0].shape.dtype.bits <= 8:
            return None
        most = self.limit * (COSTLY if ins.op.picks or ins.op.slow else 1)
        literals = frozenset(sources)
        if size > most + _elements(i for i in literals if i.is_literal and isinstance(i.result, Shape)):
            if postponed is not None:
                postponed.add(ins, literals, between)
            return None
        if between and not (postponed is not None and postponed.charge(between)):
            return None
        try:
            args = _evaluated(ins.inputs, between)
            value = as_array(ins.op.evaluate(args, ins.modules, Interpreter().run))
        except MgxError:
            return None  # errors are raised at run time instead
        argument = Argument.from_value(value)
        if isinstance(argument.shape, Shape) and argument.shape.as_standard() == ins.result:
            argument = Argument.from_value(value, ins.result)  # the same extents, possibly static instead of symbolic
        folded = module.add_literal(argument, before=ins)
        folded.sources = ins.sources
        module.substitute(found_extents(ins.result, folded.result))
        if ins.result.dynamic():
            for user in ins.users:
                if user.parent is not None:
                    user.parent.set_inputs(user, [folded if i is ins else i for i in user.inputs])
        else:
            module.replace(ins, folded)
        return folded

    def _fold_repeated(self, module: Module, ins: Instruction) -> Instruction | None:
        """Folds a pointwise op or dequantization of broadcast constants before the broadcast; None if no operand is broadcast.

        Rules can then match the uniform value, and the constant is not materialized with the result's extents: weights that a
        product repeats for every matrix of a batch are stored once.
        """
        if (ins.op.widens and not self.widened) or not ins.shape.ranked:
            return None
        values = [v for i in ins.inputs if (v := aligned(i)) is not None]
        if len(values) < len(ins.inputs):
            return None
        operands: list[Array] | None
        if isinstance(ins.op, Dequantizelinear):
            dims = values[0].shape
            operands = _unrepeated(ins, ins.op, values)
        elif isinstance(ins.op, Pointwise):
            dims = np.broadcast_shapes(*(v.shape for v in values))
            operands = [np.broadcast_to(v, dims) for v in values]
        else:
            return None
        if operands is None:
            return None
        most = self.limit + sum(v.size for v in values)
        if math.prod(dims) > most or (1,) * (ins.shape.rank - len(dims)) + dims == ins.shape.dims:
            return None
        try:
            value = as_array(ins.op.evaluate(operands))
        except MgxError:
            return None
        folded = module.add_literal(Argument.from_value(np.reshape(value, dims)), before=ins)
        folded.sources = ins.sources
        module.replace(
            ins, module.add(Multibroadcast(out_lens=ins.shape.dims), folded, before=ins, sources=ins.sources)
        )
        return folded

    def _foldable(self, ins: Instruction) -> bool:
        """Returns True for a group with only foldable members."""
        members = [i.op for body in ins.modules for inner in nested(body) for i in inner if not i.is_return]
        return ins.op.fused and not any(
            op.random or op.effect or op.control or (op.widens and not self.widened) for op in members
        )


def _unrepeated(ins: Instruction, op: Dequantizelinear, values: list[Array]) -> list[Array] | None:
    """Returns the operands of a dequantization without the axes along which all of them are repeated; None if there is none.

    values: the operands as `aligned` returns them, codes first.
    """
    rank = ins.shape.rank
    codes, *parameters = (
        v.reshape((1,) * (i.shape.rank - v.ndim) + v.shape) for i, v in zip(ins.inputs, values, strict=True)
    )
    kept = {a for a, n in enumerate(codes.shape) if n == ins.shape.dims[a]}
    if len(kept) == rank or (op.block_size and normalize(op.axis, rank) not in kept):
        return None
    for v in parameters:
        varying = {a for a, n in enumerate(v.shape) if n != 1}
        if v.ndim == 1 and varying:
            varying = {normalize(op.axis, rank)}
        if not varying <= kept:
            return None
    return [codes, *parameters]


def _evaluated(wanted: Sequence[Instruction], between: Collection[Instruction]) -> list[Value]:
    """Returns the values of constants; between: those that are not literals or views, in order; freed after their last use."""
    uses = Counter(through_views(i) for ins in between for i in ins.inputs)
    known: dict[Instruction, Value] = {}
    for ins in between:
        known[ins] = ins.op.evaluate([_constant(i, known) for i in ins.inputs])
        for source in map(through_views, ins.inputs):
            uses[source] -= 1
            if not uses[source] and source not in map(through_views, wanted):
                known.pop(source, None)
    return [_constant(i, known) for i in wanted]


def _constant(ins: Instruction, known: Mapping[Instruction, Value]) -> Value:
    """Returns the value of a literal or a known value, possibly through views."""
    if ins.is_absent:
        return None
    if ins.is_literal:
        return ins.get_literal().value
    if ins in known:
        return known[ins]
    return ins.op.evaluate([_constant(i, known) for i in ins.inputs])
