"""Steps that call a Python function: a kernel on the host, or work enqueued on the context's device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..errors import MgxError, Refused, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter, location_of
from ..ir.module import Module
from ..ops.operation import Operation
from ..types.argument import Array
from ..types.shape import Shape, TupleShape
from .kernel import Kernel, Reference, call_kernel, check_result, check_unchanged, copied
from .schedule import Call
from .step_list import StepList
from .values import Value, type_of

__all__ = ["DeviceFunction", "HostFunction", "HostSteps", "Results"]

Results: TypeAlias = Value | tuple[Value, ...]
HostFunction: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]
DeviceFunction: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], None]


class HostSteps(StepList):
    """Adds steps that call Python functions to a step list.

    guarded: raise an error if a kernel writes to its operands.
    """

    def __init__(self, reuse: bool = True) -> None:
        super().__init__(reuse)
        self.guarded = False
        self.current: Instruction | None = None  # of the lowered module

    @abstractmethod
    def host_step(self, name: str, function: HostFunction, given: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Adds a step that calls `function` with row-major arrays of `given` and copies its results to `outputs`."""

    def device_step(
        self, name: str, function: DeviceFunction, given: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        """Adds a step that calls ``function(given, outputs)`` with tensors in device memory.

        The function enqueues its work on the context's `queue` or finishes it before it returns; it may write to both.
        Errors: Refused, for targets that compute in host memory (the default).
        """
        raise Refused("the target computes in the host's memory")

    def host(
        self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], reasons: Sequence[str] = ()
    ) -> Results:
        """Adds a kernel called from Python as a step on the host, which reports show.

        Errors: UnsupportedError if an extent of the result depends on data.
        """
        by_definition = isinstance(kernel, Reference)
        why = "; ".join(dict.fromkeys(kernel.reasons or reasons)) if by_definition else "it is a Python function"
        outer = self.call
        self.call = Call(op, kernel.name, self.sources, tuple(reasons), why or "no plan takes it", self.current)
        try:
            return self._call_on_host(kernel, op, modules, args)
        finally:
            self.call = outer

    def _call_on_host(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        flat = [
            tuple(map(self.row_major, a)) if isinstance(a, tuple) else a if a is None else self.row_major(a)
            for a in args
        ]
        result = op.result([None if a is None else type_of(a) for a in flat], modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        shapes = [r for r in items if isinstance(r, Shape) and not r.dynamic()]
        if len(shapes) != len(items):
            raise UnsupportedError(f"{op!r} on the host returns {result}, whose extents depend on data")
        outputs = [self.allocate(r.dtype, r.lens()) for r in shapes]
        given = [v for a in flat if a is not None for v in (a if isinstance(a, tuple) else (a,))]
        if isinstance(kernel, Reference) and not any(r.elements() for r in shapes):
            positions = any(v.dtype.is_integer and v.shape.elements() for v in given)  # which may be out of bounds
            if not positions:
                return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

        nodes = self.sources
        unchecked = [True]  # the first run checks the types of results
        guarded = self.guarded and not isinstance(kernel, Reference)

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            left = iter(arrays)
            values: list[Any] = [
                None if a is None else tuple(next(left) for _ in a) if isinstance(a, tuple) else next(left)
                for a in flat
            ]
            before = copied(values) if guarded else ()
            try:
                found: Any = call_kernel(kernel, op, values, modules, Interpreter().run)
                check_unchanged(kernel, op, values, before)
            except MgxError as error:
                raise error.located(location_of(op, error)).at_nodes(nodes) from error.__cause__
            if unchecked:
                check_result(kernel, op, result, found)
                unchecked.clear()
            return list(found) if isinstance(result, TupleShape) else [found]

        name = f"host {op.name}" if isinstance(kernel, Reference) else kernel.name
        self.host_step(name, call, given, outputs)
        return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

    def finish(self) -> None:
        super().finish()
        self.current = None
