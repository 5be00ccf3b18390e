"""The protocol, used by a third-party client over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

X = np.arange(8, dtype=np.float32).reshape(2, 4)
CLIENTS = [tritonclient.http, tritonclient.grpc]


def client(module: Any, server: Any) -> Any:
    return module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc)


def ask(
    module: Any, connection: Any, x: np.ndarray = X, model: str = "double", binary: bool = True, **options: Any
) -> Any:
    given = module.InferInput("x", list(x.shape), "FP32")
    if module is tritonclient.http:
        given.set_data_from_numpy(x, binary_data=binary)
        wanted = [module.InferRequestedOutput(n, binary_data=binary) for n in ("z", "y")]
    else:
        given.set_data_from_numpy(x)
        wanted = [module.InferRequestedOutput(n) for n in ("z", "y")]
    return connection.infer(model, [given], outputs=wanted, **options)


@pytest.mark.parametrize("module", CLIENTS)
def test_health_and_metadata(module: Any, server: Any) -> None:
    with client(module, server) as c:
        assert c.is_server_live() and not c.is_server_ready()  # one model is broken
        assert c.is_model_ready("double") and not c.is_model_ready("broken")
        options = {} if module is tritonclient.http else {"as_json": True}
        assert c.get_server_metadata(**options)["name"] == "mgx-serve"
        about = c.get_model_metadata("double", **options)
        assert about["versions"] == ["2"] and [i["name"] for i in about["inputs"]] == ["x"]
        assert [(o["name"], o["datatype"]) for o in about["outputs"]] == [("y", "FP32"), ("z", "FP32")]
        assert [int(n) for n in about["inputs"][0]["shape"]] == [-1, 4]


def health(server: Any, service: bytes = b"") -> bytes:
    """Returns the answer of gRPC's health protocol: field 1 of the request is a service, of the answer a status."""
    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        made: bytes = check(b"\x0a" + bytes([len(service)]) + service if service else b"", timeout=30)
        return made


SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def test_the_health_protocol_of_grpc(
    serve: Callable[..., Any], server: Any, small_model: Callable[..., Path], tmp_path: Path
) -> None:
    assert health(server) == NOT_SERVING, "one model is broken"
    (tmp_path / "tokens.toml").write_text('all = ["*"]')
    guarded = serve(small_model(tmp_path / "m.onnx"), "--tokens", tmp_path / "tokens.toml")
    for service in (b"", b"inference.GRPCInferenceService"):
        assert health(guarded, service) == SERVING
    with pytest.raises(grpc.RpcError) as caught:
        health(guarded, b"other")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND and "'other'" in caught.value.details()


@pytest.mark.parametrize("module", CLIENTS)
@pytest.mark.parametrize("binary", [True, False])
def test_inference(module: Any, binary: bool, server: Any) -> None:
    with client(module, server) as c:
        result = ask(module, c, binary=binary, request_id="seven")
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)
        np.testing.assert_array_equal(result.as_numpy("z"), X.sum(1, keepdims=True))
        said = result.get_response()
        assert (said["id"] if module is tritonclient.http else said.id) == "seven"


def test_clients_of_asyncio(server: Any) -> None:
    async def both() -> None:
        for module, address in ((tritonclient.http.aio, server.http), (tritonclient.grpc.aio, server.grpc)):
            async with module.InferenceServerClient(address) as c:
                given = module.InferInput("x", [2, 4], "FP32")
                given.set_data_from_numpy(X)
                result = await c.infer("double", [given])
                np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)

    asyncio.run(both())


def test_a_stream_answers_in_order_and_continues_after_a_failure(server: Any) -> None:
    answers: list[Any] = []
    with client(tritonclient.grpc, server) as c:
        c.start_stream(lambda result, error: answers.append((result, error)))
        for n in range(4):
            given = tritonclient.grpc.InferInput("x" if n != 2 else "nosuch", [1, 4], "FP32")
            given.set_data_from_numpy(np.full((1, 4), n, np.float32))
            c.async_stream_infer("double", [given], request_id=str(n))
        c.stop_stream()
    assert [r.get_response().id for r, e in answers if e is None] == ["0", "1", "3"]
    assert "nosuch" in str(answers[2][1])


def test_the_final_answer_in_a_stream_is_marked_on_request(server: Any) -> None:
    answers: list[Any] = []
    with client(tritonclient.grpc, server) as c:
        c.start_stream(lambda result, error: answers.append((result, error)))
        given = tritonclient.grpc.InferInput("x", [2, 4], "FP32")
        given.set_data_from_numpy(X)
        for asked in (True, False):
            c.async_stream_infer("double", [given], enable_empty_final_response=asked)
        c.stop_stream()
    for (result, error), asked in zip(answers, (True, False), strict=True):
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)
        said = result.get_response().parameters
        assert {name: p.bool_param for name, p in said.items()} == ({"triton_final_response": True} if asked else {})


