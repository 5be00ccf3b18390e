"""Malformed requests are rejected with a reason, and the server continues."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import ssl
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from mgx_serve import ModelSettings, Server, Settings

REFUSED = (400, 404, 413, 501)
INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
anything = st.recursive(
    leaves, lambda c: st.lists(c, max_size=4) | st.dictionaries(st.text(max_size=8), c, max_size=4), max_leaves=12
)
fields = st.sampled_from(["name", "datatype", "shape", "data", "parameters"])
changed_input = st.dictionaries(fields, anything, min_size=1, max_size=3).map(lambda change: INPUT | change)
bodies = st.one_of(
    anything.map(lambda v: json.dumps(v).encode()),
    changed_input.map(lambda i: json.dumps({"inputs": [i]}).encode()),
    st.dictionaries(st.sampled_from(["inputs", "outputs", "parameters", "id"]), anything).map(
        lambda v: json.dumps({"inputs": [INPUT]} | v).encode()
    ),
    st.binary(max_size=200),
    st.integers(1, 100_000).map(lambda n: b'{"inputs": ' + b"[" * n),
)
headers = st.one_of(st.none(), st.integers(-5, 500).map(str), st.text("0123456789abc -", max_size=6))
patient = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def post(server: Any, path: str, body: bytes, given: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.http, timeout=30)
    try:
        connection.request("POST", path, body, given)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def works(server: Any) -> bool:
    status, said = post(server, "/v2/models/double/infer", json.dumps({"inputs": [INPUT]}).encode(), {})
    return status == 200 and json.loads(said)["outputs"][0]["data"] == [2, 4, 6, 8]


@patient
@given(body=bodies, length=headers)
def test_http(server: Any, body: bytes, length: str | None) -> None:
    given_headers = {} if length is None else {"Inference-Header-Content-Length": length}
    status, said = post(server, "/v2/models/double/infer", body, given_headers)
    assert status == 200 or (status in REFUSED and json.loads(said)["error"]), (status, said)
    assert b"Traceback" not in said and b".py" not in said
    assert works(server)


@patient
@given(body=st.binary(max_size=300))
def test_grpc(server: Any, body: bytes) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(body, timeout=30)
        refusal: Any = caught.value
        assert refusal.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
        assert "Traceback" not in refusal.details()
    assert works(server)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1 << 62, 4]},
        {"shape": [0, 1 << 40, 1 << 40], "data": []},
        {"shape": [1] * 100, "data": [1]},
        {"shape": [-1, 4]},
        {"shape": [True, 4]},
        {"shape": [1, 4], "data": [1, 2, 3]},
        {"data": [1, 2, 3, "4"]},
        {"datatype": "FP33"},
        {"datatype": "INT64"},
        {"datatype": "BYTES", "data": ["a", "b", "c", "d"]},
        {"parameters": {"binary_data_size": 16}},
        {"parameters": {"binary_data_size": -1}},
        {"datatype": "BYTES", "data": ["\ud800", "b", "c", "d"]},
    ],
)
def test_inputs_that_do_not_fit(server: Any, change: dict[str, Any]) -> None:
    status, said = post(server, "/v2/models/double/infer", json.dumps({"inputs": [INPUT | change]}).encode(), {})
    assert status == 400 and "x" in json.loads(said)["error"]


@pytest.mark.parametrize("shape", [[0, 1 << 40, 1 << 40], [1] * 100])
def test_bytes_that_make_no_array(server: Any, shape: list[int]) -> None:
    size = 0 if 0 in shape else 4
    given = {"name": "x", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [given]}).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    status, said = post(server, "/v2/models/double/infer", head + bytes(size), length)
    assert status == 400 and json.loads(said)["error"].startswith("input 'x'")


def test_bodies_that_are_too_large(serve: Callable[..., Any], models: Path) -> None:
    server = serve(models, "--max-bytes", 1000)
    status, said = post(server, "/v2/models/double/infer", b" " * 2000, {})
    assert status == 413 and "1000 bytes" in json.loads(said)["error"]
    assert works(server)


def test_memory_of_requests_is_bounded(serve: Callable[..., Any], models: Path) -> None:
    server = serve(models, "--memory", 40_000)
    numbers = json.dumps({"inputs": [INPUT | {"shape": [500, 4], "data": [0] * 2000}]}).encode()
    status, said = post(server, "/v2/models/double/infer", numbers, {})
    assert status == 413 and "take less as binary tensors" in json.loads(said)["error"]
    given = INPUT | {"shape": [100, 4], "parameters": {"binary_data_size": 1600}}
    del given["data"]
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    for _ in range(20):  # memory reserved by requests is released, including rejected ones
        assert post(server, "/v2/models/double/infer", numbers, {})[0] == 413
        length = {"Inference-Header-Content-Length": str(len(head))}
        assert post(server, "/v2/models/double/infer", head + bytes(1600), length)[0] == 200
    assert works(server)
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(bytes(30_000), timeout=30)
        refusal: Any = caught.value
        assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_memory_of_answers_is_bounded(module: Any, serve: Callable[..., Any], tmp_path: Path) -> None:
    made = helper.make_node("ConstantOfShape", ["n"], ["y"])
    inputs = [helper.make_tensor_value_info("n", TensorProto.INT64, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])]
    path = tmp_path / "zeros.onnx"
    onnx.save(
        helper.make_model(helper.make_graph([made], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)]),
        path,
    )
    server = serve(path, "--memory", 40_000)
    address = server.http if module is tritonclient.http else server.grpc
    with module.InferenceServerClient(address) as c:
        for count, fits in ((1000, True), (20_000, False), (1000, True)):
            given = module.InferInput("n", [1], "INT64")
            given.set_data_from_numpy(np.array([count]))
            if fits:
                assert c.infer("zeros", [given]).as_numpy("y").shape == (count,)
            else:
                with pytest.raises(InferenceServerException, match="bytes of memory, the server has 40000"):
                    c.infer("zeros", [given])


# compression without a timestamp, which would make the names of the tests differ between processes
COMPRESSED = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize(
    ("body", "encoding", "status", "why"),
    [
        pytest.param(COMPRESSED, "br", 400, "must be identity, gzip or deflate, got 'br'", id="unknown encoding"),
        pytest.param(b"{}", "gzip", 400, "not what its Content-Encoding says", id="not compressed"),
        pytest.param(COMPRESSED[:-3], "gzip", 400, "ends before", id="cut off"),
        pytest.param(COMPRESSED + b"{}", "gzip", 400, "more bytes", id="bytes after the end"),
        pytest.param(gzip.compress(bytes(1 << 20), mtime=0), "gzip", 413, "at most 65536 bytes", id="too large"),
    ],
)
def test_compressed_bodies_that_are_refused(body: bytes, encoding: str, status: int, why: str, server: Any) -> None:
    refused, said = post(server, "/v2/repository/index", body, {"Content-Encoding": encoding})
    assert refused == status and why in json.loads(said)["error"]
    assert works(server)


def test_compressed_messages_of_grpc_are_refused(server: Any) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(bytes(1 << 20), timeout=30, compression=grpc.Compression.Gzip)
        refusal: Any = caught.value
        assert refusal.code() is grpc.StatusCode.UNIMPLEMENTED


def test_slow_and_lost_clients_leave_others_alone(server: Any) -> None:
    import socket

    host, port = server.http.split(":")
    half = [socket.create_connection((host, int(port))) for _ in range(50)]
    for number, connection in enumerate(half):
        connection.sendall(
            b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"[: 30 + number]
        )
    assert works(server)
    for connection in half:
        connection.close()
    assert works(server)


def test_connections_without_a_whole_head_are_closed(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgx_serve.http_protocol.HEAD_SECONDS", 0.2)

    async def talk() -> None:
        server = Server(models, Settings(http_port=0, grpc_port=-1, model=ModelSettings(target="ref")))
        await server.start(load=False)
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        for sent in (b"", b"GET /v2", b"GET /v2 HTTP/1.1\r\nHost: ", live + b"GET /v2"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
            writer.write(sent)
            said = await asyncio.wait_for(reader.read(), 30)  # ends when the connection does
            assert said.count(b"200 OK") == sent.count(live)
            writer.close()
        await server.stop()

    asyncio.run(talk())


def signed(folder: Path, name: str, extension: str, issuer: str = "") -> None:
    """Creates NAME.key and NAME.pem with openssl, signed by the issuer or by itself."""
    given = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key"]
    (folder / f"{name}.ext").write_text(extension)
    sign = [
        "openssl",
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        f"{name}.csr",
        "-out",
        f"{name}.pem",
        "-extfile",
        f"{name}.ext",
    ]
    by = (
        ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial"]
        if issuer
        else ["-signkey", f"{name}.key"]
    )
    for command in ([*given, "-out", f"{name}.csr"], [*sign, *by]):
        subprocess.run(command, check=True, capture_output=True, cwd=folder)


def test_tls(serve: Callable[..., Any], models: Path, tmp_path: Path) -> None:
    authority = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
    signed(tmp_path, "root", authority)
    signed(tmp_path, "between", authority, "root")
    signed(tmp_path, "server", "subjectAltName=DNS:localhost,IP:127.0.0.1\n", "between")
    key, chain, root = tmp_path / "server.key", tmp_path / "chain.pem", tmp_path / "root.pem"
    chain.write_bytes((tmp_path / "server.pem").read_bytes() + (tmp_path / "between.pem").read_bytes())
    server = serve(models, "--certificate", chain, "--key", key)
    trusted = ssl.create_default_context(cafile=str(root))
    with closing(http.client.HTTPSConnection(server.http, context=trusted, timeout=30)) as connection:
        connection.request("GET", "/v2/health/live")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"live": True})
    untrusting = http.client.HTTPSConnection(server.http, context=ssl.create_default_context(), timeout=30)
    with closing(untrusting), pytest.raises(ssl.SSLError):
        untrusting.request("GET", "/")
    with grpc.secure_channel(server.grpc, grpc.ssl_channel_credentials(root.read_bytes())) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert live(b"", timeout=30) == b"\x08\x01"


def test_one_bad_model_leaves_the_others_alone(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path
) -> None:
    small_model(tmp_path / "double" / "1" / "model.onnx")
    for name, file, content in (
        ("a", "config.pbtxt", b"\xff"),
        ("b", "config.toml", b'preferred = ["a"]'),
        ("c", "config.toml", b"timeout = nan"),
    ):
        small_model(tmp_path / name / "1" / "model.onnx")
        (tmp_path / name / file).write_bytes(content)
    small_model(tmp_path / "d" / "²" / "model.onnx")
    server = serve(tmp_path)
    assert works(server)
    status, said = post(server, "/v2/repository/index", b"", {})
    states = {m["name"]: m["state"] for m in json.loads(said)}
    assert status == 200 and states == {"double": "READY", "a": "UNAVAILABLE", "b": "UNAVAILABLE", "c": "UNAVAILABLE"}
