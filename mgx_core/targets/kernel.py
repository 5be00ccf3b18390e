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
    "HostKernel", "Kernel", "Launch", "Reference", "asked", "call_kernel", "called_text", "check_result", "check_unchanged",
    "copied", "op_of",
]  # fmt: skip


class Kernel:
    """Code that a launch runs.

    Required: `name`, and `run` for a target whose runner calls kernels from Python.  A target with an executor of its own adds
    what that executor needs.
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
    taken.  Default: None, all extents follow from those of the operands."""

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        """Returns the result for input values (None for an absent input), a tuple for several results.

        modules: the op's sub-modules; run: evaluates one of them on values.
        """
        raise UnsupportedError(f"kernel {self.name!r} cannot be called from Python")

    def with_op(self, op: Operation) -> Kernel:
        """Returns the same kernel for `op`: its own op with attributes filled in that are known at run time only.

        Default: the kernel itself, which does not look at its op's attributes.
        """
        return self

    def __repr__(self) -> str:
        return self.name


class HostKernel(Kernel):
    """A kernel that is a Python function on arrays."""

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Value]) -> None:
        self.name = name
        self.function = function

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        return self.function(*args)


class Reference(Kernel):
    """An op run by its own reference compute on the host."""

    __slots__ = ("name", "op", "reasons")

    def __init__(self, op: Operation, reasons: Sequence[str] = ()) -> None:
        self.name = f"reference {op.name}"
        self.op = op
        self.reasons = tuple(reasons)

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        return self.op.evaluate(args, modules, run)

    def with_op(self, op: Operation) -> Reference:
        """Returns the same for an op whose symbols have got values."""
        return Reference(op, self.reasons)


def _named(kernel: Kernel, op: Operation) -> str:
    """Returns a kernel with its op and where its code is, for messages."""
    code = kernel.function if isinstance(kernel, HostKernel) else type(kernel)
    return f"kernel {kernel.name!r} of {op!r} (in {getattr(code, '__module__', None) or type(code).__module__})"


def call_kernel(
    kernel: Kernel, op: Operation, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None
) -> Value:
    """Returns what a kernel gives for values.  Errors: PluginError with the kernel and the op for what it raises."""
    try:
        return kernel.run(args, modules, run)
    except (MgxError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{_named(kernel, op)} failed: {type(error).__name__}: {error}") from error


def check_result(kernel: Kernel, op: Operation, declared: AnyShape, value: Value) -> None:
    """Errors: PluginError if a value is not of the type that the program gives the op."""
    wrong = misfit(declared, value)
    if wrong:
        whose = (
            f"the compute of {op!r} ({type(op).__module__})" if isinstance(kernel, Reference) else _named(kernel, op)
        )
        raise PluginError(f"{whose} must give {declared}, got {wrong}")


def copied(args: Sequence[Value]) -> list[Any]:
    """Returns copies of the arrays among operands, for `check_unchanged`; None for all else."""
    return [a.copy() if isinstance(a, np.ndarray) else None for a in args]


def check_unchanged(kernel: Kernel, op: Operation, args: Sequence[Value], before: Sequence[Any]) -> None:
    """Errors: PluginError if a kernel wrote into an operand.  before: `copied` of the operands, or nothing to compare with."""
    for n, (copy, arg) in enumerate(zip(before, args, strict=False)):
        if copy is not None and copy.tobytes() != arg.tobytes():
            raise PluginError(f"{_named(kernel, op)} wrote into its operand {n}; it may write its results alone")


def op_of(ins: Instruction) -> Operation:
    """Returns op that an instruction computes, lowered or not."""
    return ins.op.of if isinstance(ins.op, Launch) else ins.op


class Launch(Operation):
    """A kernel in an op's place; what a lowered module consists of.

    It knows the op it stands for, so that text, reports and re-lowering for another machine can name it.
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
        object.__setattr__(self, "refused", refused)  # by the plans asked before
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
        """Returns what the kernel gives, with the extents that operands have got.

        Errors: those of the op's rule, where extents have become known that do not fit.
        """
        opened = self.result_shape.dynamic()
        if modules and not opened:
            return self.result_shape
        found = self.of.result(xs, modules)
        settled = opened and not found.dynamic()
        return found if settled or isinstance(self.of, GetTupleElem) else self.result_shape

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


def asked(ins: Instruction) -> tuple[str, ...]:
    """Returns the name of the kernel that was asked first for a launch; nothing for other instructions."""
    return (ins.op.kernel.name,) if isinstance(ins.op, Launch) else ()


def called_text(ins: Instruction, kernels: Sequence[str]) -> str:
    """Returns an instruction's text; that of a launch names the kernels that ran for it, not the one that was asked first."""
    if not isinstance(ins.op, Launch) or not kernels:
        return repr(ins)
    where = " on host" if ins.op.place == "host" else ""
    return f"launch[{', '.join(kernels)}{where}]{repr(ins).removeprefix(repr(ins.op))}"
