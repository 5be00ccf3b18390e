"""Put a kernel in every op's place."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import PluginError, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from ..passes.interface import Pass
from ..rules.decomposition import decompose
from ..targets.kernel import Kernels, Launch, Reference
from ..types.shape import TupleShape

__all__ = ["UNCHANGED", "Lower"]

UNCHANGED: Final = (Param, Literal, Return, Undefined, Launch)  # ops that lowering leaves unchanged


@dataclass(frozen=True)
class Lower(Pass):
    """Replaces each op by a launch of the kernel that the target's plans pick.

    Control flow stays and its modules are lowered; an op that no plan takes is decomposed if it can be, a group is taken
    apart, and all else is placed on the host; every launch keeps the refusals of the plans asked before.
    validate: kernels called from Python have every result compared with its type, not only the first.
    """

    kernels: Kernels
    context: Any
    validate: bool = False
    name: str = "lower"
    _made: dict[Hashable, Launch] = field(default_factory=dict, init=False, repr=False)

    def apply(self, module: Module) -> bool:
        for ins in module:
            if isinstance(ins.op, UNCHANGED):
                continue
            if ins.op.control:
                for inner in ins.modules:
                    self.apply(inner)
                continue
            self._lower(module, ins)
        return True

    def _lower(self, module: Module, ins: Instruction, outer: tuple[str, ...] = ()) -> None:
        """Lowers one instruction.  outer: the refusals for what it was a part of."""
        shapes = tuple([None if i.is_absent else i.result for i in ins.inputs])
        # the layers of a network ask the same again and again; fresh symbols in a result are each instruction's own
        key = (ins.op, shapes, ins.modules, ins.result, outer)
        made = self._made.get(key)
        if made is None:
            try:
                picked = self.kernels.pick(ins.op, shapes, self.context, ins.modules)
                refused = (*picked.refused, *outer)
                made = Launch(picked.kernel, ins.op, ins.result, picked.plan, refused=refused, validate=self.validate)
            except UnsupportedError as error:
                why = (error.message, *outer)
                parts = decompose(module, ins)
                if isinstance(parts, list):
                    for part in parts:
                        if not (part.is_literal or part.is_absent):
                            self._lower(module, part, why)
                    return
                if self._expand(module, ins, why):
                    return
                why = why if parts is None else (*why, parts.why)
                kernel = Reference(ins.op, why)
                made = Launch(kernel, ins.op, ins.result, "reference", "host", why, self.validate)
            except PluginError as error:
                if ins.sources:
                    error.located(f"node {', '.join(map(repr, ins.sources))}")
                raise
            self._made[key] = made
        module.replace_op(ins, made, ins.result)

    def _expand(self, module: Module, ins: Instruction, outer: tuple[str, ...]) -> bool:
        """Puts a group's members in its place, so that the target may take each on its own."""
        if not isinstance(ins.op, (FusedReduce, Group, PointwiseGroup)):
            return False
        (body,) = ins.modules
        whole = len(body.outputs) == 1  # one member that gives all results
        several = isinstance(ins.result, TupleShape) and not whole
        items = [user for user in ins.users if isinstance(user.op, GetTupleElem)]
        if several and len(items) != len(ins.users):
            return False
        mark = ins.previous
        results = module.inline(body, ins.inputs, before=ins)
        if several:
            for user in items:
                module.replace(user, results[user.op.index])  # type: ignore[attr-defined]
                module.remove(user)
        else:
            module.replace(ins, results[0])
        made = ins.previous
        members = []
        while made is not None and made is not mark:
            members.append(made)
            made = made.previous
        for member in reversed(members):
            if not (member.is_literal or member.is_absent):
                self._lower(module, member, outer)
        return True
