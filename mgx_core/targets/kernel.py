"""Kernels: what a target offers for an op, how one is picked, and the op that stands for a picked one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import DeviceError, MgxError, No, ParameterError, PluginError, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation, Run
from ..options import CompileOptions
from ..types.argument import Value
from ..types.shape import AnyShape
from .results import misfit

__all__ = ["HostKernel", "Kernel", "Kernels", "Launch", "Picked", "Reference", "call_kernel", "check_result", "op_of"]


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


class HostKernel(Kernel):
    """A kernel that is a Python function on arrays."""

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Value]) -> None:
        self.name = name
        self.function = function

    def run(self, args: Sequence[Value], modules: Sequence[Module] = (), run: Run | None = None) -> Value:
        return self.function(*args)

    def __repr__(self) -> str:
        return self.name


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
        """The same for an op whose symbols have got values."""
        return Reference(op, self.reasons)

    def __repr__(self) -> str:
        return self.name


Plan = Callable[..., "Kernel | No"]


class Picked(NamedTuple):
    """The kernel that was picked, the plan that made it, and the refusals of the plans asked before."""

    kernel: Kernel
    plan: str
    refused: tuple[str, ...]


class Kernels:
    """A target's plans by op class, in order of preference; a value, joined with ``+``."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._plans: dict[type[Operation], list[Plan]] = {}
        self._any: list[Plan] = []
        self._options: CompileOptions | None = None
        self._asked: dict[type[Operation], list[Plan]] = {}  # by the class of the op, with the options bound

    def plan(self, *ops: type[Operation]) -> Callable[[Plan], Plan]:
        """Decorator: a function ``(op, input shapes, context) -> Kernel | No`` offered for some ops (none named: for any).

        It is offered for ops of derived classes, too; plans for an op's own class are asked before those for its bases.
        Absent inputs have the shape None.  For ops that take sub-modules the function gets them as a fourth argument.
        One that has a parameter `options` gets the compile options in it.
        An UnsupportedError that it raises is a refusal like No; everything else is reported as the plan's mistake.
        Errors: ParameterError for what is not a class derived from Operation.
        """
        for op in ops:
            if not (isinstance(op, type) and issubclass(op, Operation)):
                raise ParameterError(f"a plan for target {self.target!r} must name classes of operations, got {op!r}")

        def keep(function: Plan) -> Plan:
            self._asked.clear()
            for op in ops:
                self._plans.setdefault(op, []).append(function)
            if not ops:
                self._any.append(function)
            return function

        return keep

    def plans(self, op: Operation) -> list[Plan]:
        """Returns the plans for an op in the order in which they are asked."""
        cls = type(op)
        found = self._asked.get(cls)
        if found is None:
            plans = (*(p for c in cls.__mro__ for p in self._plans.get(c, ())), *self._any)
            found = self._asked[cls] = [self._bound(p) for p in plans]
        return found

    def _bound(self, plan: Plan) -> Plan:
        if self._options is None or "options" not in inspect.signature(plan).parameters:
            return plan
        return functools.update_wrapper(functools.partial(plan, options=self._options), plan)

    def offers(
        self, op: Operation, shapes: Sequence[AnyShape | None], context: Any, modules: Sequence[Module] = ()
    ) -> Iterator[tuple[str, Kernel | No]]:
        """Every plan's answer, in order of preference, with the plan's name; ops with sub-modules hand them over last."""
        for plan in self.plans(op):
            name, wrong, cause = getattr(plan, "__name__", "plan"), "", None
            try:
                answer: Any = plan(op, shapes, context, modules) if op.takes_modules else plan(op, shapes, context)
                if isinstance(answer, Kernel) and isinstance(answer.name, str) and answer.name:
                    pass
                elif not isinstance(answer, No) or not isinstance(answer.why, str):
                    wrong = f"gave {described(answer)}; a plan gives an instance of Kernel with a name, or No(why)"
            except UnsupportedError as error:
                answer = No(error.message)
            except (DeviceError, MemoryError):
                raise
            except Exception as error:
                wrong, cause = f"raised {type(error).__name__}: {error}", error
            if wrong:
                inputs = ", ".join(map(str, shapes))
                raise PluginError(f"{self._title(plan)} on {op!r}({inputs}) {wrong}") from cause
            yield name, answer

    def _title(self, plan: Plan) -> str:
        """Returns a plan's name, package and target, for messages."""
        package = str(getattr(plan, "__module__", "?")).partition(".")[0]
        return f"plan {getattr(plan, '__name__', 'plan')!r} of package {package} for target {self.target!r}"

    def origin(
        self,
        kernel: Kernel,
        op: Operation,
        shapes: Sequence[AnyShape | None],
        context: Any = None,
        modules: Sequence[Module] = (),
    ) -> str:
        """Returns the plan that gives such a kernel, for messages on what the kernel does wrong; empty if none does."""
        for plan in self.plans(op):
            try:
                answer: Any = plan(op, shapes, context, modules) if op.takes_modules else plan(op, shapes, context)
            except Exception:  # as `offers` reports where the plan is asked
                continue
            if type(answer) is type(kernel) and answer.name == kernel.name:
                return self._title(plan)
        return ""

    def pick(
        self, op: Operation, shapes: Sequence[AnyShape | None], context: Any = None, modules: Sequence[Module] = ()
    ) -> Picked:
        """The first plan that does not decline.  Errors: UnsupportedError with every refusal."""
        refused: list[str] = []
        for name, answer in self.offers(op, shapes, context, modules):
            if not isinstance(answer, No):
                return Picked(answer, name, tuple(refused))
            refused.append(f"{name}: {answer.why}")
        raise UnsupportedError(
            f"target {self.target!r} has no kernel for {op!r}({', '.join(map(str, shapes))}): "
            + ("; ".join(refused) if refused else "no plan is offered for this op")
        )

    def __add__(self, other: Kernels) -> Kernels:
        out = Kernels(self.target)
        out._options = self._options or other._options
        for side in (self, other):
            for op, plans in side._plans.items():
                out._plans.setdefault(op, []).extend(plans)
            out._any += side._any
        return out

    def ops(self) -> Iterable[type[Operation]]:
        return self._plans.keys()

    @property
    def empty(self) -> bool:
        """True if there is no plan."""
        return not self._plans and not self._any

    def for_options(self, options: CompileOptions) -> Kernels:
        """The same plans; those that have a parameter called `options` are given the compile options in it."""
        out = self + Kernels(self.target)
        out._options = options
        return out


def described(given: Any) -> str:
    """Returns what an object is, for messages."""
    if isinstance(given, type):
        return f"the class {given.__qualname__}"
    return f"{type(given).__name__} {given!r}" if given is not None else "None"


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


def op_of(ins: Instruction) -> Operation:
    """Op that an instruction computes, lowered or not."""
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
        return self.result_shape

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
        value = call_kernel(self.kernel, self.of, args, modules, run)
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
