"""A model on several replicas: throughput by their number, and the effect on clients when one is killed.

    python benchmarks/serving/scale.py MODEL.onnx --replicas 1,2,4 [--rows 32] [--extent s=8]
    python benchmarks/serving/scale.py MODEL.onnx --replicas 2 --kill 15 [--gpus 1 --target gpu --precision fp16]
    python benchmarks/serving/scale.py MODEL.onnx --replicas 0    # a server without Ray, compared with runs in this process
    python benchmarks/serving/scale.py MODEL.onnx --replicas 0 --shared-memory    # tensors in regions that clients register

Clients are distributed over separate processes and use HTTP with binary tensors; each continues as soon as it is answered.
With --kill, one replica is killed by SIGKILL after 5 s of load; the script then counts answers, rejections and lost requests,
and prints the time until a new process has started, and the rate of answers relative to that before.  The exit status is 1 if
a request was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import load
import regions

Answered = tuple[float, float, int]  # end by the monotonic clock, latency in seconds, status; 0 for a lost connection
Prepared = bytes | regions.Shared  # a prepared HTTP request, or tensors in each client's shared memory
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BEFORE = 5.0  # seconds of load before a replica is killed
STEP = 0.5  # seconds over which a rate is measured


def message(feeds: dict[str, np.ndarray], outputs: list[str]) -> bytes:
    """Returns a complete HTTP request with binary tensors for some outputs, or for all if none is named."""
    tensors = [
        {
            "name": n,
            "datatype": regions.NAMES[x.dtype.name],
            "shape": list(x.shape),
            "parameters": {"binary_data_size": x.nbytes},
        }
        for n, x in feeds.items()
    ]
    wanted = {"outputs": [{"name": n} for n in outputs]} if outputs else {}
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}} | wanted).encode()
    body = head + b"".join(x.tobytes() for x in feeds.values())
    lines = [
        f"POST {load.PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        f"{load.HEADER}: {len(head)}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> int:
    """Returns the status of the answer."""
    return (await answer(reader, writer, sent))[0]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> tuple[int, bytes, bytes]:
    """Returns status, headers and body of the answer."""
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    assert found is not None, head
    body = await reader.readexactly(int(found[1]))
    return int(head.split(maxsplit=2)[1]), head, body


def client_process(port: int, asked: Prepared, clients: int, end: float, results: Any) -> None:
    """Runs clients until `end` by the monotonic clock and returns their measurements to the parent."""
    seen: list[Answered] = []

    async def client(number: int) -> None:
        connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        if isinstance(asked, regions.Shared):
            region = regions.Region(f"mgx_bench_{os.getpid()}_{number}", asked)
            try:
                assert await ask(*connection, region.registration()) == 200, "the server rejects the region"
                await asking(connection, region.question())
            finally:
                region.close()
        else:
            await asking(connection, asked)

    async def asking(connection: Connection, sent: bytes) -> None:
        while (start := time.monotonic()) < end:
            try:
                status = await ask(*connection, sent)
            except (OSError, asyncio.IncompleteReadError):
                status = 0
                connection[1].close()
                connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
            seen.append((time.monotonic(), time.monotonic() - start, status))
        connection[1].close()

    async def all_clients() -> None:
        await asyncio.gather(*(client(number) for number in range(clients)))

    asyncio.run(all_clients())
    results.put(seen)


@contextlib.contextmanager
def clients(
    port: int, sent: Prepared, count: int, processes: int, seconds: float
) -> Iterator[Callable[[], list[Answered]]]:
    """Starts clients in separate processes; the yielded function waits for them and returns their measurements."""
    start = get_context("spawn")
    results = start.Queue()
    end = time.monotonic() + seconds + 2  # an interpreter takes a second or two to start
    shares = [count // processes + (n < count % processes) for n in range(processes)]
    made = [start.Process(target=client_process, args=(port, sent, share, end, results)) for share in shares if share]
    for process in made:
        process.start()
    yield lambda: sorted(row for _ in made for row in results.get(timeout=seconds + 120))
    for process in made:
        process.join()


def rate(seen: list[Answered], since: float, until: float) -> float:
    return sum(since <= at < until and status == 200 for at, _, status in seen) / (until - since)


@contextlib.contextmanager
def server(model: Path, *options: str) -> Iterator[int]:
    """Yields the port of a server."""
    port = load.free_port()
    command = [sys.executable, "-c", "from mgx_serve.command import main; main()", str(model), "--http-port", str(port)]
    process = subprocess.Popen([*command, "--grpc-port", "-1", *options], stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(120)


def replicas() -> list[int]:
    """Returns the ids of the processes that run the model."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if re.search(rb"ServeReplica:mgx-\w+-model", path.read_bytes()):
                found.append(int(path.parent.name))
    return found


