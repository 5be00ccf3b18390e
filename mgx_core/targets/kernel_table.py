"""Kernel tables: a target's plans by op class, and the selection of one for an op."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ..errors import DeviceError, No, ParameterError, PluginError, UnsupportedError
from ..ir.module import Module
from ..named_tuples import NamedTuple
from ..ops.operation import Operation, place_of
from ..options import CompileOptions
from ..types.dtype import DType
from ..types.shape import AnyShape, Shape, TupleShape
from .kernel import Kernel

__all__ = ["Kernels", "Picked"]

Plan = Callable[..., "Kernel | No"]


@functools.cache
def _takes_options(plan: Plan) -> bool:
    return "options" in inspect.signature(plan).parameters


class Picked(NamedTuple):
    """The selected kernel, its plan, and the refusals of the plans tried before."""

    kernel: Kernel
    plan: str
    refused: tuple[str, ...]


class Kernels:
    """A kernel table: plans by op class, in order of preference.  Immutable by convention; tables are combined with ``+``."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._plans: dict[type[Operation], list[Plan]] = {}
        self._any: list[Plan] = []
        self._later: dict[str, list[Callable[[], Kernels]]] = {}  # tables not created yet, by op class
        self._lock = threading.RLock()  # guards their creation
        self._options: CompileOptions | None = None
        self._asked: dict[type[Operation], list[Plan]] = {}  # by the class of the op, with the options bound

    def plan(self, *ops: type[Operation], dtypes: Collection[DType] = ()) -> Callable[[Plan], Plan]:
        """Decorator: registers a plan ``(op, input shapes, context) -> Kernel | No`` for some op classes (none: for all).

        It also applies to subclasses; plans for an op's own class are tried before those for its base classes.
        Absent inputs have the shape None.  For ops with sub-modules, the function receives them as a fourth argument.
        If it has a parameter `options`, it receives the compile options.
        dtypes: supported element types (none: all); the plan is skipped if a tensor input has another one.
        Raising UnsupportedError is a refusal like No; any other exception is reported as an error of the plan.
        Errors: ParameterError for arguments that are not subclasses of Operation, or not element types.
        """
        for op in ops:
            if not (isinstance(op, type) and issubclass(op, Operation)):
                raise ParameterError(f"a plan for target {self.target!r} must name classes of operations, got {op!r}")
        for dtype in dtypes:
            if not isinstance(dtype, DType):
                raise ParameterError(f"a plan for target {self.target!r} must name element types, got {dtype!r}")

        def keep(function: Plan) -> Plan:
            self._asked.clear()
            plan = _made_for(dtypes, function) if dtypes else function
            for op in ops:
                self._plans.setdefault(op, []).append(plan)
            if not ops:
                self._any.append(plan)
            return function

        return keep

    def later(self, ops: Iterable[str], make: Callable[[], Kernels]) -> None:
        """Registers a lazily created table for some ops, after the plans already registered for them.

        ops: op classes as ``module:name``, which are not imported; make: returns the table; called when one of these ops (or a
        subclass) is first looked up, so that programs without them do not import the plans.
        """
        for op in ops:
            self._later.setdefault(op, []).append(make)

    def _have(self, ops: Iterable[str]) -> None:
        """Creates the lazy tables for some ops."""
        with self._lock:
            for one in ops:
                for make in self._later.pop(one, ()):
                    for op, plans in make()._plans.items():
                        if place_of(op) == one:
                            self._plans.setdefault(op, []).extend(plans)

    def plans(self, op: Operation) -> list[Plan]:
        """Returns the plans for an op in order of preference."""
        cls = type(op)
        found = self._asked.get(cls)
        if found is None:
            self._have(map(place_of, cls.__mro__))
            plans = (*(p for c in cls.__mro__ for p in self._plans.get(c, ())), *self._any)
            found = self._asked[cls] = [self._bound(p) for p in plans]
        return found

    def _bound(self, plan: Plan) -> Plan:
        if self._options is None or not _takes_options(plan):
            return plan
        return functools.update_wrapper(functools.partial(plan, options=self._options), plan)

    def offers(
        self, op: Operation, shapes: Sequence[AnyShape | None], context: Any, modules: Sequence[Module] = ()
    ) -> Iterator[tuple[str, Kernel | No]]:
        """Yields every plan's name and answer, in order of preference; sub-modules are passed last."""
        for plan in self.plans(op):
            name, wrong, cause = getattr(plan, "__name__", "plan"), "", None
            try:
                answer: Any = plan(op, shapes, context, modules) if op.takes_modules else plan(op, shapes, context)
                if isinstance(answer, Kernel) and isinstance(answer.name, str) and answer.name:
                    pass
                elif not isinstance(answer, No) or not isinstance(answer.why, str):
                    wrong = f"returned {described(answer)}; a plan must return an instance of Kernel with a name, or No(why)"
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
        """Returns the plan that returns this kernel, for error messages; empty if none does."""
        for plan in self.plans(op):
            try:
                answer: Any = plan(op, shapes, context, modules) if op.takes_modules else plan(op, shapes, context)
            except Exception:  # as reported by `offers`
                continue
            if type(answer) is type(kernel) and answer.name == kernel.name:
                return self._title(plan)
        return ""

    def pick(
        self, op: Operation, shapes: Sequence[AnyShape | None], context: Any = None, modules: Sequence[Module] = ()
    ) -> Picked:
        """Returns the kernel of the first plan that does not decline.  Errors: UnsupportedError with every refusal."""
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
            out._have(map(place_of, side._plans))  # in the order of the operands of +
            for op, plans in side._plans.items():
                out._plans.setdefault(op, []).extend(plans)
            for name, makes in side._later.items():
                out._later.setdefault(name, []).extend(makes)
            out._any += side._any
        return out

    def ops(self) -> Iterable[type[Operation]]:
        self._have(list(self._later))
        return self._plans.keys()

    @property
    def empty(self) -> bool:
        """True if there is no plan."""
        return not self._plans and not self._any and not self._later

    def for_options(self, options: CompileOptions) -> Kernels:
        """Returns the table with compile options bound for plans that have a parameter `options`."""
        out = self + Kernels(self.target)
        out._options = options
        return out


def _made_for(dtypes: Collection[DType], plan: Plan) -> Plan:
    """Wraps a plan to decline other element types."""

    @functools.wraps(plan)
    def asked(op: Operation, shapes: Sequence[AnyShape | None], *given: Any, **options: Any) -> Kernel | No:
        for dtype in (d for shape in shapes if shape is not None for d in _dtypes(shape)):
            if dtype not in dtypes:
                return No(f"made for {', '.join(map(str, dtypes))}, got {dtype}")
        return plan(op, shapes, *given, **options)

    return asked


def _dtypes(shape: AnyShape) -> Iterator[DType]:
    if isinstance(shape, Shape):
        yield shape.dtype
    elif isinstance(shape, TupleShape):
        for item in shape.items:
            yield from _dtypes(item)
    else:
        yield from _dtypes(shape.element)


def described(given: Any) -> str:
    """Returns what an object is, for messages."""
    if isinstance(given, type):
        return f"the class {given.__qualname__}"
    return f"{type(given).__name__} {given!r}" if given is not None else "None"
