"""Clients with low overhead: prepared messages over plain connections to 127.0.0.1."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np

HEADER = "Inference-Header-Content-Length"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
PATH = "/v2/models/model/infer"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait(call: Callable[[], Any], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            call()
            return
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def rest_message(name: str, x: np.ndarray) -> tuple[bytes, dict[str, str]]:
    """Returns body and headers of a request with a binary tensor, which requests binary results."""
    given = {"name": name, "datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    return head + x.tobytes(), {HEADER: str(len(head)), "Content-Type": "application/octet-stream"}


def json_message(name: str, x: np.ndarray) -> tuple[bytes, dict[str, str]]:
    """Returns the same for servers without the binary extension."""
    given = {"name": name, "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
    return json.dumps({"inputs": [given]}).encode(), {"Content-Type": "application/json"}


def grpc_message(name: str, x: np.ndarray) -> bytes:
    from mgx_serve.messages import messages

    known = messages()
    tensor = known["InferInputTensor"](name=name, datatype="FP32", shape=x.shape)
    made: bytes = known["ModelInferRequest"](
        model_name="model", inputs=[tensor], raw_input_contents=[x.tobytes()]
    ).SerializeToString()
    return made


def rest_caller(port: int, body: bytes, headers: dict[str, str]) -> Callable[[], bytes]:
    """Returns a function that sends one request over a persistent connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lines = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    message = "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode() + body
    sock = connection.sock

    def ask() -> bytes:
        sock.sendall(message)
        return _answer(sock)

    return ask


def _answer(sock: Any) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(1 << 20)
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(data[:500])
    length = int(
        next(v for k, _, v in (line.partition(b":") for line in head.split(b"\r\n")) if k.lower() == b"content-length")
    )
    while len(body) < length:
        body += sock.recv(1 << 20)
    return body


def grpc_caller(port: int, message: bytes) -> Callable[[], bytes]:
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
    call = channel.unary_unary(METHOD)
    return lambda: call(message, timeout=60)


def throughput(port: int, body: bytes, headers: dict[str, str], clients: int, seconds: float) -> tuple[float, float]:
    """Returns requests per second and the 99th percentile of their latency in seconds; each client continues as soon as it is
    answered.
    """
    lines = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    message = "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode() + body
    taken: list[float] = []

    async def client(end: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(message)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head)
            at = head.lower().index(b"\r\ncontent-length:") + 17
            await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
            taken.append(time.perf_counter() - start)
        writer.close()

    async def all_clients() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(client(start + seconds) for _ in range(clients)))
        return time.perf_counter() - start

    spent = asyncio.run(all_clients())
    return len(taken) / spent, float(np.percentile(taken, 99))


def grpc_throughput(port: int, message: bytes, clients: int, seconds: float) -> tuple[float, float]:
    """Returns the same over gRPC; the clients share four connections."""
    taken: list[float] = []

    async def all_clients() -> float:
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}") for _ in range(4)]
        calls = [c.unary_unary(METHOD) for c in channels]
        begin = time.perf_counter()

        async def client(call: Any) -> None:
            while (start := time.perf_counter()) < begin + seconds:
                await call(message, timeout=60)
                taken.append(time.perf_counter() - start)

        await asyncio.gather(*(client(calls[n % len(calls)]) for n in range(clients)))
        spent = time.perf_counter() - begin
        for channel in channels:
            await channel.close()
        return spent

    spent = asyncio.run(all_clients())
    return len(taken) / spent, float(np.percentile(taken, 99))
