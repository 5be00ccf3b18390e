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

TRIES: Final = 3  # retries if the tray is taken before the request is marked ready
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

    number, size: descriptor and size of the memory of all sets; own: this process's index; engine: event descriptor that wakes
    the engine process; bell: event descriptor that wakes this process when a tray containing its rows has run.
    """

    def __init__(self, number: int, size: int, own: int, engine: int, bell: int) -> None:
        self.bell, self._engine = bell, engine
        self._number, self._own = number, own
        self._mapped = mmap.mmap(number, size)
        self._memory = memoryview(self._mapped)
        self._claims: dict[int, Claims] = {}
        self._puts: dict[
            tuple[int, int, int], dict[int, PendingRequest]
        ] = {}  # by (set, tray, generation), then by first row
        # rows to release: set, tray, rows, and whether the client left
        self._owed: list[tuple[int, int, int, PendingRequest | None]] = []

    def put(self, put: PendingRequest, parts: Sequence[Any]) -> bool:
        """Writes a request to a tray; returns False if there is no room.

        parts: bytes of its inputs, in the plan's order.
        Errors: LookupError if the set was withdrawn, or its lock is held by a stopped process.
        """
        plan = put.offer.plan
        claims = self._of(plan.number)
        small = sum(map(len, parts)) <= AT_ONCE
        for _ in range(TRIES):
            claims.lock()
            try:
                location = claims.claim(plan, put.rows, self._own)
                if location is None:
                    return False
                put.location = location
                if small:
                    self._copy(put, parts)
                    wakes = self._show(claims, put)
            finally:
                claims.unlock()
            if not small:
                self._copy(put, parts)
                wakes = self._shown(claims, put)
            if wakes is not None:
                self._puts.setdefault((plan.number, *location[:2]), {})[location[2]] = put
                if wakes:
                    os.eventfd_write(self._engine, 1)
                return True
            self._give_back(plan.number, location[0], put.rows)
        return False

    def _of(self, number: int) -> Claims:
        claims = self._claims.get(number)
        if claims is None:
            claims = self._claims[number] = Claims(self._number, self._mapped, number)
        return claims

    def _copy(self, put: PendingRequest, parts: Sequence[Any]) -> None:
        plan, (tray, _, row) = put.offer.plan, put.location
        start, memory, cuts = plan.start + tray * plan.size, self._memory, put.offer.cuts
        for n, ((at, width), part) in enumerate(zip(plan.inputs, parts, strict=True)):
            first = start + at + row * width
            place = memory[first : first + put.rows * width]
            if cuts:
                padded(place, put.rows, part, cuts[n])
            else:
                place[:] = part

    def _shown(self, claims: Claims, put: PendingRequest) -> bool | None:
        try:
            claims.lock()
        except Held:
            return None
        try:
            return self._show(claims, put)
        finally:
            claims.unlock()

    def _show(self, claims: Claims, put: PendingRequest) -> bool | None:
        mark = marked(put.offer.kind, put.number)
        return claims.show(put.offer.plan, put.location, mark, int(put.arrived * 1e9))

    def leave(self, put: PendingRequest) -> None:
        """Cancels a pending request whose client has disconnected."""
        plan, (tray, turn, row) = put.offer.plan, put.location
        puts = self._puts.get((plan.number, tray, turn), {})
        if puts.pop(row, None) is None:
            return
        self._give_back(plan.number, tray, put.rows, put)

    def rung(self, answered: Callable[[PendingRequest, Sequence[bytes] | None], None]) -> None:
        """Collects completed requests.

        answered: called with each request and the elements of its outputs, None if its tray ran without it.
        """
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        for key, puts in list(self._puts.items()):
            number, tray, turn = key
            claims = self._of(number)
            state = claims.state(tray, turn)
            if state in (OPEN, RUNS):
                continue
            del self._puts[key]
            for put in puts.values():
                if not claims.answered(put.offer.plan, put.location):
                    answered(put, None)
                elif state == DONE:
                    answered(put, self._outputs(put))
            self._give_back(number, tray, sum([put.rows for put in puts.values()]))

    def _outputs(self, put: PendingRequest) -> list[bytes]:
        plan, (tray, _, row) = put.offer.plan, put.location
        start = plan.start + tray * plan.size
        places = [plan.outputs[n] for n in put.offer.outputs]
        found = [self._memory[(first := start + at + row * w) : first + put.rows * w] for at, w in places]
        if not put.offer.cuts:
            return [bytes(place) for place in found]
        cuts = put.offer.cuts[len(plan.inputs) :]
        return [unpadded(place, put.rows, cut) for place, cut in zip(found, cuts, strict=True)]

    def _give_back(self, number: int, tray: int, rows: int, left: PendingRequest | None = None) -> None:
        """Releases rows; deferred if a stopped process holds the lock.  left: the client has disconnected."""
        self._owed.append((number, tray, rows, left))
        while self._owed:
            number, tray, rows, left = self._owed[-1]
            claims = self._of(number)
            try:
                claims.lock()
            except Held:
                return
            if left is not None:
                claims.hide(left.offer.plan, left.location, marked(left.offer.kind, left.number))
            claims.release(tray, rows, self._own)
            claims.unlock()
            self._owed.pop()
