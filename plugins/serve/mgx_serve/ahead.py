"""Inputs of the next batch, put together while the one before it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from .batch import Request, Together, size_of, together
from .model import Model
from .stacks import Stack, Stacks, put
from .tensors import Array, Lying

__all__ = ["Ahead", "Inputs"]

AT_ONCE: Final = 1 << 17  # bytes of inputs: to put fewer together takes no longer than to wake a thread that does
LARGE: Final = 1 << 15  # bytes of a request whose rows are put in their place when it has come
PART: Final = 1 << 22  # bytes that are worth waking a thread for
MOST_THREADS: Final = 4  # two of them copy as fast as many machines' memory allows
T = TypeVar("T")
Inputs = Callable[[], Together]
Rows = Sequence[tuple[Request, int]]  # requests, and the number of the first row of each in its batch


@dataclass(eq=False)
class Laid:
    """A batch whose rows are put in their place as its requests come.

    key: of its requests; like: the inputs of one of them; rows: of all of them; copies: of those that threads copy.
    """

    key: Any
    like: Mapping[str, Array | Lying]
    stack: Stack
    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    copies: list[Future[None]] = field(default_factory=list)

    def add(self, request: Request) -> tuple[Request, int]:
        """Returns where the rows of a request begin."""
        start, self.rows = self.rows, self.rows + request.rows
        self.requests.append(request)
        request.laid = self
        return request, start

    def keep(self, count: int) -> None:
        """Leaves requests out, those behind the first `count`; what is copied of them lies behind the rows."""
        for request in self.requests[count:]:
            request.laid = None
            self.rows -= request.rows
        del self.requests[count:]

    def all_of_them(self) -> list[Request]:
        """Returns the requests, which nothing here refers to from then on: their memory is free as soon as they are answered."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.laid = None
        return requests


