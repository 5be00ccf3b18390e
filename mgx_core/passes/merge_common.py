"""Merges instructions that compute the same value."""

from __future__ import annotations

from typing import Any

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..records import dataclass
from .interface import Pass

__all__ = ["MergeCommon"]


@dataclass(frozen=True)
class MergeCommon(Pass):
    """Common subexpression elimination: one instruction for all with the same op on the same inputs, literals by value."""

    name: str = "merge-common"

    def apply(self, module: Module) -> bool:
        return self._apply(module, {})

    def _apply(self, module: Module, outer: dict[Any, Instruction]) -> bool:
        seen = dict(outer)
        changed = False
        for ins in module:
            for inner in ins.modules:
                changed |= self._apply(inner, {} if ins.op.fused else seen)  # a group reads its inputs alone
            if ins.is_param or ins.is_return or ins.is_absent or ins.modules or ins.op.random or ins.op.effect:
                continue
            key = _key(ins)
            if key is None:
                continue
            first = seen.setdefault(key, ins)
            if first is not ins and first.result == ins.result:
                first.sources = tuple(dict.fromkeys((*first.sources, *ins.sources)))
                module.replace(ins, first)
                changed = True
        return changed


def _key(ins: Instruction) -> Any:
    if ins.literal is not None:
        value = ins.literal.value
        if not hasattr(value, "tobytes") or value.dtype == object or value.size > 4096:
            return None
        return "literal", ins.result, value.tobytes()
    return ins.op, ins.inputs
