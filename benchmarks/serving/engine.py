"""Throughput of the engine process with front ends that do no work, and a simulated device that executes one run at a time.

python benchmarks/serving/engine.py [--kind tokens|image] [--rows 1] [--base 0.33 --row 0.083] [--clients 32] [--channels 5]

Clients in another process send requests over channels, like front ends, and again as soon as they are answered; their inputs
are not copied there.  A run takes `--base` milliseconds plus `--row` for each of its rows, after the previous run has ended.
Printed are rows per second relative to consecutive runs of `--max-batch` rows, latencies, the times between two runs, in which
a device would be idle, and the engine process's processor time per request.  Models are those of `turnaround.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import turnaround

from mgx_serve.batching import Batcher
from mgx_serve.budget import Budget
from mgx_serve.channels.arena import Arena, shared_memory
from mgx_serve.channels.channel import Channel, Ends
from mgx_serve.channels.receiver import RequestReceiver
from mgx_serve.channels.sender import RequestSender
from mgx_serve.inference import Call
from mgx_serve.metrics import Metrics
from mgx_serve.model import Model
from mgx_serve.settings import ModelSettings
from mgx_serve.tracing import NoTraces
from mgx_serve.tray_claims import ENGINE
from mgx_serve.tray_writer import PendingRequest, TrayWriter
from mgx_serve.trays import TrayMemory

SIZE = 512 << 20  # bytes of memory in each direction of a channel
WARM = 0.8  # seconds of warm-up
Run = tuple[float, float]  # start, end


class Nowhere:
    """Memory to which writes are discarded."""

    def __setitem__(self, place: slice, data: Any) -> None: ...


class Light(Arena):
    """Allocates blocks without writing to them."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__(number, size)
        self._memory[: 64 << 20] = bytes(64 << 20)  # so that it exists
        self._memory: Any = Nowhere()


class Leaving(TrayWriter):
    """Claims rows of trays without writing to them."""

    def _write_inputs(self, request: PendingRequest, parts: Sequence[Any]) -> None: ...


async def ask(ends: Sequence[Ends], trays: TrayMemory, given: argparse.Namespace) -> None:
    """Sends requests over channels and prints the clients' measurements."""
    senders = []
    for own, end in enumerate(ends, ENGINE + 1):
        sender: list[RequestSender] = []
        channel = await Channel.opened(end, lambda message, parts, s=sender: s[0].receive_answers(message[2], parts))
        _, borrowed = channel._memory or (None, None)
        assert borrowed is not None
        channel._memory = (Light(os.dup(end.written), end.size), borrowed)
        sender.append(RequestSender(lambda channel=channel: channel))
        sender[0].use_trays(Leaving(*trays.writer_arguments(own)))
        senders += sender
    feeds = {"x": np.ones((given.rows, 3, 224, 224), np.float32)}
    if given.kind == "tokens":
        feeds = {name: np.ones((given.rows, 128), np.int64) for name in ("ids", "mask")}
    begun = time.monotonic()
    end_of_it = begun + given.seconds + WARM
    seen: list[Run] = []

    async def client(number: int) -> None:
        sender = senders[number % len(senders)]
        while (start := time.monotonic()) < end_of_it:
            await sender.infer(Call("model", "", feeds))
            seen.append((start, time.monotonic()))

    await asyncio.gather(*map(client, range(given.clients)))
    counted = [(start, end) for start, end in seen if begun + WARM < end < end_of_it]
    rate = len(counted) * given.rows / given.seconds
    full = 1e3 * given.max_batch / (given.base + given.row * given.max_batch)
    p50, p99 = (1e3 * np.percentile([end - start for start, end in counted], p) for p in (50, 99))
    print(f"{rate:.0f} rows/s, {rate / full:.3f} of full runs; p50 {p50:.2f}, p99 {p99:.2f} ms", end="; ", flush=True)


def waiting_model(given: argparse.Namespace, seen: list[Run]) -> Model:
    """Returns a model whose runs wait for the simulated device and compute nothing."""
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    turnaround.write_model(path, given.kind)
    settings = ModelSettings(target="ref", max_batch=given.max_batch, instances=given.instances, queue_size=1024)
    model = Model.read("model", "1", path, settings)
    device = threading.Lock()

    def seconds(rows: int) -> float:
        return float(given.base + given.row * rows) / 1e3

    def run(feeds: Mapping[str, Any], wanted: Sequence[int] | None = None) -> list[Any]:
        rows = next(iter(feeds.values())).shape[0]
        with device:
            start = time.perf_counter()
            time.sleep(seconds(rows))
            seen.append((start, time.perf_counter()))
        return [np.zeros((rows, *t.shape[1:]), t.dtype) for t in model.signature.outputs]

    model.run = run  # type: ignore[method-assign]
    for size in model.sizes:
        model.seconds[tuple((size, *t.shape[1:]) for t in model.signature.inputs)] = seconds(size)
    return model


async def answer(ends: Sequence[Ends], trays: TrayMemory, model: Model) -> tuple[int, float]:
    """Answers until the other process ends; returns the number of requests and the processor time."""
    metrics, ended = Metrics(NoTraces()), asyncio.Event()
    batcher = Batcher(model, metrics)
    asyncio.get_running_loop().add_reader(trays.bells[ENGINE], trays.on_bell)
    for own, end in enumerate(ends, ENGINE + 1):
        taken: list[RequestReceiver] = []

        def received(message: Any, parts: list[Any], taken: list[RequestReceiver] = taken) -> None:
            if message[0] == "requests":
                taken[0].take(message[2], parts)

        channel = await Channel.opened(end, received, ended.set)

        def send(content: Any, parts: Sequence[Any] = (), channel: Channel = channel) -> None:
            channel.send(["answers", 0, content], parts)

        taken.append(RequestReceiver(lambda model, version: batcher, Budget(2 << 30), send, None, trays, own))
    before = time.process_time()
    await ended.wait()
    return metrics.records["model", "1"].requests, time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["tokens", "image"], default="image")
    parser.add_argument("--rows", type=int, default=1, help="rows of a request")
    parser.add_argument("--base", type=float, default=0.33, help="milliseconds per run")
    parser.add_argument("--row", type=float, default=0.083, help="additional milliseconds per row")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--channels", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    seen: list[Run] = []
    model = waiting_model(given, seen)
    ours, theirs = [], []
    for _ in range(given.channels):
        here, there = socket.socketpair()
        requests, answers = shared_memory("requests", SIZE), shared_memory("answers", SIZE)
        ours.append(Ends(here.detach(), answers, requests, SIZE))
        theirs.append(Ends(there.detach(), requests, answers, SIZE))
    trays = TrayMemory(shared_memory("trays", SIZE), SIZE, given.channels)
    if not os.fork():
        asyncio.run(ask(theirs, trays, given))
        os._exit(0)
    for end in theirs:
        os.close(end.socket)
    count, busy = asyncio.run(answer(ours, trays, model))
    os.wait()
    gaps = 1e3 * np.array([b[0] - a[1] for a, b in itertools.pairwise(seen[len(seen) // 4 :])])
    p50, p90 = np.percentile(gaps, (50, 90))
    rows = count * given.rows / len(seen)
    print(
        f"runs of {rows:.1f} rows, between them p50 {p50:.2f}, p90 {p90:.2f}, mean {gaps.mean():.2f} ms; "
        f"{1e6 * busy / count:.1f} us a request"
    )


if __name__ == "__main__":
    main()
