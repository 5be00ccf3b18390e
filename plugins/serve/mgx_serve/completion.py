"""Completes the requests of one model with results, rejections or failures, and records each in the metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from .batch import Outputs, Request, split_outputs
from .deadlines import Deadlines
from .errors import DeadlinePassed, Internal, ServeError
from .metrics import Recorder
from .model import Signature
from .run_times import Spent
from .tensors import Array

__all__ = ["Completions"]

log = logging.getLogger("mgx_serve")


class Completions:
    """Completes requests.  Runs only in the event loop that received them."""

    def __init__(self, signature: Signature, metrics: Recorder) -> None:
        self._signature, self._metrics = signature, metrics
        self.deadlines = Deadlines(signature.name)

    def ran(self, batch: Sequence[Request], rows: int, made: Outputs, spent: Spent) -> None:
        """Completes the requests of a run with its results."""
        self._metrics.ran(self._signature, [spent.began - r.arrived for r in batch], spent.seconds, rows)
        for request, result in zip(batch, split_outputs(made, batch), strict=True):
            request.started = spent.began
            self.end(request, result)

    def give_up(self, dropped: Sequence[Request]) -> None:
        """Rejects requests that were removed from the queue without running."""
        now = time.monotonic()
        for request in dropped:
            waited = now - request.arrived
            text = f"the request waited for {waited:.3f} s for model {self._signature.name!r}"
            self.end(request, DeadlinePassed(text))

    def fail(self, request: Request, error: BaseException) -> None:
        """Fails a request whose run raised; the client sees the reason only if its request caused it."""
        self._metrics.failed(self._signature)
        if not isinstance(error, ServeError):
            log.exception("model %s failed", self._signature.name, exc_info=error)
            error = Internal(f"model {self._signature.name!r} failed; the reason is in the server's log")
        self.end(request, error)

    def end(self, request: Request, result: list[Array] | BaseException) -> None:
        """Completes or rejects a request unless its client has disconnected."""
        self.deadlines.discard(request)
        if request.done.done():
            return
        if isinstance(result, BaseException):
            request.done.set_exception(result)
        else:
            request.done.set_result(result if request.padding is None else request.padding.cut(request.wanted, result))
