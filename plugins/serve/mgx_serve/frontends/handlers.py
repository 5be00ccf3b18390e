"""The engine process's handlers for the messages of one front end."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.types import ASGIApp, Message

from mgx_core import ParameterError

from ..batching import Batcher
from ..budget import Share
from ..channels.arena import Bytes
from ..channels.channel import Channel
from ..channels.receiver import RequestReceiver
from ..channels.wire import answer_message, error_message, read_call, signature_message
from ..errors import ServeError
from ..grpc_methods import Methods
from ..inference import Service
from ..model import Signature
from ..trays import TrayMemory

__all__ = ["FrontEndHandlers"]

REPORTS = ("ran", "refused", "failed", "waiting")  # methods of `Recorder`
log = logging.getLogger("mgx_serve")
Reply = tuple[Any, Sequence[Bytes]]


class FrontEndHandlers:
    """Handles the messages of a front end, and of its successor when it is restarted.

    trays: the tray memory; number: the front end's index in it.
    """

    def __init__(
        self, service: Service, app: ASGIApp, methods: Methods, trays: TrayMemory | None = None, number: int = 0
    ) -> None:
        self._service, self._app, self._methods = service, app, methods
        self._trays, self._number = trays, number
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._kinds: dict[str, Callable[[Any, list[Bytes]], Awaitable[Reply]]] = {
            "infer": self._infer,
            "http": self._http,
            "grpc": self._grpc,
            "find": self._find,
        }
        self._channel: Channel | None = None
        self._receiver: RequestReceiver | None = None
        self._started: asyncio.Future[None] | None = None

    def connected(self, channel: Channel) -> asyncio.Future[None]:
        """Connects a new process; the returned future completes once that process listens.

        Errors, of the future: ParameterError if the process exits before.
        """
        self._channel = channel
        answers = functools.partial(_send, channel, "answers", 0)
        given = self._service
        self._receiver = RequestReceiver(self._queue, given.budget, answers, given.regions, self._trays, self._number)
        self._started = asyncio.get_running_loop().create_future()
        return self._started

    def _queue(self, model: str, version: str) -> Batcher:
        """Errors: NotFound, Unavailable."""
        found = self._service.repository.find(model, version)
        assert isinstance(found, Batcher), "models on Ray are asked by the front ends themselves"
        return found

    def settled(self) -> bool:
        """Returns True once the exited process holds no rows of trays, so that a successor can reuse its index."""
        return self._trays is None or self._trays.settled(self._number)

    def changed(self) -> None:
        """Invalidates caches here and in the front end: the served models or versions have changed."""
        if self._receiver is not None:
            self._receiver.changed()
        self.tell("changed")

    def tell(self, kind: str) -> None:
        """Sends a one-way message."""
        _send(self._channel, kind, 0, None)

    def received(self, message: Any, parts: list[Bytes]) -> None:
        kind, number, content = message
        if kind == "requests" and self._receiver is not None:
            self._receiver.take(content, parts)
        elif not number:
            self._on_message(kind, content)
        elif kind == "cancel":
            if number in self._tasks:
                self._tasks[number].cancel()
        else:
            tasks, answer = self._tasks, self._answer(self._channel, kind, number, content, parts)
            tasks[number] = task = asyncio.get_running_loop().create_task(answer)
            task.add_done_callback(lambda _: tasks.pop(number))

    def ended(self) -> None:
        """Cancels the requests of an exited process."""
        self._channel = None
        if self._receiver is not None:
            self._receiver.close()
        self._on_message("ended", "it ended; its log says why")
        tasks, self._tasks = self._tasks, {}  # its successor numbers its requests from 0 again
        for task in tasks.values():
            task.cancel()
        for record in self._service.metrics.records.values():
            record.waiting_in.pop(self, None)

    def _on_message(self, kind: str, content: Any) -> None:
        """Handles a one-way message: the process listens, or metrics of runs elsewhere."""
        if kind == "cancelled" and self._receiver is not None:
            self._receiver.cancel(content)
            return
        if kind in REPORTS:
            self._record(kind, *content)
            return
        if self._started is None or self._started.done():
            return
        if kind == "ready":
            self._started.set_result(None)
        else:
            self._started.set_exception(ParameterError(f"a front end cannot be started: {content}"))

    def _record(self, kind: str, name: str, version: str, *figures: Any) -> None:
        metrics = self._service.metrics
        if (name, version) in metrics.records:  # or it has been unloaded meanwhile
            model = Signature(name, version, "", 0.0, (), ())
            if kind == "waiting":
                metrics.waiting(model, figures[0], self)
            else:
                getattr(metrics, kind)(model, *figures)

    async def _answer(self, channel: Channel | None, kind: str, number: int, content: Any, parts: list[Bytes]) -> None:
        try:
            made, given = await self._kinds[kind](content, parts)
            _send(channel, "answer", number, made, given)
        except ServeError as error:
            _send(channel, "refused", number, error_message(error))
        except Exception:
            log.exception("%s", kind)
            refused = ServeError("the server failed; the reason is in its log")
            _send(channel, "refused", number, error_message(refused))

    async def _infer(self, content: Any, parts: list[Bytes]) -> Reply:
        call = read_call(content, parts)
        with Share(self._service.budget) as share:
            return answer_message(await self._service.infer(call, share))

    async def _find(self, content: Any, parts: list[Bytes]) -> Reply:
        """Returns a model's address for direct access by the front end, and its description."""
        found = self._service.repository.find(*content)
        return [found.shared_as, signature_message(found.signature)], []

    async def _grpc(self, content: Any, parts: list[Bytes]) -> Reply:
        name, headers = content
        return None, [await self._methods.answered(name, bytes(parts[0]), headers)]

    async def _http(self, content: Any, parts: list[Bytes]) -> Reply:
        method, path, query, headers = content
        body = bytes(parts[0])
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        given = {k.decode("latin-1"): v.decode("latin-1") for k, v in sent[0]["headers"]}
        given.pop("content-length", None)
        return [sent[0]["status"], given], [b"".join(m.get("body", b"") for m in sent[1:])]


def _send(channel: Channel | None, kind: str, number: int, content: Any, parts: Sequence[Bytes] = ()) -> None:
    if channel is not None:
        channel.send([kind, number, content], parts)
