"""Lowers a module: replaces each op by a launch of the kernel that the target selects for it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from ..cache import Recent
from ..errors import No, PluginError, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.control import FusedReduce, Group, PointwiseGroup
from ..passes.interface import Pass
from ..records import dataclass
from ..rules.decomposition import decompose
from ..targets.groups import inline_group
from ..targets.kernel import Launch, Reference
from ..targets.kernel_table import Kernels

__all__ = ["UNCHANGED", "Lower"]

MOST: Final = 4096  # cached launches
DEEPEST: Final = 64  # ops within ops
UNCHANGED: Final = (Param, Literal, Return, Undefined, Launch)  # ops that lowering leaves unchanged


@dataclass(frozen=True)
class Lower(Pass):
    """Replaces each op by a launch of the kernel that the target's plans select.

    Modules of control flow are lowered recursively.  If every plan declines, an op is decomposed, a group is expanded, and
    anything else runs on the host; launches keep the reasons of the plans that declined.
    validate: check every result of kernels called from Python, not only the first.
    plugged: plans of plugins; a group is expanded if one of them supports a member and none supports the group.
    made: cache of launches, shared by equal layers of a network and by instances.
    """

    kernels: Kernels
    context: Any
    validate: bool = False
    plugged: Kernels | None = None
    made: Recent[Launch] = field(default_factory=lambda: Recent(MOST), repr=False)
    name: str = "lower"

    def apply(self, module: Module) -> bool:
        for ins in module:
            if isinstance(ins.op, UNCHANGED):
                continue
            if ins.op.control:
                for inner in ins.modules:
                    self.apply(inner)
                continue
            try:
                self._lower(module, ins)
            except RecursionError:
                if ins.op.decompose is None:
                    raise
                raise PluginError(
                    f"the decomposition of {ins.op!r} ({type(ins.op).__module__}) does not terminate: it leads back to the op, "
                    "which no kernel supports"
                ).at_nodes(ins.sources) from None
        return True

    def _lower(self, module: Module, ins: Instruction, outer: tuple[str, ...] = ()) -> None:
        """Lowers one instruction.  outer: refusals of the groups and ops that it is a part of, one of each.

        Errors: RecursionError if they are nested too deeply.
        """
        if len(outer) > DEEPEST:  # before Python's own limit, which a plugin's function may reach first
            raise RecursionError
        shapes = tuple([None if i.is_absent else i.result for i in ins.inputs])
        # the result is part of the key, since instructions may define symbols
        key = (ins.op, shapes, ins.modules, ins.result, outer)
        made = self.made.get(key)
        if made is None:
            try:
                why = self._reason_to_expand(ins)
                if why and self._expand(module, ins, (why, *outer)):
                    return
                picked = self.kernels.pick(ins.op, shapes, self.context, ins.modules)
                refused = (*picked.refused, *outer)
                made = Launch(picked.kernel, ins.op, ins.result, picked.plan, refused=refused, validate=self.validate)
            except UnsupportedError as error:
                reasons = (error.message, *outer)
                parts = decompose(module, ins)
                if isinstance(parts, list):
                    for part in parts:
                        if not (part.is_literal or part.is_absent):
                            self._lower(module, part, reasons)
                    return
                if self._expand(module, ins, reasons):
                    return
                reasons = reasons if parts is None else (*reasons, parts.why)
                kernel = Reference(ins.op, reasons)
                made = Launch(kernel, ins.op, ins.result, "reference", "host", reasons, self.validate)
            except PluginError as error:
                error.at_nodes(ins.sources)
                raise
            self.made.put(key, made)
        module.replace_op(ins, made, ins.result)

    def _reason_to_expand(self, ins: Instruction) -> str:
        """Returns the reason to expand a group: a plugin's plan supports a member and none supports the group; else empty."""
        if self.plugged is None or not isinstance(ins.op, (FusedReduce, Group, PointwiseGroup)):
            return ""
        if self._plugged_plan(ins):
            return ""
        for body in nested(ins.modules[0]):
            for member in body:
                if not isinstance(member.op, UNCHANGED) and (plan := self._plugged_plan(member)):
                    return f"the group is expanded, since plan {plan!r} of a plugin supports its member {member.op!r}"
        return ""

    def _plugged_plan(self, ins: Instruction) -> str:
        assert self.plugged is not None
        shapes = [None if i.is_absent else i.result for i in ins.inputs]
        answers = self.plugged.offers(ins.op, shapes, self.context, ins.modules)
        return next((name for name, answer in answers if not isinstance(answer, No)), "")

    def _expand(self, module: Module, ins: Instruction, outer: tuple[str, ...]) -> bool:
        """Replaces a group by its members and lowers each; returns False if it cannot be expanded."""
        mark = ins.previous
        if not inline_group(module, ins):
            return False
        made = ins.previous
        members = []
        while made is not None and made is not mark:
            members.append(made)
            made = made.previous
        for member in reversed(members):
            if not (member.is_literal or member.is_absent):
                self._lower(module, member, outer)
        return True