@pytest.mark.parametrize("module", CLIENTS)
def test_refusals_give_reasons(module: Any, server: Any) -> None:
    with client(module, server) as c:
        for model, x, said in (
            ("nosuch", X, "there is no model 'nosuch'"),
            ("broken", X, "not ready"),
            ("double", X[:, :3].copy(), "FP32[-1, 4] is required, got FP32[2, 3]"),
            ("fixed", X, "FP32[3, 4] is required, got FP32[2, 4]"),
        ):
            with pytest.raises(InferenceServerException) as caught:
                ask(module, c, x, model)
            assert said in str(caught.value)
        with pytest.raises(InferenceServerException, match="version"):
            ask(module, c, model_version="9")
        for identity in (7, "seven"):
            with pytest.raises(InferenceServerException, match="sequences are not offered"):
                ask(module, c, sequence_id=identity, sequence_start=True)
        with pytest.raises(InferenceServerException, match="timeout"):
            ask(module, c, timeout=-5)


def test_a_poisoned_request_fails_alone_and_others_are_joined(server: Any) -> None:
    def one(n: int) -> Any:
        with client(tritonclient.http, server) as c:
            return ask(tritonclient.http, c, np.full((1 + n % 3, 4), n, np.float32)).as_numpy("y")

    with ThreadPoolExecutor(16) as pool:
        for n, y in enumerate(pool.map(one, range(48))):
            np.testing.assert_array_equal(y, np.full((1 + n % 3, 4), 2 * n, np.float32))
    with client(tritonclient.grpc, server) as c:
        stats = c.get_inference_statistics("double", as_json=True)["model_stats"][0]
        assert int(stats["execution_count"]) < int(stats["inference_stats"]["success"]["count"])
        assert all(int(b["batch_size"]) <= 8 for b in stats["batch_stats"])


def test_statistics_have_every_field_that_clients_read(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path
) -> None:
    server = serve(small_model(tmp_path / "m.onnx"), "--max-batch", 8)
    with client(tritonclient.http, server) as c, client(tritonclient.grpc, server) as g:
        for rows in (1, 3, 3):
            ask(tritonclient.http, c, np.ones((rows, 4), np.float32), "m")
        (told,) = c.get_inference_statistics("m")["model_stats"]
        (same,) = g.get_inference_statistics("m").model_stats
    names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
    spent = {name: (told["inference_stats"][name]["count"], told["inference_stats"][name]["ns"]) for name in names}
    assert spent == {n: ((s := getattr(same.inference_stats, n)).count, s.ns) for n in names}
    counts = [count for count, _ in spent.values()]
    assert counts == [3, 0, 3, 3, 3, 3, 0, 0], "a value divided by a count needs one"
    assert spent["success"][1] == spent["queue"][1] + spent["compute_infer"][1] > 0
    assert (told["inference_count"], told["execution_count"]) == (7, 3) == (same.inference_count, same.execution_count)
    sizes = [(b["batch_size"], b["compute_infer"]["count"], b["compute_input"]["count"]) for b in told["batch_stats"]]
    assert sizes == [(1, 1, 1), (3, 2, 2)]
    assert [b.compute_output.count for b in same.batch_stats] == [1, 2]


def test_requests_are_batched_only_if_the_model_allows_it(server: Any) -> None:
    def one(n: int) -> Any:
        with client(tritonclient.http, server) as c:
            given = tritonclient.http.InferInput("x", [1, 4], "FP32")
            given.set_data_from_numpy(np.full((1, 4), n, np.float32))
            return c.infer("softmax", [given]).as_numpy("y")

    with ThreadPoolExecutor(12) as pool:
        for y in pool.map(one, range(24)):
            np.testing.assert_array_equal(y, np.ones((1, 4), np.float32))


def test_models_are_replaced_unloaded_and_loaded(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path
) -> None:
    small_model(tmp_path / "m" / "1" / "model.onnx", 5)
    server = serve(tmp_path)
    with client(tritonclient.http, server) as c, client(tritonclient.grpc, server) as g:
        np.testing.assert_array_equal(ask(tritonclient.http, c, model="m").as_numpy("y"), 5 * X)
        small_model(tmp_path / "m" / "2" / "model.onnx", 7)
        c.load_model("m")
        np.testing.assert_array_equal(ask(tritonclient.grpc, g, model="m").as_numpy("y"), 7 * X)
        while b'model="m",version="1"' in (said := get(server, "/metrics")[1]):
            time.sleep(0.01)  # until the last request of the previous version has been answered
        assert b'model="m",version="2"' in said
        g.unload_model("m")
        with pytest.raises(InferenceServerException, match="unloaded"):
            ask(tritonclient.http, c, model="m")
        assert [(m["name"], m["state"]) for m in c.get_model_repository_index()] == [("m", "UNAVAILABLE")]
        c.load_model("m")
        assert c.is_model_ready("m") and c.is_server_ready()
        for name in ("nosuch", "../m", "m/1", "%2e%2e", "/etc"):
            with pytest.raises(InferenceServerException, match="there is no"):
                c.load_model(name)
            with pytest.raises(InferenceServerException, match="there is no model"):
                g.load_model(name)


