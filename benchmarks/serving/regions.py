"""A client's tensors in a shared-memory object, which the server reads and writes directly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import load
import numpy as np

FOLDER = Path("/dev/shm")
NAMES = {"float32": "FP32", "float16": "FP16", "int64": "INT64", "int32": "INT32"}


@dataclass(frozen=True)
class Shared:
    """The contents of each client's request.  feeds: the inputs; results: bytes of each requested output, by name."""

    feeds: Mapping[str, np.ndarray]
    results: Mapping[str, int]

    @classmethod
    def of(cls, feeds: Mapping[str, np.ndarray], answer: bytes, head: int) -> Self:
        """answer: a body with binary outputs, as the server returns it without shared memory; head: bytes of its JSON."""
        outputs = json.loads(answer[:head])["outputs"]
        return cls(feeds, {o["name"]: o["parameters"]["binary_data_size"] for o in outputs})


class Region:
    """One client's object: inputs, followed by space for outputs.  It exists until `close`."""

    def __init__(self, name: str, given: Shared) -> None:
        self.name, self._given, self._path = name, given, FOLDER / name
        inputs = b"".join(x.tobytes() for x in given.feeds.values())
        self._size = len(inputs) + sum(given.results.values())
        self._path.write_bytes(inputs + bytes(self._size - len(inputs)))

    def registration(self) -> bytes:
        """Returns the HTTP request that registers the object."""
        body = json.dumps({"key": self.name, "offset": 0, "byte_size": self._size}).encode()
        return _request(f"/v2/systemsharedmemory/region/{self.name}/register", body)

    def question(self) -> bytes:
        """Returns the HTTP inference request."""
        inputs, outputs, at = [], [], 0
        for name, x in self._given.feeds.items():
            told = {"name": name, "datatype": NAMES[x.dtype.name], "shape": list(x.shape)}
            inputs.append(told | {"parameters": self._place(at, x.nbytes)})
            at += x.nbytes
        for name, size in self._given.results.items():
            outputs.append({"name": name, "parameters": self._place(at, size)})
            at += size
        return _request(load.PATH, json.dumps({"inputs": inputs, "outputs": outputs}).encode())

    def _place(self, at: int, size: int) -> dict[str, Any]:
        return {"shared_memory_region": self.name, "shared_memory_byte_size": size, "shared_memory_offset": at}

    def close(self) -> None:
        self._path.unlink()


def _request(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
