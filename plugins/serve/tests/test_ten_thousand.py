"""Ten thousand random malformed requests: each is rejected, and none leaks resources of the server."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mgx_serve.messages import messages

SEED, COUNT = 7, 10_000
INFER = "/inference.GRPCInferenceService/ModelInfer"
OTHERS = ("Metadata", "Config")
REFUSED = {grpc.StatusCode[n] for n in ("INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")}
PATHS = (
    "/v2/models/double/infer",
    "/v2/models/double/versions/2/infer",
    "/v2/models/nosuch/infer",
    "/v2/models/double/versions/-1/infer",
    "/v2/models/%00/infer",
    "/v2/models/../../etc/passwd/infer",
    "/v2/repository/models/nosuch/load",
    "/v2/repository/models/..%2f..%2fetc/unload",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/cudasharedmemory/region/r/register",
    "/v2/models/double/config/nosuch",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/nosuch",
)
NUMBERS = (0, -1, 1, 3, 2**31, 2**62, 2**63, 2**64, 10**30, 1.5, float("inf"), float("nan"))
TEXTS = ("", "x", "y", "FP32", "FP33", "BYTES", "\ud800", "\0", "é" * 50, "x" * 5000, "../..", "{}", "1e999")


class Draw(random.Random):
    """Generates requests of which every part may be malformed."""

    def value(self, depth: int = 0) -> Any:
        kind = self.randrange(8 if depth < 4 else 6)
        if kind < 2:
            return self.choice(NUMBERS)
        if kind < 4:
            return self.choice(TEXTS)
        if kind < 6:
            return self.choice((None, True, False))
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.randrange(5))]
        return {self.choice(TEXTS[:6] + TEXTS[7:]): self.value(depth + 1) for _ in range(self.randrange(4))}

    def changed(self, given: dict[str, Any], *more: str) -> dict[str, Any]:
        """Returns an object with members replaced, added or removed."""
        made = dict(given)
        for _ in range(self.randrange(1, 3)):
            name = self.choice((*given, *more))
            if self.random() < 0.2:
                made.pop(name, None)
            else:
                made[name] = self.value()
        return made

    def parameters(self) -> dict[str, Any]:
        names = (
            "binary_data_size",
            "binary_data",
            "shared_memory_region",
            "shared_memory_byte_size",
            "timeout",
            "priority",
            "classification",
        )
        return {self.choice(names): self.value(2) for _ in range(self.randrange(3))}

    def json(self) -> bytes:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        given: dict[str, Any] = {"inputs": [self.changed(tensor, "parameters")], "parameters": self.parameters()}
        if self.random() < 0.3:
            given["inputs"] = [{**tensor, "parameters": self.parameters()}, self.changed(tensor)]
        if self.random() < 0.3:
            given = self.changed(
                given, "outputs", "id", "log_info", "trace_level", "key", "raw_handle", "byte_size", "offset"
            )
        return json.dumps(given).encode()

    def body(self) -> bytes:
        kind = self.randrange(6)
        if kind == 0:
            return self.randbytes(self.randrange(300))
        if kind == 1:
            return b"[" * self.randrange(50_000) if self.random() < 0.1 else b'{"inputs": ' + b"[" * self.randrange(200)
        made = self.json()
        if kind == 2:
            return made[: self.randrange(len(made))]
        if kind == 3:
            at = self.randrange(len(made))
            return made[:at] + self.randbytes(3) + made[at:]
        return made + (self.randbytes(self.randrange(64)) if kind == 4 else b"")

    def headers(self) -> dict[str, str]:
        made = {}
        if self.random() < 0.4:
            length = "Inference-Header-Content-Length"
            made[length] = self.choice(("0", "1", "60", "150", "99999", "-1", "1e3", "9" * 40, "x", ""))
        if self.random() < 0.1:
            made["Content-Encoding"] = self.choice(("gzip", "identity", "br", "x" * 100))
        if self.random() < 0.1:
            made["Authorization"] = self.choice(("Bearer", "Basic x", "Bearer " + "x" * 5000, ""))
        return made

    def message(self) -> bytes:
        """Returns a ModelInferRequest, or bytes that do not encode one."""
        known = messages()
        if self.random() < 0.2:
            return self.randbytes(self.randrange(200))
        made = known["ModelInferRequest"](model_name=self.choice(("double", "double", "double", "nosuch", "\0", "")))
        for _ in range(self.randrange(3)):
            tensor = made.inputs.add(
                name=self.choice(("x", "x", "y", "")), datatype=self.choice(("FP32", "FP32", "BYTES", "no"))
            )
            tensor.shape.extend(self.choice((0, 1, 4, 4, -1, 2**62)) for _ in range(self.randrange(4)))
            if self.random() < 0.3:
                tensor.contents.fp32_contents.extend([1.0] * self.randrange(6))
            if self.random() < 0.3:
                tensor.parameters[self.choice(tuple(self.parameters()) or ("timeout",))].int64_param = self.choice(
                    (-1, 2**62)
                )
        made.raw_input_contents.extend(
            self.randbytes(self.choice((0, 1, 15, 17, 60))) for _ in range(self.randrange(3))
        )
        if self.random() < 0.3:
            made.parameters[self.choice(("timeout", "priority", "other"))].string_param = "x"
        if self.random() < 0.3:
            output = made.outputs.add(name=self.choice(("nosuch", "y", "", "\0")))
            output.parameters["classification"].int64_param = self.choice((-1, 2**40, 2**63 - 1))
        text: bytes = made.SerializeToString()
        return text if self.random() < 0.7 else text[: self.randrange(len(text) + 1)]


def over_http(draw: Draw, connection: http.client.HTTPConnection) -> str:
    method = draw.choice(("POST", "POST", "POST", "POST", "PUT", "GET", "DELETE"))
    try:
        connection.request(method, draw.choice(PATHS[:2] * 4 + PATHS), draw.body(), draw.headers())
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return "closed"
    assert answer.status < 500 or answer.status == 501, (answer.status, said)
    assert b"Traceback" not in said and b".py" not in said, said
    if answer.status >= 400:
        assert json.loads(said)["error"]
    return str(answer.status)


def over_a_socket(draw: Draw, host: str, port: int) -> str:
    """Sends bytes that are not valid HTTP, or a part of a request, and disconnects."""
    with socket.create_connection((host, port)) as connection:
        head = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\n"
        length = str(draw.choice((-1, 10, 10**12, "x"))).encode()
        connection.sendall(
            draw.choice(
                (
                    draw.randbytes(100),
                    head + b"Content-Length: " + length + b"\r\n\r\n{",
                    head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                    head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
                    head + b"X: " + b"a" * draw.choice((100, 70_000)),
                )
            )
        )
    return "left"


def over_grpc(draw: Draw, channel: grpc.Channel) -> str:
    method = draw.choice((INFER, INFER, INFER, INFER, *(INFER[:-5] + name for name in OTHERS), INFER[:-1]))
    try:
        channel.unary_unary(method)(draw.message(), timeout=60)
    except grpc.RpcError as error:
        refusal: Any = error
        assert refusal.code() in REFUSED, refusal
        assert "Traceback" not in refusal.details() and ".py" not in refusal.details(), refusal
        return str(refusal.code().name)
    return "OK"


def held(process: int) -> tuple[float, int, int]:
    """Returns megabytes of memory, open files and threads of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    numbers = {n: int(re.search(rf"{n}:\s+(\d+)", status)[1]) for n in ("VmRSS", "Threads")}  # type: ignore[index]
    return numbers["VmRSS"] / 1024, len(list(Path(f"/proc/{process}/fd").iterdir())), numbers["Threads"]


