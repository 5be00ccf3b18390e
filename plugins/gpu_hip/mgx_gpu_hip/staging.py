"""Staging buffers of arguments and results in device memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from mgx_core import Argument, UnsupportedError
from mgx_core.targets.values import Value
from mgx_core.types.dtype import DType

from .emitter import LIBRARY_ALIGNMENT
from .runtime import Device, DeviceArray, DeviceBuffer

__all__ = ["Staging", "device_arrays", "is_row_major", "overlapping", "require_row_major"]


class Staging:
    """Allocates and copies to and from one buffer per argument and result of a program.

    aligns: the alignment in bytes that the steps require of a buffer, by its id; addresses: of the staging buffers, likewise.
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
        self._in_result = overlapping([held for (kind, _), held in self.memory.items() if kind == "output"])

    def stage(self, args: Sequence[Any], stream: Any) -> tuple[dict[int, int], list[Any]]:
        """Returns addresses of inputs usable in place, and objects to keep alive; other inputs are copied to staging buffers.

        A result of an earlier run may be in the memory that this run writes, so it is copied, too.
        """
        given: dict[int, int] = {}
        kept: list[Any] = []
        for b in (v.buffer for v in self.inputs):
            value = args[b.index]
            if isinstance(value, DeviceArray):
                require_row_major(value)
                if value.address % self.input_align[b.index] == 0 and not self._in_result(value):
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
        """Copies inputs from the caller's addresses to staging buffers."""
        for b in (v.buffer for v in self.inputs):
            if b.index in given:
                stream.copy(self.memory["input", b.index].address, given[b.index], b.bytes)

    def result(self, n: int, offload_copy: bool, axis: int | None = None, rows: int = 0) -> Any:
        """Returns an output, copied on the default stream; axis: the axis of which only the first `rows` are valid."""
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
        fresh = self.copy_of(DeviceArray(held, out.shape.dtype, lens))
        if axis is not None and not first:
            cut = [rows if a == axis else d for a, d in enumerate(lens)]
            return DeviceArray(fresh.buffer, fresh.dtype, cut, fresh.strides)
        return fresh

    def copy_of(self, value: DeviceArray) -> DeviceArray:
        """Enqueues a copy of a contiguous value to newly allocated memory."""
        size = int(np.prod(value.dims, dtype=np.int64)) * value.dtype.size
        fresh = self.device.allocate(max(size, 16))
        self.device.default_stream.copy(fresh.address, value.address, size)
        return DeviceArray(fresh, value.dtype, value.dims, value.strides)

    def staged(self, n: int, rows: int | None = None) -> DeviceArray:
        """Returns an output in its staging buffer, valid until the next run; rows: valid rows along the outermost axis."""
        out = self.outputs[n]
        lens = out.lens if rows is None else [rows, *out.lens[1:]]
        return DeviceArray(self.memory["output", n], out.shape.dtype, lens)

    def destination(self, n: int, place: Any) -> DeviceArray:
        """Returns memory for an output: `place` if its type, shape and alignment fit, otherwise newly allocated memory."""
        out = self.outputs[n]
        if is_row_major(place, out.shape.dtype, out.lens) and self.fits(n, place):
            return place  # type: ignore[no-any-return]
        lens = [int(d) for d in out.lens]  # may contain extents that are not arguments of these kernels
        return DeviceArray(self.device.allocate(max(out.buffer.bytes, 16)), out.shape.dtype, lens)

    def typed(self, places: Mapping[int, Any]) -> dict[int, Any]:
        """Returns the memory that has the types of the results; `Arguments.deliver` copies to other memory, or refuses it."""
        outputs = self.outputs
        return {n: p for n, p in places.items() if is_row_major(p, outputs[n].shape.dtype, outputs[n].lens)}

    def fits(self, n: int, place: Any) -> bool:
        """True if the steps may write a result directly to the caller's memory, which is aligned as they require."""
        return bool(place.address % self.output_align[n] == 0)

    def wrap(self, n: int, address: int, owner: Any) -> Argument:
        """Returns a result at an address of the caller's; owner: keeps that memory alive."""
        out = self.outputs[n]
        buffer = DeviceBuffer(self.device, address, out.buffer.bytes, owner)
        return Argument.from_value(DeviceArray(buffer, out.shape.dtype, out.lens))

    def results(self, places: Mapping[int, Any], stream: int) -> list[Any]:
        """Returns all results: the caller's memory where given, otherwise staging buffers, which the next run overwrites."""
        caller = self.device.stream(stream) if stream else self.device.default_stream
        return [
            places.get(n) or DeviceArray(self.memory["output", n], o.shape.dtype, o.lens, stream=caller)
            for n, o in enumerate(self.outputs)
        ]


def is_row_major(value: Any, dtype: DType, lens: Sequence[int]) -> bool:
    """Returns True for row-major device memory of this type."""
    return (
        isinstance(value, DeviceArray)
        and value.dtype == dtype
        and value.dims == tuple(lens)
        and value.device_shape.standard()
    )


def overlapping(memory: Iterable[DeviceArray | DeviceBuffer]) -> Callable[[DeviceArray], bool]:
    """Returns a function that returns True for an array which shares memory with one of these."""
    spans = sorted(map(_span, memory))
    ends = [*accumulate((end for _, end in spans), max)]  # the largest up to each

    def overlaps(value: DeviceArray) -> bool:
        start, end = _span(value)
        before = bisect_left(spans, (end,))
        return before > 0 and ends[before - 1] > start

    return overlaps


def _span(x: DeviceArray | DeviceBuffer) -> tuple[int, int]:
    """Returns the addresses of the first byte and past the last."""
    return x.address, x.address + (x.size if isinstance(x, DeviceBuffer) else x.device_shape.bytes())


def device_arrays(args: Iterable[Any]) -> list[DeviceArray]:
    """Returns the arguments in device memory."""
    return [a for a in args if isinstance(a, DeviceArray)]


def require_row_major(value: DeviceArray) -> None:
    """Errors: UnsupportedError for an argument in device memory that is not row-major and contiguous."""
    if not value.device_shape.standard():
        raise UnsupportedError(f"device inputs must be row-major and contiguous, got strides {list(value.strides)}")
