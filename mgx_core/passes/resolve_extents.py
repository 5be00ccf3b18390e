"""Resolves extents: replaces ops that read static extents by constants, and extents that a product requires to equal others."""

from __future__ import annotations

import numpy as np

from ..ir.instruction import Instruction, infer_shape
from ..ir.module import Module, nested
from ..ir.symbols import learn_symbols
from ..ops.fill import DimensionsOf
from ..ops.linear import Dot
from ..records import dataclass
from ..rules.shapes import SHAPES
from ..types.dim import Dim, broadcasts
from ..types.shape import Shape, symbols_in
from ..types.traced_int import TracedInt
from .fold_constants import FoldConstants
from .inline_branches import InlineBranches
from .interface import Pass
from .rewrite import Rewrite
from .unroll_loops import UnrollLoops

__all__ = ["ResolveExtents", "UnifyExtents", "with_known_extents"]


@dataclass(frozen=True)
class ResolveExtents(Pass):
    """Replaces `dimensions_of` static shapes by literals and folds their uses; the first pass of an instance.

    Traced extents are known when the instance runs.
    """

    name: str = "resolve-extents"

    def apply(self, module: Module) -> bool:
        found: list[Instruction] = []
        for inner in list(nested(module)):
            for ins in inner:
                shape = ins.inputs[0].result if isinstance(ins.op, DimensionsOf) else None
                if not isinstance(shape, Shape) or shape.dynamic() or any(type(n) is TracedInt for n in shape.dims):
                    continue
                value = np.asarray(ins.op.evaluate([np.broadcast_to(np.int8(0), shape.lens())]))
                literal = inner.add_literal(value, before=ins)
                inner.replace(ins, literal)
                found.append(literal)
        FoldConstants().follow(found)
        return bool(found)


def with_known_extents(module: Module) -> Module:
    """Returns the module with all extents, constants and branches resolved that follow from static extents.

    module: has parameters of concrete shapes; modified in place.  Data-dependent extents remain symbolic.
    """
    known: set[tuple[int, int, int]] = set()
    while True:
        ResolveExtents().apply(module)
        changed = Rewrite(SHAPES).apply(module)
        FoldConstants().apply(module)
        changed |= InlineBranches().apply(module) | UnrollLoops().apply(module)
        resolved = _places(module, _resolved(module))
        if not changed and resolved <= known:
            return module
        known |= resolved
        module.sweep()
        module = module.clone(parameters={name: p.result for name, p in module.parameters.items()})


def _places(module: Module, symbols: set[str]) -> set[tuple[int, int, int]]:
    """Returns where symbols are first mentioned: size of the module, position of the instruction, number of symbols.

    Names do not identify the symbols of data-dependent extents: every copy of a loop's results has new ones.
    """
    if not symbols:
        return set()
    waiting, found = set(symbols), list[tuple[int, int]]()
    for at, ins in enumerate(module):
        met = waiting & symbols_in(ins.result)
        if met:
            found.append((at, len(met)))
            waiting -= met
    return {(len(module), at, count) for at, count in found}


def _resolved(module: Module) -> set[str]:
    """Returns the symbols that static operands determine but that still appear in later shapes."""
    symbols: dict[str, Dim] = {}
    for ins in module:
        if ins.is_param or ins.is_literal or ins.is_return or ins.is_absent:
            continue
        if not ins.modules:
            if ins.result.dynamic():
                learn_symbols(ins.result, infer_shape(ins.op, ins.inputs), symbols)
        elif ins.op.fused:
            for p, i in zip(ins.modules[0].parameters.values(), ins.inputs, strict=True):
                learn_symbols(p.result, i.result, symbols)
    return {name for name, d in symbols.items() if isinstance(d, int)}


@dataclass(frozen=True)
class UnifyExtents(Pass):
    """Replaces an extent ``broadcast(n, m)`` by n where a product requires it to be n.

    The scores of a decoder have past + new columns, its mask as many as the caller has given: their sum broadcasts one to the
    other, and the product with the values requires past + new.  Attention is fused only where these extents are equal.
    """

    name: str = "unify-extents"

    def apply(self, module: Module) -> bool:
        found: dict[str, Dim] = {}
        for ins in module:
            if isinstance(ins.op, Dot):
                rows, columns = ins.inputs[1].shape.dims[-2], ins.inputs[0].shape.dims[-1]
                for whole, part in ((rows, columns), (columns, rows)):
                    if whole != part and part in broadcasts(whole):
                        found[str(whole)] = part
        if not found:
            return False
        outputs = list(module.outputs)
        copies = module.inline(module.clone(found), list(module.parameters.values()), _end(module))
        for old, new in zip(outputs, copies, strict=True):
            if old is not new and not old.is_param:
                module.replace(old, new)
        module.sweep()
        return True


def _end(module: Module) -> Instruction | None:
    """Returns the return instruction of a module."""
    return next((ins for ins in module if ins.is_return), None)
