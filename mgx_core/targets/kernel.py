"""Kernels: a target's implementations of ops, their selection, and `Launch`, the op that represents a selected kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import MgxError, PluginError, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.control import GetTupleElem
from ..ops.operation import Operation, Run
from ..types.argument import Value
from ..types.shape import AnyShape
from .results import misfit

__all__ = [
    "HostKernel", "Kernel", "Launch", "Reference", "call_kernel", "called_text", "check_result", "check_unchanged", "copied",
    "op_of", "preferred_kernels",
]  # fmt: skip


class Kernel:
    """The implementation that a launch runs.

    Required: `name`, and `run` for targets whose runner calls kernels from Python.  Targets with their own executor add the
    members that it needs.
    """

    __slots__ = ()

    name: str
    """The kernel in one line, for reports: ``onednn conv nChw16c relu``."""

    reasons: tuple[str, ...] = ()
    """The reasons for which an op that this kernel runs on the host got no other kernel."""

    emit: Callable[..., Any] | None = None
    """``emit(emitter, op, modules, args)``: adds the steps of the op to an emission of concrete shapes.

    Returns the results' values, or No.  Default: None, the kernel is called from Python."""

    open_axis: int | None = None
    """The axis of the results whose extent depends on data.

    `emit` then gives memory for the most that there can be (`Operation.bounded`), and last an int64 [1] with the extent that is
    taken; results whose extents are static are complete.  Default: None, all extents follow from those of the operands."""

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        """Computes the result for input values (None for an absent input), a tuple for several results.

        modules: the op's sub-modules; run: evaluates one of them on values.
        """
        raise UnsupportedError(f"kernel {self.name!r} cannot be called from Python")

    def with_op(self, op: Operation) -> Kernel:
        """Returns the kernel specialized for `op`, its own op with run-time attributes filled in.

        Default: the kernel itself, which does not depend on the op's attributes.
        """
        return self

    def __repr__(self) -> str:
        return self.name


class HostKernel(Kernel):
    """A kernel implemented by a Python function on arrays."""

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Value]) -> None:
        self.name = name
        self.function = function

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        return self.function(*args)


class Reference(Kernel):
    """Runs an op's reference implementation on the host."""

    __slots__ = ("name", "op", "reasons")

    def __init__(self, op: Operation, reasons: Sequence[str] = ()) -> None:
        self.name = f"reference {op.name}"
        self.op = op
        self.reasons = tuple(reasons)

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        return self.op.evaluate(args, modules, run)

    def with_op(self, op: Operation) -> Reference:
        """Returns the kernel for the op with concrete extents."""
        return Reference(op, self.reasons)


def _named(kernel: Kernel, op: Operation) -> str:
    """Describes a kernel for messages: its op and the location of its code."""
    code = kernel.function if isinstance(kernel, HostKernel) else type(kernel)
    return f"kernel {kernel.name!r} of {op!r} (in {getattr(code, '__module__', None) or type(code).__module__})"


