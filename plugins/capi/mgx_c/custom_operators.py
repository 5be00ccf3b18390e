"""Custom operators, whose shape inference and computation are C callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

import migraphx
from mgx_core import Argument, Context, Operation, Shape, define_op
from mgx_core.records import dataclass
from migraphx import argument, shape
from migraphx.arguments import of_argument
from migraphx.operations import of_operation
from migraphx.shapes import of_shape

from .calls import SUCCESS, Calls

__all__ = ["CustomOperator", "CustomOperators"]

MESSAGE = 1024  # buffer size of a callback's error message


@dataclass
class Callbacks:
    """A custom operator under construction: the caller's object and callbacks."""

    name: str
    owner: Any
    compute: Any = None
    compute_shape: Any = None
    output_alias: Any = None
    runs_on_offload_target: Any = None


class CustomOperators:
    """The header's functions for custom operators, and the registered operators."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._registered: dict[str, Any] = {}

    def operation(self, name: str) -> Any:
        """Returns a registered operator as an operation of the `migraphx` module; None if there is none of that name."""
        return self._registered.get(name)

    def experimental_custom_op_create(self, obj: Any, copy: Any, delete: Any, type_name: str, name: str) -> Callbacks:
        ffi = self._calls.ffi
        place = ffi.new("void**")
        status = copy(place, obj)
        if status != SUCCESS:
            raise RuntimeError(f"the object of operator {name!r} could not be copied: status {status}")
        return Callbacks(name, ffi.gc(place[0], delete))

    def experimental_custom_op_set_compute(self, given: Callbacks, function: Any) -> None:
        given.compute = function

    def experimental_custom_op_set_compute_shape(self, given: Callbacks, function: Any) -> None:
        given.compute_shape = function

    def experimental_custom_op_set_output_alias(self, given: Callbacks, function: Any) -> None:
        given.output_alias = function

    def experimental_custom_op_set_runs_on_offload_target(self, given: Callbacks, function: Any) -> None:
        given.runs_on_offload_target = function

    def experimental_custom_op_register(self, given: Callbacks) -> None:
        if not given.compute_shape or not given.compute:
            raise ValueError(
                f"operator {given.name!r} requires compute and compute_shape callbacks before it is registered"
            )
        self._registered[given.name] = of_operation(self._operation(given))

    def computes_on_device(self, given: Callbacks) -> bool:
        """True if the operator reads and writes memory of the target's device."""
        if not given.runs_on_offload_target:
            return False
        place, room = self._calls.ffi.new("bool*"), self._calls.ffi.new("char[]", MESSAGE)
        if given.runs_on_offload_target(place, given.owner, room, MESSAGE) != SUCCESS:
            raise self._failed(given, "runs_on_offload_target", room)
        return bool(place[0])

    def _operation(self, given: Callbacks) -> Operation:
        """Creates an operation with a class of its own."""
        members = {"callbacks": given, "table": self, "__doc__": f"{given.name}, an operator of the program's own."}
        made: Any = define_op(given.name)(type("RegisteredOperator", (CustomOperator,), members))
        operation: Operation = made()
        return operation

    def _failed(self, given: Callbacks, what: str, message: Any) -> RuntimeError:
        said = self._calls.text(message)
        return RuntimeError(f"Error in {what} of: {given.name}: {said or 'no reason given'}")

    def shape(self, given: Callbacks, inputs: Sequence[Shape]) -> Shape:
        """Returns the result's shape, with the strides that the operator chooses."""
        calls, ffi = self._calls, self._calls.ffi
        shapes = calls.handles.new("shapes", [of_shape(s) for s in inputs])
        made = calls.handles.new("shape", shape())
        try:
            room = ffi.new("char[]", MESSAGE)
            status = given.compute_shape(
                _as("shape", ffi, made), given.owner, room, MESSAGE, _as("shapes", ffi, shapes)
            )
            if status != SUCCESS:
                raise self._failed(given, "compute_shape", room)
            result: Shape = made.value.core
            return result
        finally:
            calls.handles.destroy(shapes.address, "shapes")
            calls.handles.destroy(made.address, "shape")

    def on_host(self, given: Callbacks, inputs: Sequence[Any], context: Any) -> Any:
        """Computes the result of host arrays."""
        arrays = [
            context.host_array(Shape(a.dtype, list(a.shape))) for a in inputs
        ]  # copies, since it may write to its inputs
        for own, array in zip(arrays, inputs, strict=True):
            np.copyto(own, array)
        output = self.shape(given, [Shape(a.dtype, list(a.shape)) for a in arrays])

        def taken(result: argument) -> Any:
            array = np.array(result.to_numpy()).reshape(output.lens())
            if array.dtype != output.dtype.numpy:
                raise RuntimeError(
                    f"operator {given.name!r} returned {array.dtype}, but compute_shape states {output.dtype}"
                )
            return array

        return self._called(given, [argument(a) for a in arrays], output, context, taken)

    def on_device(self, given: Callbacks, inputs: Sequence[Any], place: Any, output: Shape, context: Any) -> None:
        """Computes into `place`, a flat buffer of the result in memory order."""

        def taken(result: argument) -> None:
            if not result.on_device:
                raise RuntimeError(f"operator {given.name!r} runs on the device but returned a result in host memory")
            if result.data_ptr() != place.device_address:
                context.copy(context.borrow(place.device_shape, result.data_ptr()), place)

        values = [of_argument(Argument.from_value(v)) for v in inputs]
        self._called(given, values, output, context, taken)

    def _called(
        self,
        given: Callbacks,
        values: list[argument],
        output: Shape,
        context: Any,
        taken: Callable[[argument], Any],
    ) -> Any:
        """Calls the operator; returns `taken(result)`, called before the handles of the call are destroyed."""
        ffi, handles = self._calls.ffi, self._calls.handles
        held = [
            handles.new("arguments", values),
            handles.new("shape", of_shape(output)),
            handles.new("context", context),
            handles.new("argument", migraphx.fill_argument(shape(), 0)),
        ]
        inputs, out_shape, where, result = held
        try:
            room = ffi.new("char[]", MESSAGE)
            status = given.compute(
                _as("argument", ffi, result),
                given.owner,
                room,
                MESSAGE,
                _as("context", ffi, where),
                _as("shape", ffi, out_shape),
                _as("arguments", ffi, inputs),
            )
            if status != SUCCESS:
                raise self._failed(given, "compute", room)
            return taken(result.value)
        finally:
            for handle in held:
                handles.destroy(handle.address, handle.kind)


class CustomOperator(Operation):
    """An operation that calls the functions of `callbacks`."""

    callbacks: ClassVar[Callbacks]
    table: ClassVar[CustomOperators]

    def infer(self, *inputs: Shape) -> Shape:
        return self.table.shape(self.callbacks, inputs).as_standard()

    def compute(self, *inputs: Any) -> Any:
        return self.table.on_host(self.callbacks, inputs, HOST)


HOST: Final = Context()  # the context of host computations: no queue, nothing to synchronize


def _as(kind: str, ffi: Any, handle: Any) -> Any:
    return ffi.cast(f"migraphx_{kind}_t", handle.address)
