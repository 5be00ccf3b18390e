"""A model's settings in `config.toml` and Triton's `config.pbtxt`, and how a model applies them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf import json_format, text_format

from mgx_core import ParameterError
from mgx_serve import ModelSettings
from mgx_serve.channels.wire import read_signature, signature_message
from mgx_serve.command import main
from mgx_serve.errors import BadRequest
from mgx_serve.messages import messages
from mgx_serve.metrics import Metrics
from mgx_serve.model import Model
from mgx_serve.model_configuration import configuration
from mgx_serve.repository import Repository
from mgx_serve.settings import model_settings
from mgx_serve.tensors import Tensor
from mgx_serve.tracing import NoTraces

DEFAULT = ModelSettings(target="ref")
FULL = """
name: "m" # a comment with [ and {
platform: "onnxruntime_onnx"
max_batch_size: 8
input [
  { name: "x [1]" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, -1 ] },
  { name: "words" data_type: TYPE_STRING dims: 1 }
]
output { name: "y" data_type: TYPE_BF16 dims: [ 1000 ] label_filename: "labels.txt" }
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }, { kind: KIND_CPU } ]
dynamic_batching {
  preferred_batch_size: 4
  preferred_batch_size: [ 8 ]
  max_queue_delay_microseconds: 100
  preserve_ordering: true
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 500000 max_queue_size: 16 }
}
version_policy: { specific { versions: [ 1, 3 ] } }
default_model_filename: "net.onnx"
optimization { execution_accelerators { gpu_execution_accelerator [ { name : "tensorrt" } ] } }
parameters: { key: "mgx.precision" value: { string_value: "fp16" } }
parameters { key: "mgx.warm" value { string_value: "false" } }
parameters { key: "execution_mode" value { string_value: "1" } }
model_warmup [ { name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } } ]
"""


def read(folder: Path, text: str, name: str = "config.pbtxt") -> ModelSettings:
    (folder / "m").mkdir(exist_ok=True)
    (folder / "m" / name).write_text(text)
    return model_settings(folder / "m", DEFAULT)


def test_a_configuration_of_triton(tmp_path: Path) -> None:
    assert read(tmp_path, FULL) == ModelSettings(
        target="ref",
        precision="fp16",
        instances=3,
        max_batch=8,
        preferred=(4, 8),
        queue_delay=1e-4,
        queue_size=16,
        timeout=0.5,
        warm=False,
        priority=2,
        versions=(1, 3),
        served=0,
        file="net.onnx",
        inputs=(Tensor("x [1]", "FP32", (-1, 3, 224, -1)), Tensor("words", "BYTES", (-1, 1))),
        outputs=(Tensor("y", "BF16", (-1, 1000)),),
    )


@pytest.mark.parametrize(("number", "datatype"), [(1, "BOOL"), (6, "INT8"), (11, "FP32"), (13, "BYTES"), (14, "BF16")])
def test_data_types_by_number(number: int, datatype: str, tmp_path: Path) -> None:
    assert read(tmp_path, f'input {{ name: "x" data_type: {number} }}').inputs == (Tensor("x", datatype, ()),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dynamic_batching { }",
        'backend: "x" instance_group []',
        'name: "m" model_transaction_policy { decoupled: false } response_cache { enable: true }',
        "dynamic_batching { default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 } }",
    ],
)
def test_unspecified_extents_stay(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text) == DEFAULT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_batch_size: x", r"config.pbtxt: this is not a model configuration: line 1:17 .*parse integer"),
        ("max_batch_sice: 8", "not a model configuration: line 1:.*no field named .max_batch_sice"),
        ('name: "other"', "name must be that of the model's folder, 'm', got 'other'"),
        ("batch_input [ { kind: BATCH_ELEMENT_COUNT } ]", "batch_input is not offered"),
        ("batch_output [ { target_name: 'y' } ]", "batch_output is not offered"),
        ('cc_model_filenames { key: "9.0" value: "m.plan" }', "cc_model_filenames is not offered"),
        ("model_operations { op_library_filename: 'x.so' }", "model_operations is not offered"),
        ("model_repository_agents { agents [ { name: 'checksum' } ] }", "model_repository_agents is not offered"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy: decoupled is not offered"),
        ("instance_group [ { count: 1 passive: true } ]", "instance_group '': passive is not offered"),
        ("dynamic_batching { priority_queue_policy { key: 1 } }", "dynamic_batching: priority_queue_policy is not"),
        ('input { name: "x" data_type: TYPE_INT8 dims: 1 optional: true }', "input 'x': optional is not offered"),
        ('input { name: "x" data_type: TYPE_INT8 allow_ragged_batch: true }', "input 'x': allow_ragged_batch is not"),
        ('output { name: "y" data_type: TYPE_INT8 is_shape_tensor: true }', "output 'y': is_shape_tensor is not"),
        ("a {", "not a model configuration"),
        ("ensemble_scheduling { step [ { model_version: -1 } ] }", "ensemble_scheduling is not offered"),
        ("sequence_batching { }", "sequence_batching is not offered"),
        ('input { name: "x" dims: 1 }', "input 'x': a data_type out of"),
        (
            'input { name: "x" data_type: TYPE_INT8 dims: [ 2, -1 ] reshape { shape: [ 2, 1 ] } }',
            r"inputs: 'x' is reshaped from \[2, -1\] to \[2, 1\]; as many elements, and as many extents that vary",
        ),
        ('input { name: "x" data_type: TYPE_INT8 dims: -2 }', r"inputs: name, datatype and shape"),
        ('parameters { key: "mgx.nosuch" value { string_value: "1" } }', "there is no setting 'nosuch'"),
        ('parameters { key: "mgx.instances" value { string_value: "two" } }', "instances must be of type int"),
        ('default_model_filename: "../../secret.onnx"', "file is a name in the folder of a version"),
        ("max_batch_size: 2\ndynamic_batching { preferred_batch_size: [ 4 ] }", "between 1 and max_batch"),
    ],
)
def test_configurations_that_are_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=why):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("policy", "served"), [("all { }", 0), ("latest { num_versions: 2 }", 2), ("latest { }", 1), ("specific { }", 0)]
)
def test_how_many_versions_are_served(policy: str, served: int, tmp_path: Path) -> None:
    assert read(tmp_path, f"version_policy: {{ {policy} }}").served == served


def test_a_stated_size_of_0_holds_where_the_server_joins_rows(tmp_path: Path) -> None:
    """Rows of such a model may depend on each other: Triton does not batch them."""
    joining = ModelSettings(max_batch=8)
    for text, most in (("max_batch_size: 0", 0), ("max_batch_size: 4", 4), ("", 8)):
        (tmp_path / "config.pbtxt").write_text(text)
        assert model_settings(tmp_path, joining).max_batch == most


def test_a_models_description_determines_it(small_model: Callable[..., Path], tmp_path: Path) -> None:
    path = small_model(tmp_path / "m.onnx")
    for stated in (
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 7 "
        "default_queue_policy { max_queue_size: 9 default_timeout_microseconds: 500000 } } instance_group { count: 3 }",
        'version_policy { all { } } parameters { key: "mgx.precision" value { string_value: "fp16" } }'
        'parameters { key: "mgx.warm" value { string_value: "false" } }',
        'version_policy { specific { versions: 1 } } parameters { key: "mgx.timeout" value { string_value: "0.25" } }',
        'max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: 4 } }',
        'output { name: "z" data_type: TYPE_FP32 reshape { shape: [ 1, 1 ] } }',
    ):
        settings = read(tmp_path, stated)
        model = Model.read("m", "1", path, settings)
        made = messages()["ModelConfig"]()
        json_format.ParseDict(configuration(model.signature, settings, "model.onnx"), made)
        told = read(tmp_path, text_format.MessageToString(made))
        signature = model.signature
        wanted = dataclasses.replace(settings, file="model.onnx", inputs=signature.inputs, outputs=signature.outputs)
        assert told == wanted


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.pbtxt", "input { " * 5000, "not a model configuration"),
        ("config.toml", "a = " + "[" * 5000, "nests too deeply"),
    ],
)
def test_files_that_nest_deeply_are_refused(name: str, text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=why):
        read(tmp_path, text, name)


def test_inputs_in_toml(tmp_path: Path) -> None:
    stated = '[[inputs]]\nname = "x"\ndatatype = "FP32"\nshape = [2, 4]\n'
    assert read(tmp_path, stated, "config.toml").inputs == (Tensor("x", "FP32", (2, 4)),)
    for wrong in (
        stated.replace("FP32", "FP33"),
        stated.replace("[2, 4]", '"2"'),
        stated.replace("2, 4", "-2"),
        "inputs = [1]",
        'inputs = "x"',
    ):
        with pytest.raises(ParameterError, match="inputs"):
            read(tmp_path, wrong, "config.toml")


@pytest.fixture
def made(small_model: Callable[..., Path], tmp_path: Path) -> Callable[..., Model]:
    """Writes a model of x: FP32[-1, 4], y: FP32[-1, 4], z: FP32[-1, 1]."""
    path = small_model(tmp_path / "m.onnx")
    return lambda text: Model.read("m", "1", path, read(tmp_path, text))


def test_extents_that_the_settings_state_are_required(made: Callable[..., Model]) -> None:
    model = made('input { name: "x" data_type: TYPE_FP32 dims: [ 3, 4 ] }')
    assert model.signature.inputs == (Tensor("x", "FP32", (3, 4)),)
    model.signature.check({"x": np.ones((3, 4), np.float32)})
    with pytest.raises(BadRequest, match=r"FP32\[3, 4\] is required, got FP32\[2, 4\]"):
        model.signature.check({"x": np.ones((2, 4), np.float32)})
    model.warm()
    assert list(model.seconds) == [((3, 4),)]


@pytest.mark.parametrize(
    ("text", "shape", "results"),
    [
        (
            """input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 1, 4 ] } }
            output [ { name: "y" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 1, 4 ] } },
                     { name: "z" data_type: TYPE_FP32 reshape { shape: [ 1, 1 ] } } ]""",
            (2, 2),
            [(4,), ()],
        ),
        (
            """max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: 4 } }
            output { name: "z" data_type: TYPE_FP32 dims: [ 1, 1 ] reshape { shape: 1 } }""",
            (3, 2, 2),
            [(3, 4), (3, 1, 1)],
        ),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ -1, 4 ] } }',
            (4, 3),
            [(3, 4), (3, 1)],
        ),
    ],
)
def test_tensors_that_requests_have_with_other_extents(
    text: str, shape: tuple[int, ...], results: list[tuple[int, ...]], made: Callable[..., Model]
) -> None:
    model = made(text + ' parameters { key: "mgx.target" value { string_value: "ref" } }')
    model.warm()
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    model.signature.check({"x": x})
    y, z = model.run({"x": x})
    assert [y.shape, z.shape] == results
    np.testing.assert_array_equal(y.ravel(), 2 * x.ravel())
    np.testing.assert_array_equal(z.ravel(), x.reshape(-1, 4).sum(1))
    with pytest.raises(BadRequest, match=r"input 'x' of model 'm': FP32.* is required"):
        model.signature.check({"x": x.reshape(1, 1, -1, 4)})
    assert read_signature(signature_message(model.signature)) == model.signature


@pytest.mark.parametrize(
    "text",
    [
        'input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 1, 4 ] } }',
        'input { name: "x" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ -1, 4 ] } }',
        'output { name: "y" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ -1, 4 ] } }',
    ],
)
def test_rows_are_joined_only_where_requests_have_them_first(
    text: str, small_model: Callable[..., Path], tmp_path: Path
) -> None:
    settings = dataclasses.replace(read(tmp_path, text), max_batch=8)
    model = Model.read("m", "1", small_model(tmp_path / "m.onnx"), settings)
    assert not model.batches and not model.signature.max_batch
    plain = dataclasses.replace(settings, inputs=(), outputs=())
    assert Model.read("m", "1", tmp_path / "m.onnx", plain).batches


def test_a_result_that_the_settings_do_not_reshape_is_refused(made: Callable[..., Model]) -> None:
    model = made('output { name: "y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 1, 4 ] } }')
    assert model.run({"x": np.ones((1, 4), np.float32)})[0].shape == (2, 2)
    with pytest.raises(BadRequest, match=r"output 'y' of model 'm' .*\[1, 4\] are required, got \[3, 4\]"):
        model.run({"x": np.ones((3, 4), np.float32)})


def test_the_batch_axis_is_not_written(made: Callable[..., Model]) -> None:
    text = 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 4 }'
    model = made(text + ' output { name: "z" data_type: TYPE_FP32 dims: 1 }')
    assert model.signature.inputs == (Tensor("x", "FP32", (-1, 4)),) and model.batches


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('input { name: "q" data_type: TYPE_FP32 dims: [ -1, 4 ] }', "state an input 'q'; the model has x"),
        (
            'input { name: "x" data_type: TYPE_FP16 dims: [ -1, 4 ] }',
            r"'x': the settings state FP16\[-1, 4\], the model",
        ),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 5 ] }',
            r"state FP32\[-1, 5\], the model has FP32\[-1, 4\]",
        ),
        ('input { name: "x" data_type: TYPE_FP32 dims: 4 }', r"state FP32\[4\]"),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: 6 reshape { shape: [ 2, 3 ] } }',
            r"FP32\[6\] reshaped to \[2, 3\], the model has FP32\[-1, 4\]",
        ),
        ('output { name: "z" data_type: TYPE_FP32 dims: [ -1, 2 ] }', r"output 'z': the settings state FP32\[-1, 2\]"),
    ],
)
def test_names_missing_in_the_model(text: str, why: str, made: Callable[..., Model]) -> None:
    with pytest.raises(ParameterError, match=why):
        made(text)


def test_versions_and_names_of_files(tmp_path: Path) -> None:
    for version in ("1", "2", "3"):
        (tmp_path / "m" / version).mkdir(parents=True)
        (tmp_path / "m" / version / "net[1].onnx").touch()
    (tmp_path / "m" / "2" / "model.onnx").touch()

    def paths() -> Any:
        found = Repository(tmp_path, DEFAULT, Metrics(NoTraces()), None).entries  # type: ignore[arg-type]
        return found["m"].paths if found else {}

    assert list(paths()) == ["2"]
    (tmp_path / "m" / "config.pbtxt").write_text('default_model_filename: "net[1].onnx"')
    assert {v: p.name for v, p in paths().items()} == dict.fromkeys(("1", "2", "3"), "net[1].onnx")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "at least one line of the form"),
        (b'# secret = ["*"]\n', "at least one line of the form"),
        (b'"" = ["*"]', "no empty token"),
        (b"secret = 5", "number 1 has another value (int)"),
        (b'secret = "*"', "number 1 has another value (str)"),
        (b'a = ["*"]\nsecret = [["x"]]', "number 2 has another value (list)"),
        (b'secret.secret = ["*"]', "a token that contains dots must be in quotes"),
        (b"\xff\xfe", "this is not a TOML file of tokens"),
        (b"secret = [", "this is not a TOML file of tokens"),
        (b"[secret]\n[secret]", "this is not a TOML file of tokens (at line 2, column 8)"),
        (b'a = {secret = ["*"], secret = ["*"]}', "with each token once"),
        (b"a = " + b"[" * 9999, "this is not a TOML file of tokens"),
    ],
)
def test_files_of_tokens_that_grant_nothing_are_refused(tmp_path: Path, text: bytes, message: str) -> None:
    """A server that was started with an empty file of tokens was open to everyone."""
    model, tokens = tmp_path / "m.onnx", tmp_path / "tokens.toml"
    model.write_bytes(b"")
    tokens.write_bytes(text)
    done = CliRunner().invoke(main, [str(model), "--tokens", str(tokens)])
    assert (done.exit_code, done.exception.__class__) == (1, SystemExit)
    assert f"{tokens}: " in done.output
    assert message in done.output
    assert "secret" not in done.output


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--http-port=65536", "http_port must be between -1 and 65535, got 65536"),
        ("--grpc-port=-2", "grpc_port must be between -1 and 65535, got -2"),
        ("--queue-delay=-3", "queue_delay must be a finite number of at least 0, got -0.003"),
        ("--gpus=nan", "gpus must be a finite number of at least 0, got nan"),
        ("--timeout=0", "timeout must be a number of seconds above 0, got 0.0"),
        ("--replicas=0", "replicas must be a finite number of at least 1, got 0"),
        ("--memory=-1", "memory must be a finite number of at least 0, got -1"),
    ],
)
def test_options_out_of_range_are_named(tmp_path: Path, option: str, message: str) -> None:
    done = CliRunner().invoke(main, [str(tmp_path), option])
    assert (done.exit_code, done.output) == (1, f"mgx-serve: {message}\n")