@pytest.mark.slow
def test_ten_thousand_malformed_requests(serve: Callable[..., Any], models: Path) -> None:
    server = serve(models, "--shared-memory")
    host, _, port = server.http.partition(":")
    draw, seen = Draw(SEED), Counter[str]()
    connection = http.client.HTTPConnection(server.http, timeout=60)
    before = held(server.process.pid)
    with grpc.insecure_channel(server.grpc) as channel:
        for turn in range(COUNT):
            if turn == COUNT // 5:
                before = held(server.process.pid)  # permanent allocations have been made by now
            kind = turn % 10
            if kind == 9:
                seen[over_a_socket(draw, host, int(port))] += 1
            elif kind % 2:
                seen[over_http(draw, connection)] += 1
            else:
                seen[over_grpc(draw, channel)] += 1
    connection.close()
    memory, files, threads = held(server.process.pid)
    print(dict(seen), "before", before, "after", (memory, files, threads))
    assert memory < before[0] + 16 and files <= before[1] + 20 and threads <= before[2] + 20
    assert sum(seen[k] for k in ("200", "OK")) < COUNT / 10  # nearly all of them are malformed
    good = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})
    connection.request("POST", PATHS[0], good)
    assert json.loads(connection.getresponse().read())["outputs"][0]["data"] == [2, 4, 6, 8]
    connection.close()
    server.process.terminate()
    said = server.process.stdout.read()
    assert server.process.wait(60) == 0
    assert "Traceback" not in said, said[-3000:]
