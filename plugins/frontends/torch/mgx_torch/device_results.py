"""Results of programs on a device as tensors of torch's own memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from mgx_core import Argument

from .tensors import as_tensor

__all__ = ["DeviceResults"]


class DeviceResults:
    """Copies results, which a program's next run writes again, on the caller's current stream.

    Safe to call from several threads: a run and the copies of its results are enqueued as one.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._last: torch.cuda.Stream | None = None
        self._arguments: Sequence[Argument] = ()
        self._views: list[torch.Tensor] = []

    def of(self, run: Callable[[int], Sequence[Argument]]) -> list[torch.Tensor]:
        """Fresh tensors of what ``run(stream)`` enqueues on a stream."""
        stream = torch.cuda.current_stream(self.device)
        with self._lock:
            # a stream is neither equal nor unequal to None
            other = self._last is not None and self._last != stream
            if other and not torch.cuda.is_current_stream_capturing():
                stream.wait_stream(self._last)  # results of the last run are still being copied there
            self._last = stream
            made = run(stream.cuda_stream)
            if len(made) != len(self._arguments) or any(a is not b for a, b in zip(made, self._arguments, strict=True)):
                self._arguments, self._views = made, [as_tensor(a.value) for a in made]
            if len(made) == 1:
                return [self._fresh(self._views[0])]
            fresh = [self._empty(v) for v in self._views]
            if fresh:
                torch._foreach_copy_(fresh, self._views)
            return fresh

    def _fresh(self, view: torch.Tensor) -> torch.Tensor:
        return view.clone() if view.device == self.device else view.to(self.device)

    def _empty(self, view: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(view, device=self.device)