def answers(port: int, sent: bytes) -> bool:
    async def once() -> int:
        connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        try:
            return await ask(*connection, sent)
        finally:
            connection[1].close()

    return asyncio.run(once()) == 200


def ready(port: int, sent: bytes) -> None:
    def answered() -> None:
        if not answers(port, sent):
            raise ConnectionError("the model is not ready")

    load.wait(answered)


def shared(port: int, sent: bytes, feeds: dict[str, np.ndarray]) -> regions.Shared:
    """Returns a request by shared memory, with as much space for outputs as an answer without it has."""

    async def once() -> tuple[int, bytes, bytes]:
        connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        try:
            return await answer(*connection, sent)
        finally:
            connection[1].close()

    _, head, body = asyncio.run(once())
    found = re.search(rb"\r\n" + load.HEADER.encode() + rb": *(\d+)", head, re.IGNORECASE)
    assert found is not None, head
    return regions.Shared.of(feeds, body, int(found[1]))


def throughput(port: int, sent: Prepared, given: argparse.Namespace, count: int) -> tuple[float, list[float]]:
    """Returns answers per second and each latency in seconds, once the clients have started."""
    with clients(port, sent, count, given.processes, given.seconds) as finished:
        seen = finished()
    last = seen[-1][0]
    first = max(seen[0][0] + 0.5, last - given.seconds)
    statuses = Counter(status for *_, status in seen)
    if set(statuses) != {200}:
        print(f"statuses: {dict(statuses)}")
    return rate(seen, first, last), [spent for at, spent, _ in seen if at >= first]


def killed(port: int, sent: bytes, given: argparse.Namespace, count: int, rows: int) -> bool:
    """Kills a replica under load and prints the effect on clients.  Returns False if a request was lost."""
    former = replicas()
    with clients(port, sent, count, given.processes, BEFORE + given.kill) as finished:
        time.sleep(2 + BEFORE)
        os.kill(former[0], signal.SIGKILL)
        moment = time.monotonic()
        while len(now := replicas()) < len(former) or former[0] in now:
            time.sleep(0.05)
        replaced = time.monotonic() - moment
        seen = finished()
    before = rate(seen, moment - BEFORE + 1, moment)
    end = seen[-1][0] - 0.5  # some clients have finished by then
    rates = [rate(seen, at, at + STEP) for at in np.arange(moment, end - STEP, STEP)]
    statuses = Counter(status for *_, status in seen)
    slowest = max(spent for at, spent, _ in seen if at >= moment)
    print(f"before {before * rows:.0f} rows/s; after the kill, every {STEP} s: {[round(r * rows) for r in rates]}")
    print(f"statuses {dict(statuses)}; slowest answer {slowest:.2f} s; new process after {replaced:.1f} s", end="; ")
    for since in (5.0, 10.0):
        if moment + since + 1 < end:
            print(f"from {since:.0f} s on {rate(seen, moment + since, end) / before:.2f} of the rate before", end="; ")
    print(flush=True)
    return statuses[0] == 0


def feeds_of(model: Path, rows: int, extents: dict[str, int]) -> dict[str, np.ndarray]:
    """Returns inputs of ones for a model whose first axis is the batch."""
    import mgx_core as mgx

    made = {}
    for name, shape in mgx.parse(model).get_parameter_shapes().items():
        dims = [d if isinstance(d, int) else extents.get(str(d), 1) for d in shape.dims]
        made[name] = np.ones([rows, *dims[1:]], shape.dtype.numpy)
    return made


