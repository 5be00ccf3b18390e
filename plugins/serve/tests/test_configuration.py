"""Triton's extensions of the protocol: configurations, traces, the log, several versions at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from mgx_serve.errors import BadRequest, Unsupported
from mgx_serve.log_settings import LogSettings

CLIENTS = [tritonclient.http, tritonclient.grpc]
X = np.ones((1, 4), np.float32)


def client(module: Any, server: Any) -> Any:
    return module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc)


def told(module: Any, made: Any) -> Any:
    return made if module is tritonclient.http else made["config"]


@pytest.fixture(scope="module")
def versions(serve: Any, small_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of `m`, versions 1 to 3 (y = version * x), of which 2 and 3 are served, and of `all`, versions 1 and 2."""
    root = tmp_path_factory.mktemp("versions")
    for version in (1, 2, 3):
        small_model(root / "m" / str(version) / "model.onnx", version)
    (root / "m" / "config.pbtxt").write_text("max_batch_size: 4 version_policy { latest { num_versions: 2 } }")
    for version in (1, 2):
        small_model(root / "all" / str(version) / "model.onnx", version)
    (root / "all" / "config.pbtxt").write_text("version_policy { all { } }")
    return serve(root)


@pytest.mark.parametrize("module", CLIENTS)
def test_configurations(module: Any, versions: Any) -> None:
    options = {} if module is tritonclient.http else {"as_json": True}
    with client(module, versions) as c:
        found = told(module, c.get_model_config("m", **options))
        assert found["name"] == "m" and found["platform"] == "mgx_ref" and int(found["max_batch_size"]) == 4
        assert [(t["name"], t["data_type"], list(map(int, t["dims"]))) for t in found["input"]] == [
            ("x", "TYPE_FP32", [4])
        ]
        assert [t["name"] for t in found["output"]] == ["y", "z"] and "dynamic_batching" in found
        assert found["default_model_filename"] == "model.onnx"
        alone = told(module, c.get_model_config("all", "1", **options))
        assert list(map(int, alone["input"][0]["dims"])) == [-1, 4] and "dynamic_batching" not in alone
        for model, version, why in (("nosuch", "", "no model 'nosuch'"), ("m", "9", "no version '9'")):
            with pytest.raises(InferenceServerException, match=why):
                c.get_model_config(model, version)


@pytest.mark.parametrize("module", CLIENTS)
def test_several_versions_are_served_at_a_time(module: Any, versions: Any) -> None:
    with client(module, versions) as c:

        def ask(model: str, version: str) -> float:
            given = module.InferInput("x", [1, 4], "FP32")
            given.set_data_from_numpy(X)
            return float(c.infer(model, [given], model_version=version).as_numpy("y")[0, 0])

        assert [ask("m", v) for v in ("", "2", "3")] == [3, 2, 3]
        assert [ask("all", v) for v in ("", "1", "2")] == [2, 1, 2]
        with pytest.raises(InferenceServerException, match="version '1' of model 'm' is not loaded"):
            ask("m", "1")
        options = {} if module is tritonclient.http else {"as_json": True}
        assert c.get_model_metadata("m", **options)["versions"] == ["2", "3"]
        rows = c.get_model_repository_index(**options)
        listed = [(r["name"], r["version"]) for r in (rows if module is tritonclient.http else rows["models"])]
        assert listed == [("all", "1"), ("all", "2"), ("m", "2"), ("m", "3")]


def test_a_removed_version_is_no_longer_served(serve: Any, small_model: Callable[..., Path], tmp_path: Path) -> None:
    for version in (1, 2):
        small_model(tmp_path / "m" / str(version) / "model.onnx", version)
    (tmp_path / "m" / "config.toml").write_text("served = 2")
    with client(tritonclient.http, serve(tmp_path)) as c:
        small_model(tmp_path / "m" / "3" / "model.onnx", 3)
        c.load_model("m")
        assert [r["version"] for r in c.get_model_repository_index()] == ["2", "3"]
        (tmp_path / "m" / "4").mkdir()
        (tmp_path / "m" / "4" / "model.onnx").write_bytes(b"no model")
        with pytest.raises(InferenceServerException, match="cannot be loaded"):
            c.load_model("m")
        # none of the new ones remains loaded
        assert [r["version"] for r in c.get_model_repository_index()] == ["2", "3"]
        c.unload_model("m")
        assert [(r["version"], r["state"]) for r in c.get_model_repository_index()] == [("4", "UNAVAILABLE")]


