"""Converts int8 activations with zero points to uint8, so that the zero point of ReLU outputs becomes 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mgx_core import Instruction, Module, Pass, Shape
from mgx_core import dtype as dt
from mgx_core.ir.module import nested
from mgx_core.ops.concat import Concat
from mgx_core.ops.pad import Pad
from mgx_core.ops.pooling import Pooling
from mgx_core.ops.quantized import Dequantizelinear, Quantizelinear
from mgx_core.records import dataclass
from mgx_core.types.argument import Array

__all__ = ["UnsignedBytes"]

SHIFT: Final = 128


@dataclass(frozen=True)
class UnsignedBytes(Pass):
    """Adds 128 to quantized values of int8, which become uint8, and to their zero points.

    In int8 models, ReLU outputs have zero point -128, which each product must subtract; oneDNN's convolutions with zero points
    are slower, and not available on AMX.  Other zero points remain; values without zero points stay signed.  Values connected by
    data movement or selection are converted together, if all are produced by a quantization and consumed by dequantizations with
    constant zero points; parameters, results, weights and operands of other ops keep their type.  Real values are unchanged,
    except for NaN, which quantizes to 0 in either type.
    """

    name: str = "unsigned-bytes"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            for linked in _groups(inner):
                if _has_zero_points(linked):
                    _convert(inner, linked)
                    changed = True
        return changed


def _groups(module: Module) -> Iterator[list[Instruction]]:
    """Yields the groups of int8 values that can be converted together, in order."""
    order = {ins: n for n, ins in enumerate(module)}
    group: dict[Instruction, set[Instruction]] = {}
    fixed: set[Instruction] = set()
    for ins in order:
        if not _signed(ins) or ins.is_literal:
            continue
        own = {ins}.union(*(group.get(m, {m}) for m in _moved_operands(ins) if not m.is_literal))
        group.update(dict.fromkeys(own, own))
        made = isinstance(ins.op, Quantizelinear) and _zero(ins) is not None
        if not (made or _moved_operands(ins)) or not all(u.parent is module and _reads(u, ins) for u in ins.users):
            fixed.add(ins)
    for members in {id(m): m for m in group.values()}.values():
        if not members & fixed and members <= order.keys():
            yield sorted(members, key=order.__getitem__)


def _signed(ins: Instruction) -> bool:
    return isinstance(ins.result, Shape) and ins.result.dtype is dt.int8


def _moved_operands(ins: Instruction) -> tuple[Instruction, ...]:
    """Returns the operands whose elements an instruction moves or selects; it may also use own constants."""
    if isinstance(ins.op, Concat) or (isinstance(ins.op, Pad) and len(ins.inputs) == 1):
        return ins.inputs
    largest = isinstance(ins.op, Pooling) and ins.op.mode == "max"
    return ins.inputs[:1] if ins.op.moves or largest else ()


def _reads(user: Instruction, value: Instruction) -> bool:
    """Returns True if an instruction only reads a value as quantized data."""
    if isinstance(user.op, Dequantizelinear):
        return value not in user.inputs[1:] and _zero(user) is not None
    moved = _moved_operands(user)
    return value in moved and value not in user.inputs[len(moved) :]


def _zero(ins: Instruction) -> Array | None:
    """Returns the zero points of a quantization or dequantization; None if they are not constant."""
    if len(ins.inputs) > 2 and not ins.inputs[2].is_absent:
        given = ins.inputs[2].literal
        return None if given is None else np.asarray(given.value)
    scale = ins.inputs[1].shape
    return None if scale.dynamic() else np.zeros(scale.lens(), np.int8)


def _has_zero_points(values: Sequence[Instruction]) -> bool:
    """Returns True if all readers of the values subtract a nonzero zero point."""
    zeros = [_zero(u) for v in values for u in v.users if isinstance(u.op, Dequantizelinear)]
    return bool(zeros) and all(z is not None and z.any() for z in zeros)


def _convert(module: Module, values: Sequence[Instruction]) -> None:
    for value in values:
        if isinstance(value.op, Quantizelinear):
            module.replace_op(value, value.op.replace(out_type=None))
            _shift_zero(module, value)
            continue
        moves = value.op.replace(value=value.op.value + SHIFT) if isinstance(value.op, Pad) else value.op
        # not inferred again: extents that depend on data keep their symbols
        module.replace_op(value, moves, value.shape.with_dtype(dt.uint8))
        inputs = [_shift_constant(module, value, np.asarray(i.literal.value)) if i.literal is not None and _signed(i) else i
                  for i in value.inputs]  # fmt: skip
        module.rewire(value, inputs)
    for user in dict.fromkeys(u for v in values for u in v.users if isinstance(u.op, Dequantizelinear)):
        _shift_zero(module, user)


def _shift_zero(module: Module, ins: Instruction) -> None:
    zero = _zero(ins)
    assert zero is not None
    module.set_inputs(ins, [*ins.inputs[:2], _shift_constant(module, ins, zero)])


def _shift_constant(module: Module, at: Instruction, values: Array) -> Instruction:
    """Inserts an int8 constant converted to uint8 before an instruction."""
    made = module.add_literal((values.astype(np.int16) + SHIFT).astype(np.uint8))
    module.move(made, at)
    made.sources = at.sources
    return made
