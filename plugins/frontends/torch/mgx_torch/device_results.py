"""Copies or writes device results into tensors of torch's allocator."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from mgx_core import Argument
from mgx_core.run.executable import Executable

from .tensors import as_tensor
from .torch_internals import current_stream

__all__ = ["DeviceResults"]

OFTEN: Final = 4  # calls with the same addresses after which a device graph is captured for them
MET: Final = 64  # maximum address sets whose calls are counted
QUEUED: Final = 8  # maximum address sets with their own captured call


class DeviceResults:
    """Returns new tensors with a program's results, on the caller's current stream.  Thread-safe.

    Results are stored in the program's memory, which the next run overwrites, and are copied from there. If arguments and new
    tensors have the same addresses repeatedly, as in loops, the program writes to the new tensors directly.
    fixed: all extents of arguments and results are static.
    """

    def __init__(self, executable: Executable, device: torch.device, fixed: bool) -> None:
        self.executable, self.device = executable, device
        self._lock = threading.Lock()  # a run and the copies of its results are enqueued atomically
        self._stream: torch.cuda.Stream | None = None
        self._handle = -1  # of that stream
        self._arguments: Sequence[Argument] = ()
        self._views: list[torch.Tensor] = []
        self._direct = fixed  # results may be written to new tensors directly
        self._records = True  # additional graphs
        self._met: Counter[tuple[int, ...]] = Counter()
        self._queued: dict[tuple[int, ...], Callable[[int], None]] = {}

    def of(self, values: Mapping[str, Any]) -> list[torch.Tensor]:
        """Returns the results for values of the program's parameters; tensors are contiguous."""
        handle = current_stream(self.device.index)
        with self._lock:
            if handle != self._handle:
                self._follow(handle)
            if not self._direct or not self._views:
                return self._copied(values, handle)
            fresh = [torch.empty_like(v) for v in self._views]
            key = (*[v.data_ptr() for v in values.values()], *[f.data_ptr() for f in fresh])
            call = self._queued.get(key)
            if call is not None:
                call(handle)
                return fresh
            return self._placed(values, fresh, key, handle)

    def _follow(self, handle: int) -> None:
        """Makes the caller's stream wait for the last run if that was on another stream: both use the program's memory."""
        stream = torch.cuda.current_stream(self.device)
        if self._stream is not None and not torch.cuda.is_current_stream_capturing():
            stream.wait_stream(self._stream)
        self._stream, self._handle = stream, handle

    def _copied(self, values: Mapping[str, Any], handle: int) -> list[torch.Tensor]:
        """Runs and copies the results."""
        views = self._run(values, handle)
        if len(views) == 1:
            return [views[0].clone() if views[0].device == self.device else views[0].to(self.device)]
        return self._filled([torch.empty_like(v, device=self.device) for v in views], views)

    def _filled(self, fresh: list[torch.Tensor], views: list[torch.Tensor]) -> list[torch.Tensor]:
        if fresh:
            torch._foreach_copy_(fresh, views)
        return fresh

    def _run(self, values: Mapping[str, Any], handle: int) -> list[torch.Tensor]:
        made = self.executable.run_async(values, handle, "")
        if len(made) != len(self._arguments) or any(a is not b for a, b in zip(made, self._arguments, strict=True)):
            self._arguments, self._views = made, [as_tensor(a.value) for a in made]
            self._direct = self._direct and all(v.device == self.device and v.numel() for v in self._views)
        return self._views

    def _placed(
        self, values: Mapping[str, Any], fresh: list[torch.Tensor], key: tuple[int, ...], handle: int
    ) -> list[torch.Tensor]:
        """Returns new tensors with the results; captures a call without copies once their addresses recur often enough."""
        if not self._records or torch.cuda.is_current_stream_capturing() or not self._often(key):
            return self._filled(fresh, self._run(values, handle))
        placed = {**values, **dict(zip(self.executable.output_places, fresh, strict=True))}
        self.executable.run_async(placed, handle, "")
        call = self.executable.queued(placed)
        if call is not None:
            self._queued[key] = call
        self._records = call is not None and len(self._queued) < QUEUED
        self._direct = bool(self._queued)
        return fresh

    def _often(self, key: tuple[int, ...]) -> bool:
        if len(self._met) >= MET:
            self._met.clear()
        self._met[key] += 1
        return self._met[key] >= OFTEN
