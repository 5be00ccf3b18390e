"""Settles what waits for the shapes of a run: selected modules, branches on extents, ops of unknown rank, extents through floats.

Exporters write an `if` on an extent where an axis of one element goes (a squeeze, a state that may be absent).  Its branches
differ in rank, so everything behind it has an unknown rank, until the shapes of the inputs are known.
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
from ..passes.inline_branches import InlineBranches
from ..passes.settle_extents import SettleExtents
from ..passes.spell_out import SpellOut
from ..passes.unroll_loops import UnrollLoops, numbers_decide_extents
from ..rules.shapes import SHAPES

__all__ = [
    "select_modules",
    "selects_modules",
    "settle_ranks",
    "waits_for_extents",
    "waits_for_shapes",
]

_READERS: Final = SHAPES.roots  # they may read extents


def waits_for_shapes(module: Module) -> bool:
    """Returns True if a branch on extents, or an op of unknown rank, may become static with the shapes of the inputs."""
    for inner in nested(module):
        for ins in inner:
            if ins.op.module_for is not None or (isinstance(ins.op, If) and not _depends_on_data(ins.inputs[0])):
                return True
    return False


def waits_for_extents(module: Module) -> bool:
    """Returns True if extents may follow from those of the inputs in numbers, where no rule follows symbols.

    As extents that go through floats, ranges of a computed length, slices as long as these, and those that the number of a
    loop's trip decides.
    """
    for ins in module:
        if numbers_decide_extents(ins):
            return True
        if ins.inputs and introduced(ins):
            decides = ins.inputs[1:] if isinstance(ins.op, _READERS) else ins.inputs
            if not any(_depends_on_data(i) for i in decides):
                return True
    return False


def _depends_on_data(value: Instruction) -> bool:
    """Returns True if a value is computed from elements of parameters, and not from extents and constants alone."""
    waiting, met = [value], {value}
    while waiting:
        ins = waiting.pop()
        if ins.is_param or ins.op.control or any(captures(m) for m in ins.modules):
            return True
        if not isinstance(ins.op, DimensionsOf):
            waiting += [i for i in ins.inputs if i not in met]
            met.update(ins.inputs)
    return False


def settle_ranks(module: Module) -> Module | None:
    """Returns a module in which branches on extents are taken and ops that waited for ranks are spelled out; None if none was.

    module: its parameters have the shapes of a run; it is changed.  What still depends on data stays as it is.
    """
    settled = None
    while True:
        SettleExtents().apply(module)
        if not (InlineBranches().apply(module) | SpellOut().apply(module) | UnrollLoops().apply(module)):
            return settled
        module.sweep()
        # the ranks of what follows are known only now, and decide further branches
        settled = module = module.clone(parameters={name: p.result for name, p in module.parameters.items()})


def selects_modules(module: Module) -> bool:
    """Returns True if a module is selected by the shapes of values somewhere."""
    return any(isinstance(ins.op, SelectModule) for inner in nested(module) for ins in inner)


def select_modules(module: Module) -> Module:
    """Returns a module in which the modules that its parameters' shapes select are in the selections' places.

    They were optimised with the program, so that nothing but the extents of what follows is to be found again.
    """
    if not InlineBranches().apply(module):
        return module
    module.sweep()
    return module.clone(parameters={name: p.result for name, p in module.parameters.items()})
