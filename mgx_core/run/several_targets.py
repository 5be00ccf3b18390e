"""Runs one program on several targets: each partition runs separately, and values pass between them through host memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ..errors import ParameterError
from ..ir.extract import extract
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.control import GetTupleElem
from ..ops.modules import RunOnTarget
from ..ops.operation import Operation, Run
from ..options import CompileOptions
from ..targets.calls import target_and_context
from ..targets.kernel import Kernel
from ..targets.kernel_table import Kernels
from ..targets.target import Target
from ..types.argument import Value
from .compile_module import compile_module
from .executable import Executable
from .partition import in_parts

__all__ = ["Assignment", "compile_for_several"]

Assignment: TypeAlias = "Mapping[Instruction, int] | Callable[[Instruction], int]"


def compile_for_several(
    module: Module, targets: Sequence[Any], assignment: Assignment, options: CompileOptions, output_names: list[str]
) -> Executable:
    """Returns an executable for a copy of `module` in which each instruction runs on the target that it is assigned to.

    targets: targets or contexts; assignment: index in `targets` by instruction, as a mapping (0 for missing instructions) or a
    function.  Instructions inside a `run_on_target` stay on its target.
    Errors: ParameterError for an index out of range.
    """
    if not options.offload_copy:
        raise ParameterError(
            "several targets exchange values in host memory: offload_copy=False requires a single target"
        )
    copy = module.clone()
    places = {ours: _place(theirs, assignment, len(targets)) for ours, theirs in zip(copy, module, strict=True)}
    parts = in_parts(copy, lambda ins: None if isinstance(ins.op, RunOnTarget) else places[ins])
    for n, part in enumerate(parts):
        if isinstance(part[0].op, RunOnTarget):
            _move(copy, part)
        else:
            _outline(copy, part, f"part_{n}", places[part[0]])
    copy.sweep()
    return compile_module(copy, SeveralTargets(targets, options), CompileOptions(optimize=False), output_names)


def _place(ins: Instruction, assignment: Assignment, count: int) -> int:
    found = assignment.get(ins, 0) if isinstance(assignment, Mapping) else assignment(ins)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < count:
        raise ParameterError(
            f"{ins!r} is assigned to {found!r}; the index of a target from 0 to {count - 1} is required"
        )
    return found


def _move(module: Module, part: list[Instruction]) -> None:
    """Moves a `run_on_target` of the original program and the elements of its result to the end of the module."""
    for ins in part:
        module.replace(ins, module.add_like(ins, ins.inputs, ins.modules))


def _outline(module: Module, part: list[Instruction], name: str, place: int) -> None:
    """Replaces a part by a `run_on_target` at the end of the module."""
    inside = set(part)
    returned = set(module.outputs)
    results = [i for i in part if i in returned or any(u not in inside for u in i.users)]
    body, taken = extract(part, results, name)
    made = module.add(RunOnTarget(target_id=place), *taken, modules=[body])
    for n, result in enumerate(results):
        module.replace(result, module.add(GetTupleElem(index=n), made))


class SeveralTargets(Target):
    """Runs each `run_on_target` on its target, and all other instructions on the host."""

    name = "several"

    def __init__(self, targets: Sequence[Any], options: CompileOptions) -> None:
        self.targets = [target_and_context(t) for t in targets]
        self.options = options

    def kernels(self, context: Any) -> Kernels:
        plans = Kernels(self.name)

        @plans.plan(RunOnTarget)
        def elsewhere(op: RunOnTarget, inputs: Sequence[Any], context: Any, modules: Sequence[Module]) -> Kernel:
            if not 0 <= op.target_id < len(self.targets):
                raise ParameterError(
                    f"target_id must be the index of a target from 0 to {len(self.targets) - 1}, got {op.target_id}"
                )
            target, its_context = self.targets[op.target_id]
            return ExecutableKernel(op, target, compile_module(modules[0], its_context, self.options))

        return plans


class ExecutableKernel(Kernel):
    """A module compiled for another target."""

    def __init__(self, op: Operation, target: Target, executable: Executable) -> None:
        self.name = f"part on target {target.name!r}"
        self.op = op
        self.executable = executable

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        return tuple(self.executable.run_values(args))
