"""The main function of a front-end process, started by `pool` with settings as JSON on stdin and descriptors as arguments."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mgx_core import ParameterError

from ..channels.channel import Ends
from ..connection_balancer import Part
from ..grpc_service import handler
from ..http_infer import InferPaths
from ..listening import Listening
from ..settings import Settings
from ..tray_writer import TrayWriter
from .remote import Engine, Others
from .start import LOG_FORMAT, settings_of

__all__ = ["main"]


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the engine process decides when to stop
        signal.signal(number, signal.SIG_IGN)
    settings, level, part, trays = settings_of(json.load(sys.stdin))
    logging.basicConfig(level=level, format=LOG_FORMAT)
    asyncio.run(serve(settings, Ends(*map(int, sys.argv[1:])), part, trays))


async def serve(settings: Settings, ends: Ends, part: Part, trays: Sequence[int]) -> None:
    """Serves until the engine process sends the stop message or exits."""

    def on_message(kind: str, content: Any) -> None:
        if kind == "end":
            engine.ending.set()
        elif kind == "changed":
            engine.changed()

    engine = _engine(settings, on_message)
    if trays:
        engine.use_trays(TrayWriter(*trays))
    await engine.connect(ends)
    listening = Listening(settings)
    try:
        await listening.open(InferPaths(engine, settings.max_bytes, Others(engine)), handler(engine, engine.grpc), part)
    except (ParameterError, OSError) as error:
        engine.tell("ended", content=str(error))
    else:
        engine.tell("ready")
        waits = [asyncio.create_task(event.wait()) for event in (engine.ending, engine.ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not engine.ended.is_set():
            await listening.close()
    listening.hand_on()
    await engine.close()


def _engine(settings: Settings, on_message: Callable[[str, Any], None]) -> Engine:
    if settings.ray is None or settings.traces:  # the engine process records the spans of requests
        return Engine(settings, on_message)
    from ..on_ray.connection import Connection
    from .direct import Direct

    return Direct(settings, on_message, Connection(settings.ray))
