"""Canonicalizes attributes and removes identities."""

from __future__ import annotations

from ..ir.instruction import Instruction, infer_shape
from ..ir.module import Module, nested
from ..ir.symbols import found_extents
from ..ops.operation import Operation
from ..ops.pointwise import Identity
from ..records import dataclass
from ..types.shape import Shape
from .interface import Pass

__all__ = ["Normalize", "in_normal_form", "normalized"]


@dataclass(frozen=True)
class Normalize(Pass):
    """Makes axes non-negative and removes identities.

    Ops with other attributes to canonicalize define `Operation.normal`.
    """

    name: str = "normalize"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            for ins in inner:
                changed |= self._normalize(inner, ins)
        return changed

    def _normalize(self, module: Module, ins: Instruction) -> bool:
        if isinstance(ins.op, Identity) and ins not in module.outputs:
            module.replace(ins, ins.inputs[0])
            return True
        op = normal_form(ins)
        if op is ins.op or op == ins.op:
            return False
        result = infer_shape(op, ins.inputs, ins.modules)
        # data-dependent extents keep their symbols, which other ops refer to
        module.replace_op(ins, op, result.substitute(found_extents(result, ins.result)))
        return True


def normal_form(ins: Instruction) -> Operation:
    """Returns `Operation.normal` of the op, or the op with non-negative axes."""
    if ins.op.normal is not None:
        return ins.op.normal(*(i.result for i in ins.inputs))
    axes = {f.name for f in ins.op.fields} & {"axis", "axes"}
    if not axes or not ins.inputs or not isinstance(ins.inputs[0].result, Shape) or not ins.inputs[0].result.ranked:
        return ins.op
    rank = ins.inputs[0].result.rank
    changes: dict[str, int | tuple[int, ...]] = {}
    for name in axes:
        value = getattr(ins.op, name)
        if isinstance(value, int) and -rank <= value < 0:
            changes[name] = value + rank
        elif isinstance(value, tuple) and any(isinstance(a, int) and -rank <= a < 0 for a in value):
            changes[name] = tuple(a + rank if a < 0 else a for a in value)
    return ins.op.replace(**changes) if changes else ins.op


def normalized(module: Module) -> str | None:
    """Invariant: no identity is left, except those that a module returns."""
    for inner in nested(module):
        for ins in inner:
            if isinstance(ins.op, Identity) and ins not in inner.outputs:
                return f"{ins!r} is left"
    return None


def in_normal_form(module: Module) -> str | None:
    """Invariant: every op is in its normal form, e.g. no axis is negative."""
    for inner in nested(module):
        for ins in inner:
            if normal_form(ins) != ins.op:
                return f"{ins!r} is left, where {normal_form(ins)!r} is required"
    return None
