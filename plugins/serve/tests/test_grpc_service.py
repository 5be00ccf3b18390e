"""gRPC streams during shutdown: a client that sends no further requests is not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from mgx_serve.auth import Access
from mgx_serve.budget import Budget
from mgx_serve.errors import BadRequest
from mgx_serve.grpc_service import handler
from mgx_serve.inference import Inference


class Ending(Inference):
    """The server starts to shut down while it answers the first request, which it rejects."""

    def __init__(self) -> None:
        self.access, self.budget, self.reads_headers, self.ending = Access({}), Budget(1 << 20), False, asyncio.Event()

    async def infer(self, call: Any, share: Any) -> NoReturn:
        self.ending.set()
        raise BadRequest("answered")


class Aborted(Exception):
    pass


class Context:
    async def abort(self, code: Any, text: str) -> NoReturn:
        raise Aborted(f"{code.name}: {text}")


class Details:
    method, invocation_metadata = "/inference.GRPCInferenceService/ModelStreamInfer", ()


async def answers(behind: str) -> list[bytes]:
    """Returns the answers to a request, after which a client ends its stream, sends another request, or does neither."""

    async def requests() -> AsyncIterator[bytes]:
        yield b""
        if behind == "request":
            yield b""
        elif behind == "nothing":
            await asyncio.Event().wait()

    async def others(*given: Any) -> NoReturn:
        raise AssertionError(given)

    stream = handler(Ending(), others).service(Details()).stream_stream
    return [made async for made in stream(requests(), Context())]


def test_a_stream_ended_by_its_client_ends_cleanly() -> None:
    (answer,) = asyncio.run(answers("end"))
    assert b"answered" in answer


@pytest.mark.parametrize("behind", ["request", "nothing"])
def test_other_streams_are_notified_of_shutdown(behind: str) -> None:
    with pytest.raises(Aborted, match="UNAVAILABLE: the server is ending"):
        asyncio.run(answers(behind))
