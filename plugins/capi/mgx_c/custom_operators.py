"""Operators whose shape rule and computation are C functions of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import migraphx
from mgx_core import Operation, Program, Shape, define_op
from mgx_core.ir.module import nested
from migraphx import argument, op, shape

from .calls import SUCCESS, Calls

__all__ = ["CustomOperators"]

MESSAGE = 1024  # bytes of room for a callback's message


@dataclass
class Callbacks:
    """An operator in the making: the caller's object and functions."""

    name: str
    owner: Any
    compute: Any = None
    compute_shape: Any = None
    output_alias: Any = None
    runs_on_offload_target: Any = None


class CustomOperators:
    """The functions of the header on custom operators, and the operators that were registered."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._registered: dict[str, Any] = {}
        self._callbacks: dict[Operation, Callbacks] = {}

    def operation(self, name: str) -> Any:
        """Returns the registered operator of that name, as an operation of the `migraphx` module; None if there is none."""
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
                f"operator {given.name!r} needs functions for compute and compute_shape before it is registered"
            )
        operation = self._operation(given)
        self._callbacks[operation] = given
        self._registered[given.name] = _wrapped(operation)

    def check_places(self, compiled: Program) -> None:
        """Errors: RuntimeError if an operator would compute in the memory of a device, which is not offered."""
        executable = compiled.executable
        if executable is None or not executable.context.queue:
            return
        for module in nested(compiled.get_main_module()):
            for instruction in module:
                given = self._callbacks.get(instruction.op)
                if given is not None and self._computes_on_device(given):
                    raise RuntimeError(
                        f"operator {given.name!r} says that it runs on the target's device, and here operators of a program's "
                        "own compute on the host: let runs_on_offload_target return false, or add a kernel in Python "
                        "(mgx_gpu_hip.hip_kernels)"
                    )

    def _computes_on_device(self, given: Callbacks) -> bool:
        if not given.runs_on_offload_target:
            return False
        place, room = self._calls.ffi.new("bool*"), self._calls.ffi.new("char[]", MESSAGE)
        if given.runs_on_offload_target(place, given.owner, room, MESSAGE) != SUCCESS:
            raise self._failed(given, "runs_on_offload_target", room)
        return bool(place[0])

    def _operation(self, given: Callbacks) -> Operation:
        """Returns an operation of a class of its own."""
        custom = self

        def infer(self: Operation, *inputs: Shape) -> Shape:
            return custom._shape(given, inputs)

        def compute(self: Operation, *inputs: Any) -> Any:
            return custom._compute(given, inputs)

        members = {"infer": infer, "compute": compute, "__doc__": f"{given.name}, an operator of the program's own."}
        made: Any = define_op(given.name)(type("CustomOperator", (Operation,), members))
        operation: Operation = made()
        return operation

    # calling back

    def _failed(self, given: Callbacks, what: str, message: Any) -> RuntimeError:
        said = self._calls.text(message)
        return RuntimeError(f"{what} of operator {given.name!r} failed{': ' + said if said else ''}")

    def _shape(self, given: Callbacks, inputs: Sequence[Shape]) -> Shape:
        calls, ffi = self._calls, self._calls.ffi
        shapes = calls.handles.new("shapes", [_seen(s) for s in inputs])
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

    def _compute(self, given: Callbacks, inputs: Sequence[Any]) -> Any:
        calls, ffi = self._calls, self._calls.ffi
        arrays = [np.array(a, order="C") for a in inputs]  # its own memory: an operator may write into its inputs
        output = self._shape(given, [Shape(a.dtype, list(a.shape)) for a in arrays])
        handles = calls.handles
        held = [
            handles.new("arguments", [argument(a) for a in arrays]),
            handles.new("shape", _seen(output)),
            handles.new("context", _Host()),
            handles.new("argument", migraphx.fill_argument(shape(), 0)),
        ]
        values, out_shape, context, result = held
        try:
            room = ffi.new("char[]", MESSAGE)
            status = given.compute(
                _as("argument", ffi, result),
                given.owner,
                room,
                MESSAGE,
                _as("context", ffi, context),
                _as("shape", ffi, out_shape),
                _as("arguments", ffi, values),
            )
            if status != SUCCESS:
                raise self._failed(given, "compute", room)
            array = np.array(result.value.to_numpy()).reshape(output.lens())
            if array.dtype != output.dtype.numpy:
                raise RuntimeError(f"operator {given.name!r} gave {array.dtype} where its shape says {output.dtype}")
            return array
        finally:
            for handle in held:
                handles.destroy(handle.address, handle.kind)


class _Host:
    """The context of a computation on the host: nothing to wait for, no queue."""

    queue = 0

    def finish(self) -> None: ...


def _as(kind: str, ffi: Any, handle: Any) -> Any:
    return ffi.cast(f"migraphx_{kind}_t", handle.address)


def _seen(core: Shape) -> shape:
    """A core shape as the `migraphx` module shows it."""
    from migraphx.shapes import of_shape

    return of_shape(core)


def _wrapped(operation: Operation) -> op:
    made = op.__new__(op)
    made.core = operation
    return made
