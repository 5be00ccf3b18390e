"""Memory of our own for arguments and results: arguments are copied into it, results are handed out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgx_core import Argument, Shape, UnsupportedError
from mgx_core.targets.values import Value

from .emitter import LIBRARY_ALIGNMENT
from .runtime import Device, DeviceArray, DeviceBuffer

__all__ = ["Staging"]


class Staging:
    """Memory for each argument and result of a program.

    aligns: the bytes that the steps take a buffer's address to be a multiple of, by its id; addresses: of our memory, likewise.
    """

    def __init__(
        self, device: Device, inputs: Sequence[Value], outputs: Sequence[Value], aligns: Mapping[int, int]
    ) -> None:
        self.device, self.inputs, self.outputs = device, inputs, outputs
        self.input_align = {v.buffer.index: aligns.get(id(v.buffer), LIBRARY_ALIGNMENT) for v in inputs}
        self.output_align = [aligns.get(id(v.buffer), LIBRARY_ALIGNMENT) for v in outputs]
        self.memory = {}
        self.addresses: dict[int, int] = {}
        for b in (v.buffer for v in (*inputs, *outputs)):
            held = device.allocate(max(b.bytes, 16))
            self.memory[b.kind, b.index] = held
            self.addresses[id(b)] = held.address

    def taken(self, args: Sequence[Any], stream: Any) -> tuple[dict[int, int], list[Any]]:
        """Returns addresses of the inputs that lie on the device as they should; the others are copied to our own memory."""
        given: dict[int, int] = {}
        kept: list[Any] = []
        for b in (v.buffer for v in self.inputs):
            value = args[b.index]
            if isinstance(value, DeviceArray):
                plain = Shape(value.dtype, value.dims).strides()
                if list(value.strides) != plain:
                    raise UnsupportedError("device inputs must lie row-major without gaps")
                if value.address % self.input_align[b.index] == 0:
                    given[b.index] = value.address
                else:
                    stream.copy(self.memory["input", b.index].address, value.address, b.bytes)
                kept.append(value)
            elif value.size:
                array = np.ascontiguousarray(value)
                kept.append(array)
                stream.copy_in(self.memory["input", b.index].address, array)
        return given, kept

    def copy(self, given: Mapping[int, int], stream: Any) -> None:
        """Copies inputs at addresses of the caller's to our own memory."""
        for b in (v.buffer for v in self.inputs):
            if b.index in given:
                stream.copy(self.memory["input", b.index].address, given[b.index], b.bytes)

    def result(self, n: int, offload_copy: bool, axis: int | None = None, rows: int = 0) -> Any:
        """Returns an output's value, copied when the stream gets there; axis: the one along which only the first `rows` count."""
        out, held, stream = self.outputs[n], self.memory["output", n], self.device.default_stream
        lens = out.lens
        first = axis is not None and all(d == 1 for d in lens[:axis])
        if first:
            lens = [rows if a == axis else d for a, d in enumerate(lens)]
        if offload_copy:
            array = np.empty(lens, out.shape.dtype.numpy)
            if array.size:
                stream.copy_out(array, held.address)
            if axis is None or first:
                return array
            stream.wait()
            return np.ascontiguousarray(array[(*[slice(None)] * axis, slice(rows))])
        fresh = self.copied(DeviceArray(held, out.shape.dtype, lens))
        if axis is not None and not first:
            cut = [rows if a == axis else d for a, d in enumerate(lens)]
            return DeviceArray(fresh.buffer, fresh.dtype, cut, fresh.strides)
        return fresh

    def copied(self, value: DeviceArray) -> DeviceArray:
        """Returns a value that lies without gaps, copied to memory of its own when the stream gets there."""
        size = int(np.prod(value.dims, dtype=np.int64)) * value.dtype.size
        fresh = self.device.allocate(max(size, 16))
        self.device.default_stream.copy(fresh.address, value.address, size)
        return DeviceArray(fresh, value.dtype, value.dims, value.strides)

    def held(self, n: int, rows: int | None = None) -> DeviceArray:
        """Returns an output where it lies until the next run writes it; rows: how many of the outermost axis count."""
        out = self.outputs[n]
        lens = out.lens if rows is None else [rows, *out.lens[1:]]
        return DeviceArray(self.memory["output", n], out.shape.dtype, lens)

    def fresh(self, n: int, place: Any) -> DeviceArray:
        """Returns memory for an output: the place if it is as the output needs it, else new memory."""
        out = self.outputs[n]
        alike = isinstance(place, DeviceArray) and place.dtype == out.shape.dtype and place.dims == tuple(out.lens)
        if alike and place.device_shape.standard() and self.fits(n, place):
            return place  # type: ignore[no-any-return]
        lens = [int(d) for d in out.lens]  # of another part of a run, where an extent may be no argument of kernels
        return DeviceArray(self.device.allocate(max(out.buffer.bytes, 16)), out.shape.dtype, lens)

    def fits(self, n: int, place: Any) -> bool:
        """True if the steps may write a result where the caller wants it: its address is as aligned as they take it to be."""
        return bool(place.address % self.output_align[n] == 0)

    def placed(self, n: int, address: int, owner: Any) -> Argument:
        """Returns a result that lies at an address of the caller's; owner: what keeps that memory."""
        out = self.outputs[n]
        buffer = DeviceBuffer(self.device, address, out.buffer.bytes, owner)
        return Argument.from_value(DeviceArray(buffer, out.shape.dtype, out.lens))

    def results(self, places: Mapping[int, Any], stream: int) -> list[Any]:
        """Returns all results: the caller's places where it gave some, else memory of our own that the next run writes again."""
        caller = self.device.stream(stream) if stream else self.device.default_stream
        return [
            places.get(n) or DeviceArray(self.memory["output", n], o.shape.dtype, o.lens, stream=caller)
            for n, o in enumerate(self.outputs)
        ]