def call_kernel(
    kernel: Kernel, op: Operation, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None
) -> Value:
    """Calls a kernel.  Errors: PluginError that names kernel and op, for exceptions that it raises."""
    try:
        return kernel.run(args, modules, run)
    except (MgxError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{_named(kernel, op)} failed: {type(error).__name__}: {error}") from error


def check_result(kernel: Kernel, op: Operation, declared: AnyShape, value: Value) -> None:
    """Errors: PluginError if a result does not have the type that the program states."""
    wrong = misfit(declared, value)
    if wrong:
        whose = (
            f"the compute of {op!r} ({type(op).__module__})" if isinstance(kernel, Reference) else _named(kernel, op)
        )
        raise PluginError(f"{whose} must return {declared}, got {wrong}")


def copied(args: Sequence[Value]) -> list[Any]:
    """Copies the arrays among operands, for `check_unchanged`; None for others."""
    return [a.copy() if isinstance(a, np.ndarray) else None for a in args]


def check_unchanged(kernel: Kernel, op: Operation, args: Sequence[Value], before: Sequence[Any]) -> None:
    """Errors: PluginError if a kernel modified an operand.  before: `copied` of the operands, empty to skip the check."""
    for n, (copy, arg) in enumerate(zip(before, args, strict=False)):
        if copy is not None and copy.tobytes() != arg.tobytes():
            raise PluginError(f"{_named(kernel, op)} wrote into its operand {n}; it may write only its results")


def op_of(ins: Instruction) -> Operation:
    """Returns the op that an instruction computes, lowered or not."""
    return ins.op.of if isinstance(ins.op, Launch) else ins.op


class Launch(Operation):
    """The op of lowered modules: a selected kernel in place of an op.

    It keeps the original op, for text, reports and re-lowering for another machine.
    """

    __slots__ = ("_checked", "_text", "kernel", "of", "place", "plan", "refused", "result_shape", "validate")

    name = "launch"

    def __init__(
        self,
        kernel: Kernel,
        of: Operation,
        result_shape: AnyShape,
        plan: str = "",
        place: str = "target",
        refused: tuple[str, ...] = (),
        validate: bool = False,
    ) -> None:
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "result_shape", result_shape)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "place", place)  # "target", or "host" for what the target declined
        object.__setattr__(self, "refused", refused)  # by the plans tried before
        object.__setattr__(self, "validate", validate)  # compare every result with result_shape, not only the first
        object.__setattr__(self, "_text", "")
        object.__setattr__(self, "_checked", False)

    kernel: Kernel
    of: Operation
    result_shape: AnyShape
    plan: str
    place: str
    refused: tuple[str, ...]
    validate: bool
    _text: str
    _checked: bool
    takes_modules = True

    @property
    def text(self) -> str:
        """The op as text, for reports."""
        if not self._text:
            object.__setattr__(self, "_text", repr(self.of))
        return self._text

    def check_arity(self, count: int) -> None:
        self.of.check_arity(count)

    def infer(self, *xs: AnyShape, modules: Sequence[Any] = ()) -> AnyShape:
        """Returns the result type for the operands' actual extents.

        Errors: those of the op's shape inference if the actual extents do not fit.
        """
        opened = self.result_shape.dynamic()
        if modules and not opened:
            return self.result_shape
        found = self.of.result(xs, modules)
        known = opened and not found.dynamic()
        return found if known or isinstance(self.of, GetTupleElem) else self.result_shape

    def substitute(self, values: Any) -> Launch:
        op = self.of.substitute(values)
        if op is self.of:
            return self
        kernel = self.kernel.with_op(op)
        if kernel is self.kernel:
            return self
        return Launch(kernel, op, self.result_shape, self.plan, self.place, self.refused, self.validate)

    def symbols(self) -> set[str]:
        return self.of.symbols()

    def evaluate(self, args: Sequence[Value], modules: Sequence[Any] = (), run: Run | None = None) -> Value:
        checked = self.validate and not isinstance(self.kernel, Reference)
        before = copied(args) if checked else ()
        value = call_kernel(self.kernel, self.of, args, modules, run)
        check_unchanged(self.kernel, self.of, args, before)
        if not self._checked or self.validate:
            check_result(self.kernel, self.of, self.result_shape, value)
            object.__setattr__(self, "_checked", True)
        return value

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        where = " on host" if self.place == "host" else ""
        return f"launch[{self.kernel.name}{where}]"


def preferred_kernels(ins: Instruction) -> tuple[str, ...]:
    """Returns the name of a launch's preferred kernel; empty for other instructions."""
    return (ins.op.kernel.name,) if isinstance(ins.op, Launch) else ()


def called_text(ins: Instruction, kernels: Sequence[str]) -> str:
    """Returns an instruction's text; a launch names the kernels that actually ran, not the preferred one."""
    if not isinstance(ins.op, Launch) or not kernels:
        return repr(ins)
    where = " on host" if ins.op.place == "host" else ""
    return f"launch[{', '.join(kernels)}{where}]{repr(ins).removeprefix(repr(ins.op))}"
