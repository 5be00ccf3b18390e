"""Models that need special handling: strings, shapes that only a run can reject, states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

import mgx_core as mgx
from mgx_core import Program
from mgx_serve import ModelSettings
from mgx_serve.model import Model, compiled

OPSETS = [helper.make_opsetid("", 20)]
CLIENTS = [tritonclient.http, tritonclient.grpc]
WORDS = np.array([[b"yes", "né".encode()], [b"", b"\xff\x00"]], object)


def write(path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], weights: Any = ()) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    given, made = (
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in some.items()]
        for some in (inputs, outputs)
    )
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", given, made, list(weights)), opset_imports=OPSETS), path)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kinds")
    text, number = TensorProto.STRING, TensorProto.FLOAT
    write(
        root / "words" / "1" / "model.onnx",
        [
            helper.make_node("StringConcat", ["s", "s"], ["t"]),
            helper.make_node("Equal", ["s", "yes"], ["same"]),
        ],
        {"s": (text, ["n", "m"])},
        {"t": (text, ["n", "m"]), "same": (TensorProto.BOOL, ["n", "m"])},
        [helper.make_tensor("yes", text, [1], [b"yes"])],
    )
    write(
        root / "sum" / "1" / "model.onnx",
        [helper.make_node("Add", ["a", "b"], ["c"])],
        {"a": (number, [None, 4]), "b": (number, [None, 4])},
        {"c": (number, [None, 4])},
    )
    write(
        root / "bfloat" / "1" / "model.onnx",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (TensorProto.BFLOAT16, ["n"])},
        {"y": (TensorProto.BFLOAT16, ["n"])},
    )
    write(
        root / "narrow" / "1" / "model.onnx",
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)],
        {"x": (number, [2])},
        {"y": (TensorProto.FLOAT8E4M3FN, [2])},
    )
    return root


@pytest.fixture(scope="module")
def kinds(serve: Any, root: Path) -> Any:
    return serve(root)


def ask(module: Any, server: Any, model: str, feeds: dict[str, tuple[np.ndarray, str]], binary: bool = True) -> Any:
    given = []
    for name, (value, datatype) in feeds.items():
        tensor = module.InferInput(name, list(value.shape), datatype)
        if module is tritonclient.http:
            tensor.set_data_from_numpy(value, binary_data=binary)
        else:
            tensor.set_data_from_numpy(value)
        given.append(tensor)
    with module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc) as c:
        wanted = None if binary else [module.InferRequestedOutput("t", binary_data=False)]
        return c.infer(model, given, outputs=wanted)


@pytest.mark.parametrize("module", CLIENTS)
def test_strings_are_computed_on_and_come_back_as_bytes(module: Any, kinds: Any) -> None:
    found = ask(module, kinds, "words", {"s": (WORDS, "BYTES")})
    assert found.as_numpy("t").tolist() == [[w + w for w in row] for row in WORDS.tolist()]
    assert found.as_numpy("same").tolist() == [[True, False], [False, False]]


def test_strings_in_json(kinds: Any) -> None:
    found = ask(tritonclient.http, kinds, "words", {"s": (WORDS[:1], "BYTES")}, binary=False)
    assert found.as_numpy("t").tolist() == [["yesyes", "néné"]]
    tensor = tritonclient.http.InferInput("s", [2, 2], "BYTES")
    tensor.set_data_from_numpy(WORDS)
    wanted = [tritonclient.http.InferRequestedOutput("t", binary_data=False)]
    c = tritonclient.http.InferenceServerClient(kinds.http)
    with c, pytest.raises(InferenceServerException, match="bytes that are not text: ask for binary data"):
        c.infer("words", [tensor], outputs=wanted)


@pytest.mark.parametrize("module", CLIENTS)
def test_extents_that_only_a_run_refuses_are_the_requests_fault(module: Any, kinds: Any) -> None:
    two, three = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)
    with pytest.raises(InferenceServerException, match=r"model 'sum': .*2 and 3 do not broadcast") as refused:
        ask(module, kinds, "sum", {"a": (two, "FP32"), "b": (three, "FP32")})
    assert refused.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


@pytest.mark.parametrize("module", CLIENTS)
def test_bfloat16(module: Any, kinds: Any) -> None:
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(ask(module, kinds, "bfloat", {"x": (x, "BF16")}).as_numpy("y"), x + x)


def test_an_unknown_type_is_reported_with_the_tensor(kinds: Any) -> None:
    with tritonclient.http.InferenceServerClient(kinds.http) as c:
        (row,) = [r for r in c.get_model_repository_index() if r["name"] == "narrow"]
        assert row["state"] == "UNAVAILABLE" and "output 'y'" in row["reason"] and "float8_e4m3fn" in row["reason"]


def test_states_are_reset_for_every_request() -> None:
    graph = mgx.Program().graph
    x, seen = (graph.main.add_parameter(n, mgx.Shape.of(mgx.dtype.float32, (2,))) for n in ("x", "seen"))
    total = graph.main.add(mgx.op("add"), x, seen)
    graph.main.add_return([total, total])
    program = Program(graph, ["y"], {"seen": np.zeros(2, np.float32)})
    model = Model("counter", "1", compiled(program, ModelSettings(target="ref")), ModelSettings(target="ref"))
    one = {"x": np.ones(2, np.float32)}
    assert [t.name for t in model.signature.inputs] == ["x"]
    assert [model.run(one)[0].tolist() for _ in range(3)] == [[1.0, 1.0]] * 3


def test_rows_of_outputs_follow_from_those_of_inputs(tmp_path: Path) -> None:
    number = TensorProto.FLOAT
    nodes = [
        helper.make_node("Concat", ["x", "x", "y"], ["long"], axis=1),
        helper.make_node("ReduceMax", ["x", "axes"], ["most"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    inputs = {"x": (number, ["n", "s", 3]), "y": (number, ["n", "t", 3])}
    outputs = {"long": (number, ["n", None, 3]), "most": (number, ["n", 1, 3])}
    path = write(tmp_path / "model.onnx", nodes, inputs, outputs, [axes])
    model = Model.read("m", "1", path, ModelSettings(target="ref", max_batch=4))
    assert model.batches and model.rows_of_outputs({"x": (5, 3), "y": (7, 3)}) == [(17, 3), (1, 3)]


def test_rows_of_outputs_that_values_decide_are_unknown(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["count"], to=TensorProto.INT64),
        helper.make_node("Range", ["zero", "count", "one"], ["all"]),
        helper.make_node("Gather", ["x", "all"], ["y"], axis=1),
    ]
    ends = [helper.make_tensor(name, TensorProto.INT64, [], [n]) for name, n in (("zero", 0), ("one", 1))]
    given, made = {"x": (TensorProto.FLOAT, ["n", "s"])}, {"y": (TensorProto.FLOAT, ["n", None])}
    path = write(tmp_path / "model.onnx", nodes, given, made, ends)
    model = Model.read("m", "1", path, ModelSettings(target="ref", max_batch=4))
    assert model.rows_of_outputs({"x": (5,)}) is None