def in_process(model: Path, given: argparse.Namespace, extents: dict[str, int]) -> float:
    """Returns rows per second of consecutive runs in this process, at the largest batch."""
    import mgx_core as mgx

    program = mgx.parse(model)
    if given.precision:
        {"fp16": mgx.quantize_fp16, "bf16": mgx.quantize_bf16}[given.precision](program)
    program.compile(mgx.get_target(given.target or mgx.best_target()))
    feeds = feeds_of(model, given.max_batch, extents)
    best = 0.0
    for turn in range(4):
        runs, start = 0, time.perf_counter()
        while runs < 10 if not turn else time.perf_counter() < start + given.seconds / 3:
            for result in program.run(feeds, outputs=given.output or None):
                np.asarray(result)
            runs += 1
        best = max(best, turn and runs * given.max_batch / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--replicas", default="1,2", help="numbers of replicas to measure in turn; 0: without Ray")
    parser.add_argument("--target", default="")
    parser.add_argument("--precision", default="")
    parser.add_argument("--cpus", type=float, default=1.0)
    parser.add_argument("--gpus", type=float, default=0.0)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--rows", default="1", help="rows per request; several numbers are measured in turn: 1,8")
    parser.add_argument("--frontends", type=int, default=0, help="number of front-end processes")
    parser.add_argument(
        "--shared-memory", action="store_true", help="clients pass tensors in shared-memory regions of their own"
    )
    parser.add_argument("--clients", type=int, default=32, help="clients per replica")
    parser.add_argument("--processes", type=int, default=2, help="processes that the clients are distributed over")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument(
        "--settle", type=float, default=2.0, help="seconds of warm-up, in which batch sizes are compiled"
    )
    parser.add_argument(
        "--extent", action="append", default=[], help="extent of a symbolic axis other than the batch: seq=128"
    )
    parser.add_argument("--output", action="append", default=[], help="requested outputs [default: all]")
    parser.add_argument("--kill", type=float, default=0.0, help="seconds of load after a replica is killed")
    given = parser.parse_args()
    extents = {name: int(value) for name, _, value in (e.partition("=") for e in given.extent)}
    options = ["--max-batch", str(given.max_batch), "--instances", str(given.instances), "--queue-size", "1024"]
    options += ["--frontends", str(given.frontends), *(["--shared-memory"] if given.shared_memory else [])]
    for name in ("target", "precision"):
        if getattr(given, name):
            options += [f"--{name}", getattr(given, name)]
    whole = True
    rates: dict[tuple[int, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        model.symlink_to(given.model.resolve())
        feeds = {rows: feeds_of(model, rows, extents) for rows in map(int, given.rows.split(","))}
        sent = {rows: message(made, given.output) for rows, made in feeds.items()}
        for number in map(int, given.replicas.split(",")):
            place = ["--ray", "--replicas", str(number), "--cpus", str(given.cpus), "--gpus", str(given.gpus)]
            local = 0.0 if number else in_process(model, given, extents)
            count = given.clients * max(number, 1)
            with server(model, *options, *(place if number else [])) as port:
                for rows, text in sent.items():
                    ready(port, text)
                    asked = shared(port, text, feeds[rows]) if given.shared_memory else text
                    throughput(port, asked, argparse.Namespace(**{**vars(given), "seconds": given.settle}), count)
                    found, spent = throughput(port, asked, given, count)
                    rates[number, rows] = found
                    base = rates.get((1, rows), 0.0) * number if number else local / rows
                    said = f"{number} replicas" if number else f"one process (runs here: {local:.0f} rows/s)"
                    ratio = f", {found / base:.2f} of {'linear' if number else 'runs here'}" if base else ""
                    p50, p99 = (1e3 * np.percentile(spent, p) for p in (50, 99))
                    took = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
                    if local:
                        took += (
                            f" ({p99 * local / given.max_batch / 1e3:.1f} times a run of {given.max_batch} rows here)"
                        )
                    print(f"{said}, {rows} rows per request: {found * rows:.0f} rows/s, {took}{ratio}", flush=True)
                if given.kill and number > 1:
                    whole = killed(port, text, given, count, rows) and whole
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
