"""Invariants before and after the stages: functions of a module that describe the violation, or return None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..ir.module import Module, nested
from ..ir.ordering import captures
from ..ir.verify import verify
from ..rules.engine import Rewriter, Rules
from ..targets.kernel_table import Kernels
from ..types.shape import AnyShape, TupleShape, same_type
from .lower import UNCHANGED

__all__ = ["Invariant", "claimed", "groups", "lowered", "simplified", "well_formed"]

Invariant: TypeAlias = Callable[[Module], str | None]


def well_formed(module: Module) -> str | None:
    """Checks with `verify`: instructions are ordered, use lists are consistent, and shapes match the ops' shape inference."""
    wrong = verify(module)
    return wrong[0] if wrong else None


def simplified(rules: Rules) -> Invariant:
    """Returns the invariant that no rule applies, even to instructions created by later passes."""

    def holds(module: Module) -> str | None:
        """No rule fires any more."""
        rewriter = Rewriter(rules)
        rewriter.apply(module.clone())
        fired = rewriter.tally.fired.most_common(1)
        return f"rule {fired[0][0]!r} still fires" if fired else None

    return holds


def claimed(kernels: Callable[[], Kernels]) -> Invariant:
    """Returns the invariant that each op has a kernel, a decomposition or a reference implementation."""

    def holds(module: Module) -> str | None:
        """Each op has a kernel plan of the target, a decomposition, or a reference implementation for the host."""
        offered = kernels()
        for inner in nested(module):
            for ins in inner:
                op = ins.op
                if isinstance(op, UNCHANGED) or op.control or op.fused or op.decompose or op.compute:
                    continue
                if not offered.plans(op):
                    return f"{ins!r}: no plan of target {offered.target!r}, no decomposition and no reference compute"
        return None

    return holds


def groups(module: Module) -> str | None:
    """A group has one module, which takes the group's inputs, returns its result and captures nothing."""
    for inner in nested(module):
        for ins in inner:
            if not ins.op.fused:
                continue
            if len(ins.modules) != 1:
                return f"{ins!r} has {len(ins.modules)} modules, one is required"
            (body,) = ins.modules
            taken = [p.result for p in body.parameters.values()]
            if len(taken) != len(ins.inputs) or not all(map(same_type, taken, (i.result for i in ins.inputs))):
                return f"{ins!r}: its module takes {', '.join(map(str, taken))}"
            given: AnyShape = body.outputs[0].result if len(body.outputs) == 1 else TupleShape(body.output_shapes())
            if not same_type(given, ins.result):
                return f"{ins!r}: its module returns {given}"
            if captures(body):
                return f"{ins!r}: its module reads {captures(body)[0]!r} from outside"
    return None


def lowered(module: Module) -> str | None:
    """Parameters, literals, launches and control flow, nothing else."""
    for ins in module:
        if isinstance(ins.op, UNCHANGED):
            continue
        if not ins.op.control:
            return f"{ins!r} is left"
        for inner in ins.modules:
            wrong = lowered(inner)
            if wrong is not None:
                return wrong
    return None
