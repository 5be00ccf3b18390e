"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..records import dataclass
from .interface import Pass

__all__ = ["MergeCommon"]


@dataclass(frozen=True)
class MergeCommon(Pass):
    """Merges instructions with the same op and the same inputs; literals are compared by value."""

    name: str = "merge-common"

    def apply(self, module: Module) -> bool:
        merged: dict[Instruction, Instruction] = {}
        _merge(module, {}, merged)
        names: dict[Instruction, dict[str, None]] = {}
        for ins, first in merged.items():
            names.setdefault(first, dict.fromkeys(first.sources)).update(dict.fromkeys(ins.sources))
        for first, sources in names.items():
            first.sources = tuple(sources)
        module.replace_each(merged)
        return bool(merged)


def _merge(module: Module, outer: dict[Any, Instruction], merged: dict[Instruction, Instruction]) -> None:
    """Maps redundant instructions to the first equal one; does not change the module."""
    seen = dict(outer)
    for ins in module:
        for inner in ins.modules:
            _merge(inner, {} if ins.op.fused else seen, merged)  # a group reads only its inputs
        if ins.is_param or ins.is_return or ins.is_absent or ins.modules or ins.op.random or ins.op.effect:
            continue
        key = _key(ins, merged)
        if key is None:
            continue
        first = seen.setdefault(key, ins)
        if first is not ins and first.result == ins.result:
            merged[ins] = first


def _key(ins: Instruction, merged: dict[Instruction, Instruction]) -> Any:
    if ins.literal is not None:
        value = ins.literal.value
        if not hasattr(value, "tobytes") or value.dtype == object or value.size > 4096:
            return None
        return "literal", ins.result, value.tobytes()
    return ins.op, tuple([merged.get(i, i) for i in ins.inputs])