@pytest.mark.parametrize("module", CLIENTS)
def test_a_configuration_in_a_request_is_refused(module: Any, versions: Any) -> None:
    with client(module, versions) as c, pytest.raises(InferenceServerException, match="loaded from disk as they are"):
        c.load_model("m", config='{"max_batch_size": 2}')


@pytest.mark.parametrize("module", CLIENTS)
def test_settings_of_traces(module: Any, versions: Any) -> None:
    options = {} if module is tritonclient.http else {"as_json": True}
    with client(module, versions) as c:
        for model in (None, "m"):
            found = c.get_trace_settings(model, **options)
            level = found["trace_level"] if module is tritonclient.http else found["settings"]["trace_level"]["value"]
            assert level == ["OFF"]
        for ask in (c.get_trace_settings, c.update_trace_settings):
            with pytest.raises(InferenceServerException, match="no model 'nosuch'") as caught:
                ask("nosuch")
            assert caught.value.status() in ("404", "StatusCode.NOT_FOUND")
        c.update_trace_settings(settings={"trace_level": ["OFF"], "trace_rate": None})
        with pytest.raises(InferenceServerException, match="trace_level cannot be changed by requests, and is OFF"):
            c.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
        if module is tritonclient.http:
            with pytest.raises(InferenceServerException, match="trace_rate must be a text"):
                c.update_trace_settings(settings={"trace_rate": {"of": []}})


@pytest.mark.parametrize("module", CLIENTS)
def test_settings_of_the_log(module: Any, versions: Any) -> None:
    with client(module, versions) as c:
        c.update_log_settings({"log_info": True, "log_verbose_level": 2})
        if module is tritonclient.http:
            found = c.get_log_settings()
        else:
            found = {n: getattr(s, s.WhichOneof("parameter_choice")) for n, s in c.get_log_settings().settings.items()}
        assert found == {
            "log_file": "",
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 2,
            "log_format": "default",
        }
        for given, why in (
            ({"log_file": "/tmp/x"}, "when the server is started"),
            ({"log_loud": True}, "no setting 'log_loud'"),
            ({"log_format": "ISO8601"}, "log_format cannot be changed by requests"),
        ):
            with pytest.raises(InferenceServerException, match=why):
                c.update_log_settings(given)
        c.update_log_settings({"log_info": False, "log_verbose_level": 0})


def test_the_first_line_names_models_and_targets(versions: Any, server: Any) -> None:
    assert versions.said.endswith("; all on ref; m on ref\n")
    assert "; broken not ready (" in server.said and "; double on ref; fixed on ref; softmax on ref" in server.said


def test_a_model_that_is_not_ready_is_named_before_many_others(serve: Any, small_model: Any, tmp_path: Path) -> None:
    for n in range(9):
        small_model(tmp_path / f"m{n}" / "1" / "model.onnx")
    (tmp_path / "m8" / "1" / "model.onnx").write_bytes(b"no model")
    said = serve(tmp_path).said
    assert "; m8 not ready (" in said and said.endswith("; m5 on ref; m6 on ref; 1 more\n")


def test_values_accepted_by_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("mgx_serve.asked")
    logger.setLevel(logging.WARNING)
    settings = LogSettings(logger)

    def taken() -> str:
        caplog.clear()
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            logger.log(level, logging.getLevelName(level)[0])
        return "".join(caplog.messages)

    assert taken() == "WEC"
    for given, wanted in (
        ({"log_info": True}, "IWEC"),
        ({"log_warning": False}, "IEC"),
        ({"log_verbose_level": 1, "log_error": False}, "DI"),
        ({"log_info": False, "log_verbose_level": 0, "log_error": True}, "EC"),
        ({"log_error": False}, ""),
    ):
        settings.change(given)
        assert taken() == wanted, given
    for wrong, error in (
        ({"log_error": True, "log_verbose_level": -1}, BadRequest),
        ({"log_error": 1}, BadRequest),
        ({"log_error": True, "log_format": "ISO8601"}, Unsupported),
    ):
        with pytest.raises(error):
            settings.change(wrong)
        assert settings.values["log_error"] is False
    settings.close()
    assert taken() == "WEC"
    logger.setLevel(logging.NOTSET)
