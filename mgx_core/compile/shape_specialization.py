"""Simplifies a module once its input shapes are known: selects modules, takes branches on extents, expands rank-dependent ops.

Exporters emit an `if` on an extent for an axis of extent one (a squeeze, an optional state).  Its branches differ in rank, so
ranks of everything after it are unknown until the input shapes are known.
"""

from __future__ import annotations

from typing import Final

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ir.ordering import captures
from ..ir.symbols import introduced
from ..ops.control import If
from ..ops.fill import DimensionsOf
from ..ops.modules import SelectModule
from ..passes.expand_composites import SpellOut
from ..passes.inline_branches import InlineBranches
from ..passes.resolve_extents import ResolveExtents
from ..passes.unroll_loops import UnrollLoops, numbers_decide_extents
from ..rules.shapes import SHAPES
from ..types.dim import fresh_prefix
from ..types.shape import symbols_in

__all__ = [
    "needs_extents",
    "needs_shapes",
    "select_modules",
    "selects_modules",
    "specialize_ranks",
]

_READERS: Final = SHAPES.roots  # ops whose operands may determine extents


def needs_shapes(module: Module) -> bool:
    """Returns True if a branch on extents, or an op of unknown rank, may become static with the shapes of the inputs."""
    for inner in nested(module):
        for ins in inner:
            if ins.op.module_for is not None or (isinstance(ins.op, If) and not _depends_on_data(ins.inputs[0])):
                return True
    return False


def needs_extents(module: Module) -> bool:
    """Returns True if extents can be computed from numeric input extents, but not symbolically.

    Examples: extents computed in floats, ranges of a computed length, slices of that length, extents that depend on a loop's
    iteration number.
    """
    for ins in module:
        if numbers_decide_extents(ins):
            return True
        if ins.inputs and introduced(ins):
            decides = ins.inputs[1:] if isinstance(ins.op, _READERS) else ins.inputs
            if not any(_depends_on_data(i) for i in decides):
                return True
    return False


def _depends_on_data(value: Instruction, counts: bool = False) -> bool:
    """Returns True if a value depends on elements of parameters, not only on extents and constants.

    counts: whether extents that are still computed at run time depend on elements, since those of parameters are known.
    """
    waiting, met = [value], {value}
    while waiting:
        ins = waiting.pop()
        if ins.is_param or ins.op.control or any(captures(m) for m in ins.modules):
            return True
        if isinstance(ins.op, DimensionsOf):
            if counts and any(fresh_prefix(name) is not None for name in symbols_in(ins.inputs[0].result)):
                return True
        else:
            waiting += [i for i in ins.inputs if i not in met]
            met.update(ins.inputs)
    return False


def specialize_ranks(module: Module) -> Module | None:
    """Takes branches on extents and expands rank-dependent ops; returns the new module, or None if there were none.

    module: its parameters have the shapes of a run; it is modified.  What reads the results of a branch that depends on data is
    copied into both branches if they differ in rank; a branch that it does not fit fails if it runs.
    """
    from .sink_into_branches import replace_misfits, sink_into_branches

    specialized = None
    while True:
        ResolveExtents().apply(module)
        changed = InlineBranches().apply(module) | SpellOut().apply(module) | UnrollLoops().apply(module)
        if (
            not changed
            and not sink_into_branches(module, lambda ins: _depends_on_data(ins.inputs[0], counts=True))
            and (specialized is None or not replace_misfits(module))
        ):
            return specialized
        module.sweep()
        # inference finds the ranks of later values only now, and these may decide more branches
        specialized = module = module.clone(parameters={name: p.result for name, p in module.parameters.items()})


def selects_modules(module: Module) -> bool:
    """Returns True if the module contains a `SelectModule`, which selects by the shapes of values."""
    return any(isinstance(ins.op, SelectModule) for inner in nested(module) for ins in inner)


def select_modules(module: Module) -> Module:
    """Inlines the modules selected by the parameters' shapes; returns the new module.

    They were already optimized with the program, so only extents are inferred again.
    """
    if not InlineBranches().apply(module):
        return module
    module.sweep()
    return module.clone(parameters={name: p.result for name, p in module.parameters.items()})
