"""Runs a program cut at data-dependent extents: its first part, then the continuation for the extents found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from mgx_core import Instruction, Module
from mgx_core.targets.continuation import Continuation
from mgx_core.targets.parts import PermutedValue
from mgx_core.targets.values import Value

from .runtime import DeviceArray
from .staging import Staging

__all__ = ["ContinuationRun"]


class FirstPart(Protocol):
    """The runner of the part before the cut; after a run its outputs are in `staging`."""

    device: Any
    inner: bool
    lock: Any
    module: Module
    offload_copy: bool
    outputs: list[Value]
    parameters: list[Instruction]
    staging: Staging
    wanted: list[Instruction]

    def continued(self, module: Module) -> Any: ...

    def continued_whole(self, module: Module) -> Any: ...

    def start(self, args: Sequence[Any]) -> list[Any]: ...


class ContinuationRun:
    """The first part of a program and its continuation; values passed between them stay in device memory."""

    def __init__(self, first: FirstPart, following: Continuation[Any]) -> None:
        self.first = first
        self.following = following

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Runs the first part, reads back the numbers that decide extents, and runs the continuation for them.

        A continuation that covers the largest extents in one graph is enqueued before the numbers are read.
        """
        first, following, copied = self.first, self.following, self.first.offload_copy
        with first.lock:
            kept = first.start(args)
            whole = following.whole(first.continued_whole) if following.outputs else None
            if whole is not None:  # runs for the largest extents, without waiting for the numbers
                with whole.lock:
                    kept += whole.start(self._arguments(args, following.most))
                    counts, _ = self._read_back(args)
                    number = dict(zip(following.symbols, counts, strict=True))
                    assert following.rows is not None
                    result = whole.staging.result
                    made = [
                        result(n, copied) if rows is None else result(n, copied, rows[0], number[rows[1]])
                        for n, rows in enumerate(following.rows)
                    ]
                    first.device.default_stream.wait()
            else:
                counts, values = self._read_back(args)
                made = following.run(self._arguments(args, counts), values, first.continued, in_memory_order)
                if not first.inner:
                    made = [self._own_result(v) for v in made]
            later = dict(zip(following.outputs, made, strict=True))
            results = [self._output(out, args, later, counts) for out in first.module.outputs]
            first.device.default_stream.wait()
            del kept
            return results

    def _output(self, out: Any, args: Sequence[Any], later: dict[Any, Any], counts: Sequence[int]) -> Any:
        first = self.first
        if out in later:
            return later[out]
        if out.is_absent:
            return None
        if out.literal is not None:
            return out.literal.value
        if out.is_param:
            return args[first.parameters.index(out)]
        if out in self.following.counted:
            return self._counted(self.following.counted.index(out), counts)
        return self._first_output(first.wanted.index(out))

    def _first_output(self, n: int, rows: int | None = None) -> Any:
        """Returns an output of the first part; rows: number of valid rows along the outermost axis.

        For a part inside a run, it stays in the memory that the next run overwrites.
        """
        first = self.first
        if first.inner:
            return first.staging.staged(n, rows)
        return first.staging.result(n, first.offload_copy, None if rows is None else 0, rows or 0)

    def _own_result(self, value: Any) -> Any:
        """Returns a result of the continuation in memory that no later run overwrites."""
        if not isinstance(value, DeviceArray):
            return value
        return value.to_host() if self.first.offload_copy else self.first.staging.copy_of(value)

    def _rows_at(self, at: int) -> int:
        """Returns the output index of the rows of counted op `at`; their count is the next output."""
        return len(self.first.wanted) + 2 * at

    def _counted(self, at: int, counts: Sequence[int]) -> Any:
        """Returns the result of an op that counted its rows, moved from outermost in memory to their axis."""
        axis = self.following.axes[at]
        value = self._first_output(self._rows_at(at), counts[at])
        if axis == 0:
            return value
        if isinstance(value, DeviceArray):
            dims, strides = ([*d[1 : axis + 1], d[0], *d[axis + 1 :]] for d in (value.dims, value.strides))
            return DeviceArray(value.buffer, value.dtype, dims, strides)
        self.first.device.default_stream.wait()
        return np.ascontiguousarray(np.moveaxis(value, 0, axis))

    def _read_back(self, args: Sequence[Any]) -> tuple[list[int], list[Any]]:
        """Waits for the device; returns the row counts and the values that decide extents."""
        first = self.first
        stream = first.device.default_stream
        counts = [np.zeros(1, np.int64) for _ in self.following.counted]
        for at, (count, most) in enumerate(zip(counts, self.following.most, strict=True)):
            if most:  # otherwise no kernel wrote the count
                stream.copy_out(count, first.staging.memory["output", self._rows_at(at) + 1].address)
        values = []
        for name in self.following.read:
            source = self.following.source(name)
            given = args[first.parameters.index(source)] if source.is_param else None
            value = first.staging.result(first.wanted.index(source), True) if given is None else given
            values.append(value.to_host() if hasattr(value, "to_host") else value)
        stream.wait()
        return [min(int(c[0]), most) for c, most in zip(counts, self.following.most, strict=True)], values

    def _arguments(self, args: Sequence[Any], counts: Sequence[int]) -> list[Any]:
        """Returns the arguments of the continuation, in place."""
        first = self.first
        found: list[Any] = []
        for source in self.following.sources:
            if source.is_param:
                found.append(args[first.parameters.index(source)])
                continue
            opens = source in self.following.counted
            at = self.following.counted.index(source) if opens else first.wanted.index(source)
            n = self._rows_at(at) if opens else at
            out = first.outputs[n]
            lens = [counts[at], *out.lens[1:]] if opens else out.lens
            found.append(DeviceArray(first.staging.memory["output", n], out.shape.dtype, lens))
        return found


def in_memory_order(value: Any) -> PermutedValue:
    """Returns an argument or result with its axes in memory order (counted rows are outermost)."""
    if not isinstance(value, DeviceArray):
        array = np.ascontiguousarray(value)
        return PermutedValue(array, tuple(range(array.ndim)), array.shape)
    dims, order = value.dims, sorted(range(len(value.dims)), key=lambda axis: -value.strides[axis])
    turned = DeviceArray(value.buffer, value.dtype, [dims[axis] for axis in order], offset=value.offset)
    return PermutedValue(turned, tuple(order), dims)