def get(server: Any, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=30)) as connection:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_pages_for_people_and_tools(server: Any) -> None:
    assert b"double" in get(server, "/")[1] and b"UNAVAILABLE" in get(server, "/")[1]
    assert b"mgx_compute_seconds_bucket" in get(server, "/metrics")[1]
    paths = json.loads(get(server, "/openapi.json")[1])["paths"]
    for path in paths:
        if "{" not in path and "get" in paths[path] and not path.endswith("ready"):
            assert get(server, path)[0] == 200, path


def raw(server: Any, request: bytes) -> int:
    """Returns the status of the server's answer to a request with these bytes."""
    host, port = server.http.split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(request)
        return int(connection.recv(1 << 16).split()[1])


def test_messages_without_tensors_are_short(server: Any) -> None:
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException, match="without tensors has at most 65536 bytes"),
    ):
        client.get_model_metadata("x" * 70_000)


def test_without_a_token_nothing_but_health(serve: Callable[..., Any], models: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('all = ["*"]\nsome = ["fixed"]\n')
    server = serve(models, "--tokens", tokens)
    status = raw(server, b"POST /v2/repository/index HTTP/1.1\r\nHost: x/v2/health/live?\r\nContent-Length: 0\r\n\r\n")
    assert status == 401  # a host name is not a path
    assert get(server, "/v2/health/live")[0] == 200
    settings = ("/v2/models/double/config", "/v2/models/double/trace/setting", "/v2/trace/setting", "/v2/logging")
    others = ("/", "/v2", "/metrics", "/openapi.json", "/v2/models/double", "/v2/models/nosuch", "/v2/models/stats")
    for path in (*others, *settings):
        assert get(server, path)[0] == 401
        assert get(server, path, {"Authorization": "Bearer wrong"})[0] == 401
        assert get(server, path, {"Authorization": "Basic all"})[0] == 401
    assert get(server, "/v2/models/double", {"Authorization": "Bearer all"})[0] == 200
    assert get(server, "/v2/models/double", {"Authorization": "Bearer some"})[0] == 403
    assert get(server, "/v2/models/fixed", {"Authorization": "Bearer some"})[0] == 200
    assert get(server, "/v2/models/fixed/config", {"Authorization": "Bearer some"})[0] == 200
    assert [get(server, path, {"Authorization": "Bearer some"})[0] for path in settings] == [403] * 4
    with client(tritonclient.grpc, server) as c:
        assert c.is_server_live()
        with pytest.raises(InferenceServerException, match="token is required"):
            ask(tritonclient.grpc, c)
        with pytest.raises(InferenceServerException, match="does not allow"):
            c.load_model("fixed", headers={"authorization": "Bearer some"})
        for asked in (
            c.get_log_settings,
            c.get_trace_settings,
            lambda headers: c.get_model_config("double", headers=headers),
        ):
            with pytest.raises(InferenceServerException, match="does not allow"):
                asked(headers={"authorization": "Bearer some"})
        result = ask(tritonclient.grpc, c, headers={"authorization": "Bearer all"})
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)


def test_sigterm_answers_what_is_queued(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path
) -> None:
    small_model(tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "config.toml").write_text("queue_delay = 30.0\nmax_batch = 64\n")
    server = serve(tmp_path)

    def one(n: int) -> Any:
        with client(tritonclient.http, server) as c:
            return ask(tritonclient.http, c, model="m").as_numpy("y")

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(one, n) for n in range(4)]
        while b'mgx_waiting_requests{model="m",version="1"} 4.0' not in get(server, "/metrics")[1]:
            assert not any(answer.done() for answer in waiting)
        server.process.terminate()
        for answer in waiting:
            np.testing.assert_array_equal(answer.result(), 2 * X)
    assert server.process.wait(30) == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("rows", [2, 1 << 17])
def test_compressed_requests(encoding: str, rows: int, server: Any) -> None:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    given = tritonclient.http.InferInput("x", [rows, 4], "FP32")
    given.set_data_from_numpy(x)
    with client(tritonclient.http, server) as c:
        result = c.infer(
            "double", [given], request_compression_algorithm=encoding, response_compression_algorithm=encoding
        )
    np.testing.assert_array_equal(result.as_numpy("y"), 2 * x)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v2/models/double", "GET, HEAD"),
        ("GET", "/v2/models/double/infer", "POST"),
        ("OPTIONS", "/v2/models/double/versions/1/infer", "POST"),
        ("DELETE", "/v2/logging", "GET, HEAD, POST"),
        ("GET", "/v2/repository/index", "POST"),
    ],
)
def test_a_path_that_is_there_names_its_methods(method: str, path: str, allowed: str, server: Any) -> None:
    connection = http.client.HTTPConnection(server.http, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    assert answer.status == 405 and answer.headers["Allow"] == allowed
    assert f"requires {allowed}, got {method}" in json.loads(answer.read())["error"]
    connection.request(method, "/v2/nosuch")
    assert connection.getresponse().status == 404
    connection.close()
