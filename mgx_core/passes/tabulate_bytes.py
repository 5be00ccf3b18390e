"""Replaces elementwise functions of one byte by 256-entry lookup tables."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.elementwise import Pointwise
from ..ops.quantized import ByteMap, Dequantizelinear, Quantizelinear
from ..records import dataclass
from ..rules.constants import aligned
from ..types.argument import Array
from ..types.shape import Shape
from .interface import Pass

__all__ = ["TabulateBytes"]

MOST = 64  # the most instructions of one function


@dataclass(frozen=True)
class TabulateBytes(Pass):
    """Replaces pointwise ops from one byte tensor and uniform constants to bytes by a `byte_map`.

    The table is computed by the reference implementations, so that any function of a byte costs as much as a copy.  If a
    result depends on several byte tensors, the latest is the index; ops used only for the result are included, within its own
    module.  An epilogue of a product becomes a table, too: it adds a launch, but the product rounds once and stores bytes, which
    is faster than applying the epilogue to all its sums (measured with relu after six convolutions, one and two threads).
    """

    name: str = "tabulate-bytes"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            functions = _Functions(inner)
            for ins in reversed(list(inner)):
                if ins.parent is inner and ins.users and _is_bytes(ins):
                    changed |= functions.tabulate(ins)
        if changed:
            module.sweep()
        return changed


class _Functions:
    """Finds the functions of one byte in a module.

    Each constant is examined once, even if it is reached from several results, and equal functions are computed once.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.position = {ins: n for n, ins in enumerate(module)}
        self._numbers: dict[Instruction, Array | None] = {}
        self._tables: dict[Hashable, Array | None] = {}

    def tabulate(self, ins: Instruction) -> bool:
        """Replaces an instruction by a table, if it is a function of a byte.  True if it was replaced."""
        module, position = self.module, self.position
        if not self._follows(ins):
            return False
        members = {ins}
        ends = self._varying(ins)
        root: Instruction | None = None
        while ends and len(members) < MOST:
            if len(ends) == 1:
                (at,) = ends
                if _is_bytes(at) and at.shape.dims == ins.shape.dims:
                    root, inside = at, set(members)
                    if not set(at.users) <= members:
                        break
            at = max(ends, key=lambda i: position.get(i, -1))
            if at.parent is not module or not self._follows(at) or at.shape.dims != ins.shape.dims:
                break
            members.add(at)
            ends.discard(at)
            ends |= self._varying(at)
        if root is None:
            return False
        table = self._table(ins, root, sorted(inside, key=position.__getitem__))
        if table is None:
            return False
        literal = module.add_literal(table, before=ins)
        made = module.add(ByteMap(), root, literal, before=ins, sources=ins.sources)
        module.replace(ins, made)
        return True

    def _follows(self, ins: Instruction) -> bool:
        """True if an instruction computes each element from elements at the same index and uniform constants."""
        if isinstance(ins.op, ByteMap):
            return ins.inputs[1].literal is not None
        if not isinstance(ins.op, (Pointwise, Quantizelinear, Dequantizelinear)) or ins.op.random:
            return False
        return all(self._number(i) is not None or _in_line(i, ins) for i in ins.inputs if not i.is_absent)

    def _varying(self, ins: Instruction) -> set[Instruction]:
        if isinstance(ins.op, ByteMap):
            return {ins.inputs[0]}
        return {i for i in ins.inputs if not i.is_absent and self._number(i) is None}

    def _number(self, ins: Instruction) -> Array | None:
        """Returns the value of a uniform constant as a 0-d array."""
        if ins not in self._numbers:
            self._numbers[ins] = _uniform(ins)
        return self._numbers[ins]

    def _table(self, ins: Instruction, root: Instruction, members: list[Instruction]) -> Array | None:
        """Returns the results of `ins` for all values of the byte `root`, in ascending order; None if they are not bytes."""
        at = {member: n for n, member in enumerate((root, *members))}
        numbers = {i: self._constant(i, m) for m in members for i in m.inputs if not i.is_absent and i not in at}
        words = {i: (str(v.dtype), v.tobytes()) for i, v in numbers.items()}
        steps = tuple((m.op, *[None if i.is_absent else at.get(i, words.get(i)) for i in m.inputs]) for m in members)
        key = (root.shape.dtype, ins.shape.dtype, steps)
        if key not in self._tables:
            self._tables[key] = _evaluated(ins, root, members, numbers)
        return self._tables[key]

    def _constant(self, operand: Instruction, member: Instruction) -> Array:
        """Returns a constant operand: a table, or a number."""
        found = aligned(operand) if isinstance(member.op, ByteMap) else self._number(operand)
        assert found is not None  # as `_follows` has found
        return found


def _evaluated(
    ins: Instruction, root: Instruction, members: Sequence[Instruction], numbers: Mapping[Instruction, Array]
) -> Array | None:
    """Returns the results of `ins`, the last of the members, as `_Functions._table` does."""
    dtype = root.shape.dtype
    values: dict[Instruction, Array] = {root: np.arange(dtype.lowest, dtype.highest + 1).astype(dtype.numpy)}
    for member in members:
        given: list[Array | None] = []
        for operand in member.inputs:
            if operand.is_absent or operand in values:
                given.append(values.get(operand))
            else:
                wide = isinstance(member.op, Pointwise)
                given.append(np.broadcast_to(numbers[operand], (256,)) if wide else numbers[operand])
        with np.errstate(all="ignore"):
            values[member] = np.asarray(member.op.evaluate(given))
    found = values[ins]
    return np.ascontiguousarray(found) if found.shape == (256,) and found.dtype == ins.shape.dtype.numpy else None


def _is_bytes(ins: Instruction) -> bool:
    shape = ins.result
    return isinstance(shape, Shape) and shape.ranked and shape.dtype.is_integer and shape.dtype.bits == 8


def _in_line(operand: Instruction, ins: Instruction) -> bool:
    shape = operand.result
    return isinstance(shape, Shape) and shape.ranked and shape.dims == ins.shape.dims and not operand.is_literal


def _uniform(ins: Instruction) -> Array | None:
    """Returns the value of a uniform constant as a 0-d array."""
    value = aligned(ins)
    if value is None or not value.size or (value.size > 1 and not (value == value.flat[0]).all()):
        return None
    return np.asarray(value.flat[0], value.dtype)