class Ahead:
    """Puts the inputs of one model's batches together, the large ones in threads.

    Requests with large inputs are copied to the memory of the next batch when they come, so that little is left to do when the
    run before it ends.  What is in that batch is decided later: a request whose client has left by then, or that more urgent ones
    take the place of, has all of them copied again.

    None of the methods but `close` may run at the same time as another.
    """

    def __init__(self, model: Model, stacks: Stacks, runs: int) -> None:
        """runs: at a time."""
        self._model, self._stacks, self._most = model, stacks, model.settings.max_batch
        threads = max(runs, min(MOST_THREADS, (os.cpu_count() or 1) // 2))
        self._threads = ThreadPoolExecutor(threads, f"mgx-serve-{model.signature.name}-inputs")
        self._laid: Laid | None = None

    def lay(self, waiting: Sequence[Request]) -> None:
        """Has those requests copied that will be in the next batch, as it looks now.  waiting: in the order of the queue."""
        if not waiting or not _is_large(waiting[0]):
            return
        first = waiting[0]
        laid = self._laid
        if laid is not None and laid.key != first.key:
            if any(r.laid is laid for r in waiting):
                return  # its turn comes
            self.forget()
            laid = None
        new = [r for r in waiting if r.laid is None and r.key == first.key]
        if sum([r.size for r in new]) < PART:
            return
        if laid is None:
            if len(new) == 1 and not self._model.own_memory:  # which is run where it lies if it stays alone
                return
            laid = self._laid = self._new(first)
        self._copy(laid, [laid.add(r) for r in new if laid.rows + r.rows <= self._most])

    def inputs(self, batch: list[Request], sooner: bool) -> Inputs:
        """Returns what gives the inputs of a batch, filled up to one of the model's sizes.

        batch: is brought in the order in which its rows lie; sooner: another run is under way; they are put together meanwhile.
        """
        laid = self._taken(batch)
        if not _is_large(batch[0]) or self._lies_well(batch, sooner):
            if laid is not None:
                self._drop(laid)
            return self._plain(batch, sooner)
        laid = laid or self._new(batch[0])
        rest = [laid.add(r) for r in batch if r.laid is not laid]
        batch[:] = laid.all_of_them()
        last: Rows = ()
        if not sooner and rest:
            *others, last = _parts(rest)
            rest = [r for part in others for r in part]
        self._copy(laid, rest)
        return partial(self._made, laid, last, size_of(self._model, batch))

    def forget(self) -> None:
        """Notes that no request waits any more."""
        if self._laid is not None:
            self._drop(self._laid)
            self._laid = None

    def _new(self, first: Request) -> Laid:
        return Laid(first.key, first.feeds, self._stacks.take())

    def _lies_well(self, batch: Sequence[Request], sooner: bool) -> bool:
        """Returns True for a single request whose inputs are run where they lie, and for one that is larger than any batch."""
        rows = batch[0].rows
        if len(batch) > 1:
            return False
        return rows > self._most or (rows == size_of(self._model, batch) and not (sooner and self._model.own_memory))

    def _taken(self, batch: Sequence[Request]) -> Laid | None:
        """Returns what was laid for a batch; None if nothing was, or it is of no use.

        Of use is what is in the batch but for its end, behind which nothing else can be laid while it is being copied.
        """
        laid = self._laid
        if laid is None or laid.key != batch[0].key:
            return None
        self._laid = None
        count = sum([r.laid is laid for r in batch])
        if count < len(laid.requests) and set(laid.requests[:count]) != set(batch):
            self._drop(laid)
            return None
        laid.keep(count)
        return laid

    def _drop(self, laid: Laid) -> None:
        laid.all_of_them()
        self._submit(self._give_back, laid)

    def _give_back(self, laid: Laid) -> None:
        if not [copy for copy in laid.copies if copy.exception() is not None]:  # which may still be made
            self._stacks.give_back(laid.stack)

    def _submit(self, function: Callable[..., T], *given: Any) -> Future[T]:
        """Returns what a thread will have made, or the error where none can be started."""
        try:
            return self._threads.submit(function, *given)
        except RuntimeError as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _plain(self, batch: Sequence[Request], sooner: bool) -> Inputs:
        make = partial(together, self._model, batch, self._stacks, sooner)
        if not sooner:
            return make
        if sum([r.size for r in batch]) > AT_ONCE:
            return self._submit(make).result
        made: Future[Together] = Future()
        try:
            made.set_result(make())
        except Exception as error:
            made.set_exception(error)
        return made.result

    def _copy(self, laid: Laid, rows: Rows) -> None:
        for part in _parts(rows):
            laid.copies.append(self._submit(_copied, laid, part, self._most))

    def _made(self, laid: Laid, last: Rows, size: int) -> Together:
        """Returns the inputs once all rows are in their place.  last: rows that this thread copies."""
        if last:
            _copied(laid, last, self._most)
        for copy in laid.copies:
            copy.result()
        made: Mapping[str, Array] = {n: laid.stack.place(n, v, self._most)[:size] for n, v in laid.like.items()}
        for place in made.values():
            place[laid.rows :] = place[laid.rows - 1]  # a row that the model takes
        return made, laid.stack

    def close(self) -> None:
        self._threads.shutdown()


def _is_large(request: Request) -> bool:
    return request.key is not None and request.size >= LARGE


def _parts(rows: Rows) -> list[Rows]:
    """Returns the rows in parts that are worth a thread each."""
    parts: list[list[tuple[Request, int]]] = []
    size = PART
    for request, start in rows:
        if size >= PART:
            parts.append([])
            size = 0
        parts[-1].append((request, start))
        size += request.size
    return list(parts)


def _copied(laid: Laid, rows: Rows, most: int) -> None:
    """Copies rows that follow each other.  Errors: BadRequest for elements that are gone."""
    _, start = rows[0]
    for name, like in laid.like.items():
        put([request.feeds[name] for request, _ in rows], laid.stack.place(name, like, most)[start:])
