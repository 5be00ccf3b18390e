"""The front end's side of trays: copies request inputs directly into a shared-memory batch, and outputs out of it."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from .padding import padded, unpadded
from .tray_claims import DONE, OPEN, RUNS, Claims, Held, Location, Offer, marked

__all__ = ["PendingRequest", "TrayWriter"]

MAX_TRIES: Final = 3  # retries if the tray is taken before the request is marked ready
AT_ONCE: Final = 1 << 14  # bytes copied while holding the lock: copying them costs as much as taking the lock again


class PendingRequest:
    """A request written to a tray.

    deadline, arrived: of `time.monotonic`; done: completed with the elements of its outputs, or None if its tray ran without it.
    """

    __slots__ = ("arrived", "deadline", "done", "location", "number", "offer", "rows")

    def __init__(self, offer: Offer, number: int, rows: int, done: asyncio.Future[Any]) -> None:
        self.offer, self.number, self.rows, self.done = offer, number, rows, done
        self.arrived = time.monotonic()
        self.deadline = self.arrived + offer.limit
        self.location: Location = (0, 0, 0)


class TrayWriter:
    """Access of one front end to the trays of all models.

    number, size: descriptor and size of the memory of all sets; process: this process's index; engine: event descriptor that
    wakes the engine process; bell: event descriptor that wakes this process when a tray containing its rows has run.
    """

    def __init__(self, number: int, size: int, process: int, engine: int, bell: int) -> None:
        self.bell, self._engine = bell, engine
        self._number, self._process = number, process
        self._mapped = mmap.mmap(number, size)
        self._memory = memoryview(self._mapped)
        self._claims: dict[int, Claims] = {}
        self._pending: dict[
            tuple[int, int, int], dict[int, PendingRequest]
        ] = {}  # by (set, tray, generation), then by first row
        # rows to release: set, tray, rows, and whether the client left
        self._to_release: list[tuple[int, int, int, PendingRequest | None]] = []

    def write(self, request: PendingRequest, parts: Sequence[Any]) -> bool:
        """Writes a request to a tray; returns False if there is no room.

        parts: bytes of its inputs, in the plan's order.
        Errors: LookupError if the set was withdrawn, or its lock is held by a stopped process.
        """
        plan = request.offer.plan
        claims = self._claims_of(plan.number)
        small = sum(map(len, parts)) <= AT_ONCE
        for _ in range(MAX_TRIES):
            claims.lock()
            try:
                location = claims.claim(plan, request.rows, self._process)
                if location is None:
                    return False
                request.location = location
                if small:
                    self._write_inputs(request, parts)
                    wakes = self._mark_ready(claims, request)
            finally:
                claims.unlock()
            if not small:
                self._write_inputs(request, parts)
                wakes = self._mark_ready_locking(claims, request)
            if wakes is not None:
                self._pending.setdefault((plan.number, *location[:2]), {})[location[2]] = request
                if wakes:
                    os.eventfd_write(self._engine, 1)
                return True
            self._release(plan.number, location[0], request.rows)
        return False

    def _claims_of(self, number: int) -> Claims:
        claims = self._claims.get(number)
        if claims is None:
            claims = self._claims[number] = Claims(self._number, self._mapped, number)
        return claims

    def _write_inputs(self, request: PendingRequest, parts: Sequence[Any]) -> None:
        plan, (tray, _, row) = request.offer.plan, request.location
        start, memory, cuts = plan.start + tray * plan.size, self._memory, request.offer.cuts
        for n, ((at, width), part) in enumerate(zip(plan.inputs, parts, strict=True)):
            first = start + at + row * width
            place = memory[first : first + request.rows * width]
            if cuts:
                padded(place, request.rows, part, cuts[n])
            else:
                place[:] = part

    def _mark_ready_locking(self, claims: Claims, request: PendingRequest) -> bool | None:
        try:
            claims.lock()
        except Held:
            return None
        try:
            return self._mark_ready(claims, request)
        finally:
            claims.unlock()

    def _mark_ready(self, claims: Claims, request: PendingRequest) -> bool | None:
        mark = marked(request.offer.kind, request.number)
        return claims.mark_ready(request.offer.plan, request.location, mark, int(request.arrived * 1e9))

    def cancel(self, request: PendingRequest) -> None:
        """Cancels a pending request whose client has disconnected."""
        plan, (tray, turn, row) = request.offer.plan, request.location
        pending = self._pending.get((plan.number, tray, turn), {})
        if pending.pop(row, None) is None:
            return
        self._release(plan.number, tray, request.rows, request)

    def on_bell(self, completed: Callable[[PendingRequest, Sequence[bytes] | None], None]) -> None:
        """Collects completed requests.

        completed: called with each request and the elements of its outputs, None if its tray ran without it.
        """
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        for key, pending in list(self._pending.items()):
            number, tray, turn = key
            claims = self._claims_of(number)
            state = claims.state(tray, turn)
            if state in (OPEN, RUNS):
                continue
            del self._pending[key]
            for request in pending.values():
                if not claims.answered(request.offer.plan, request.location):
                    completed(request, None)
                elif state == DONE:
                    completed(request, self._outputs(request))
            self._release(number, tray, sum([request.rows for request in pending.values()]))

    def _outputs(self, request: PendingRequest) -> list[bytes]:
        plan, (tray, _, row) = request.offer.plan, request.location
        start = plan.start + tray * plan.size
        places = [plan.outputs[n] for n in request.offer.outputs]
        found = [self._memory[(first := start + at + row * w) : first + request.rows * w] for at, w in places]
        if not request.offer.cuts:
            return [bytes(place) for place in found]
        cuts = request.offer.cuts[len(plan.inputs) :]
        return [unpadded(place, request.rows, cut) for place, cut in zip(found, cuts, strict=True)]

    def _release(self, number: int, tray: int, rows: int, left: PendingRequest | None = None) -> None:
        """Releases rows; deferred if a stopped process holds the lock.  left: the client has disconnected."""
        self._to_release.append((number, tray, rows, left))
        while self._to_release:
            number, tray, rows, left = self._to_release[-1]
            claims = self._claims_of(number)
            try:
                claims.lock()
            except Held:
                return
            if left is not None:
                claims.cancel(left.offer.plan, left.location, marked(left.offer.kind, left.number))
            claims.release(tray, rows, self._process)
            claims.unlock()
            self._to_release.pop()
