"""The commands `migraphx-driver` and `optimize_model`."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import migraphx
from migraphx.optimize_model import main, saved_at


def driven(*words, folder=None, module="migraphx.driver"):
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)], capture_output=True, text=True, cwd=folder, check=False
    )


@pytest.fixture
def model(tmp_path, small_network) -> Path:
    onnx.save(small_network([1, 3, 8, 8], 2), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_times_whole_runs(model) -> None:
    done = driven("time", model, "--ref", "-n", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Total time: ")


def test_an_unknown_extension_is_a_program_file(model, tmp_path) -> None:
    assert driven("compile", model, "--ref", "-o", "out.bin", folder=tmp_path).returncode == 0
    assert migraphx.load(tmp_path / "out.bin").is_compiled()
    assert driven("run", "out.bin", folder=tmp_path).returncode == 0
    assert driven("compile", model, "--ref", "--strip-context", "-o", "plain.mxr", folder=tmp_path).returncode == 0
    assert not migraphx.load(tmp_path / "plain.mxr").is_compiled()


def test_compile_prints_the_program(model) -> None:
    said = driven("compile", model, "--cpu").stdout
    assert said == driven("compile", model, "--cpu", "--text").stdout and "@return" in said
    assert json.loads(driven("compile", model, "--ref", "--json").stdout)["program"]
    assert "bytes of memory for intermediate values" in driven("compile", model, "--cpu", "--summary").stdout


def test_scripts_import_the_module(model, tmp_path) -> None:
    driven("read", model, "--py", "-o", "made.py", folder=tmp_path)
    said = driven("compile", model, "--ref", "--python").stdout
    scope: dict[str, object] = {}
    exec((tmp_path / "made.py").read_text(), scope)
    assert scope["p"] == migraphx.parse_onnx(model) and "import migraphx" in said and "mgx_core" not in said


def test_graph_edits(model) -> None:
    whole = json.loads(driven("read", model, "--brief", "--json").stdout)
    last = json.loads(driven("read", model, "--trim-size", 2, "--brief", "--json").stdout)
    assert last["instructions"] < whole["instructions"]
    free = json.loads(driven("read", model, "--replace-literals", "--brief", "--json").stdout)
    assert len(free["parameters"]) > len(whole["parameters"]) == 1
    assert (
        driven("read", model, "-p", "dead_code_elimination", "propagate_constant", "simplify_algebra").returncode == 0
    )


def test_netron_opens_a_file_or_that_of_output(model, tmp_path) -> None:
    for words in (
        (model, "--netron", "a.onnx"),
        (model, "--netron", "-o", "b.onnx"),
        ("--netron", model, "-o", "c.onnx"),
    ):
        assert driven("read", *words, folder=tmp_path).returncode == 0
    assert len({(tmp_path / f"{n}.onnx").read_bytes() for n in "abc"}) == 1
    assert "convolution" in {n.op_type for n in onnx.load(tmp_path / "a.onnx").graph.node}
    assert "name of a file" in driven("read", model, "--netron").stderr


def test_verify_against_doubles_and_saved_programs(model, tmp_path) -> None:
    assert driven("verify", model, "--ref", "--ref-use-double", "--atol", "1e-5", "--rtol", "1e-5").returncode == 0
    assert driven("compile", model, "--ref", "-o", "m.mxr", folder=tmp_path).returncode == 0
    assert driven("verify", model, "--compiled-model", "m.mxr", folder=tmp_path).returncode == 0


def test_logs(model, tmp_path) -> None:
    said = driven("run", model, "--ref", "--log-level", "debug", "--log-file", "log.txt", folder=tmp_path)
    assert "compiled for ref" in said.stderr
    assert "compiled for ref" in (tmp_path / "log.txt").read_text()
    assert "none" in driven("--ort-sha").stdout


@pytest.mark.parametrize("package", ["mgx_core", "migraphx"])
def test_a_script_builds_the_program_again(model, package) -> None:
    p = migraphx.parse_onnx(str(model))
    text = p.core.to_py(package)
    scope: dict = {}
    exec(compile(text, "script", "exec"), scope)
    built = scope["p"]
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    for one in (p, built):
        one.compile(
            migraphx.get_target("ref") if isinstance(one, migraphx.program) else migraphx.get_target("ref").core
        )
    np.testing.assert_array_equal(np.array(built.run({"input": x})[0]), np.array(p.run({"input": x})[0]))
    assert "import migraphx" in p.to_py()


HELP = """
usage: optimize_model.py [-h] [--nchw] [-t {gpu,cpu,ref}] [-d] [-o] [-f] [-i] [-j] [-p OUTPUT_PATH] model
Compile and serialize model offline for future deployment.
positional arguments: model Path to ONNX or TF Protobuf file
optional arguments: -h, --help show this help message and exit
--nchw Treat Tensorflow format as nchw. (Default is nhwc)
-t {gpu,cpu,ref}, --target {gpu,cpu,ref} Compilation target
-d, --disable_fast_math Disable optimized math functions
-o, --offload_copy_off Disable implicit offload copying
-f, --fp16 Quantize model in FP16 precision
-i, --int8 Quantize model in INT8 precision
-j, --json Save program in JSON format. (Default is MsgPack format)
-p OUTPUT_PATH, --output_path OUTPUT_PATH Specify file name and/or path for model to be saved.
(Default is ./saved_models/<model_name>.<format>
"""
TOOL = Path(__file__).parents[4] / "tools/optimize_model.py"


def test_help_of_the_optimizer_names_the_command_that_was_called(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/optimize_model", "-h"])
    with pytest.raises(SystemExit, match=r"^0$"):
        main()
    assert capsys.readouterr().out.startswith("usage: optimize_model [-h]")


def test_help_of_the_optimizer() -> None:
    done = subprocess.run([sys.executable, TOOL, "-h"], capture_output=True, text=True, check=True)
    wanted = HELP
    if sys.version_info >= (3, 13):  # names the value of an option once
        wanted = re.sub(r"(-\w) \S+, (--)", r"\1, \2", HELP)
    assert done.stdout.split() == wanted.split()


@pytest.mark.parametrize("flags", [[], ["-j"], ["-f", "-d"], ["-i"], ["-o"]], ids=" ".join)
def test_the_optimizer_saves_compiled_models(flags, model, tmp_path) -> None:
    done = driven("model.onnx", "-t", "ref", *flags, folder=tmp_path, module="migraphx.optimize_model")
    assert done.returncode == 0, done.stderr
    format = "json" if "-j" in flags else "msgpack"
    loaded = migraphx.load(tmp_path / f"saved_models/model.{format}", format)
    assert loaded.is_compiled()
    x = np.random.default_rng(3).uniform(-2, 2, (1, 3, 8, 8)).astype(np.float32)
    plain = migraphx.parse_onnx(str(model))
    plain.compile(migraphx.get_target("ref"))
    wanted = np.array(plain.run({"input": x})[0])
    np.testing.assert_allclose(np.array(loaded.run({"input": x})[0]), wanted, rtol=0.05, atol=0.05 * abs(wanted).max())


@pytest.mark.parametrize("flags", [[], ["--nchw"]], ids=" ".join)
def test_the_optimizer_accepts_tensorflow_models(flags, tmp_path) -> None:
    graph = pytest.importorskip("mgx_tf.wire.messages").message("GraphDef")()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    for extent in (1, 2, 2, 3):
        x.attr["shape"].shape.dim.add(size=extent)
    graph.node.add(name="y", op="Relu", input=["x"]).attr["T"].type = 1
    (tmp_path / "small.pb").write_bytes(graph.SerializeToString())
    done = driven("small.pb", "-t", "ref", *flags, folder=tmp_path, module="migraphx.optimize_model")
    assert done.returncode == 0, done.stderr
    loaded = migraphx.load(tmp_path / "saved_models/small.msgpack")
    assert loaded.is_compiled()
    value = np.arange(-6, 6, dtype=np.float32).reshape(loaded.get_parameter_shapes()["x"].lens())
    np.testing.assert_array_equal(np.array(loaded.run({"x": value})[0]), np.maximum(value, 0))


def test_where_the_optimizer_saves(tmp_path) -> None:
    assert saved_at(None, "m", "json") == Path("saved_models/m.json")
    assert saved_at("other.msgpack", "m", "msgpack") == Path("saved_models/other.msgpack")
    assert saved_at("some/where/", "m", "msgpack") == Path("some/where/m.msgpack")
    assert saved_at(str(tmp_path), "m", "msgpack") == tmp_path / "m.msgpack"
    assert saved_at("some/where/x.msgpack", "m", "msgpack") == Path("some/where/x.msgpack")


def test_a_frame_around_commands_and_remarks_on_variables(model, monkeypatch) -> None:
    monkeypatch.setenv("MIGRAPHX_TRACE_HIPRTC", "1")
    monkeypatch.setenv("MIGRAPHX_NSTREAMS", "2")
    monkeypatch.setenv("MIGRAPHX_NO_SUCH", "2")
    done = driven("read", model, "--brief", "--mlir")
    assert done.returncode == 0
    first, *notes, last = done.stderr.splitlines()
    assert first.startswith("Running [ mgx ") and first.endswith("--brief")
    assert notes == [
        "note: MIGRAPHX_NO_SUCH is set, but MIGraphX 2.16 has no such variable",
        "note: MIGRAPHX_NSTREAMS is set, but has no effect in mgx, which has no such component",
        "note: MIGRAPHX_TRACE_HIPRTC is set, but not read by mgx; use instead: MGX_DUMP_KERNELS=FOLDER",
        "note: --mlir has no effect: mgx does not use MLIR; it compiles groups to single kernels without it",
    ]
    assert last.startswith("Done ") and last.endswith(" s)")
    assert driven("--version").stderr == "" and driven("--version").stdout.startswith("migraphx-driver, version ")


def test_variables_set_options(model, monkeypatch) -> None:
    monkeypatch.setenv("MIGRAPHX_REWRITE_LRN", "1")
    monkeypatch.setenv("MIGRAPHX_DISABLE_REDUCE_FUSION", "enable")
    monkeypatch.setenv("MIGRAPHX_DISABLE_POINTWISE_FUSION", "0")
    monkeypatch.setenv("MIGRAPHX_ENABLE_GEMM_TUNING", "yes")
    p = migraphx.parse_onnx(model)
    p.compile(migraphx.get_target("ref"), {"fusion_rules": {"reduce": True}})
    found = p.core.executable.options
    assert found.exhaustive_tune and dict(found.fusion_rules) == {"pooling-from-lrn": True, "reduce": True}
    document = json.loads(driven("compile", model, "--ref", "--summary", "--json").stdout)
    assert document["options"]["exhaustive_tune"]
    assert document["options"]["fusion_rules"] == {"pooling-from-lrn": True, "reduce": False}


def test_passes_left_out_by_a_variable(model, monkeypatch) -> None:
    monkeypatch.setenv("MIGRAPHX_DISABLE_PASSES", "fuse_pointwise, eliminate_pad,propagate_constant")
    monkeypatch.setenv("MIGRAPHX_SKIP_BENCHMARKING", "1")
    p = migraphx.parse_onnx(model)
    p.compile(migraphx.get_target("cpu"), exhaustive_tune=True, disable_passes=("merge-common",))
    found = p.core.executable.options
    assert found.disable_passes == ("merge-common", "fuse-elementwise", "fold-constants") and not found.exhaustive_tune
    done = driven("compile", model, "--cpu", "--summary", "--json")
    assert json.loads(done.stdout)["options"]["disable_passes"] == ["fuse-elementwise", "fold-constants"]
    assert "note: MIGRAPHX_DISABLE_PASSES: eliminate_pad cannot be disabled individually" in done.stderr


def test_variables_and_the_command_line_are_joined(model, monkeypatch) -> None:
    monkeypatch.setenv("MIGRAPHX_DISABLE_PASSES", "fuse_pointwise")
    monkeypatch.setenv("MIGRAPHX_SKIP_BENCHMARKING", "1")
    monkeypatch.setenv("MIGRAPHX_DISABLE_POINTWISE_FUSION", "1")
    words = ["--disable-pass", "merge-common", "--rule", "reduce=off", "--rule", "pointwise=on", "--exhaustive-tune"]
    found = json.loads(driven("compile", model, "--ref", "--summary", "--json", *words).stdout)["options"]
    assert sorted(found["disable_passes"]) == ["fuse-elementwise", "merge-common"] and not found["exhaustive_tune"]
    assert found["fusion_rules"] == {"pointwise": True, "reduce": False}


@pytest.mark.parametrize(("level", "told"), [("debug", True), ("4", True), ("none", False), ("loud", False)])
def test_the_level_of_messages_by_a_variable(level, told, model, monkeypatch) -> None:
    monkeypatch.setenv("MIGRAPHX_LOG_LEVEL", level)
    done = driven("compile", model, "--ref")
    assert done.returncode == 0 and ("pass simplify" in done.stderr) == told, done.stderr
    assert ("got 'loud'; it is ignored" in done.stderr) == (level == "loud")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("MIGRAPHX_TIME_PASSES", "run on ref in"),
        ("MIGRAPHX_TRACE_COMPILE", "module main"),
        ("MIGRAPHX_TRACE_PASSES", "module main"),
        ("MIGRAPHX_TRACE_EVAL", "convolution"),
    ],
)
def test_output_enabled_by_a_variable(name, wanted, model, monkeypatch, caplog) -> None:
    x = np.ones((1, 3, 8, 8), np.float32)
    p = migraphx.parse_onnx(model)
    with caplog.at_level(logging.DEBUG, logger="mgx"):
        p.compile(migraphx.get_target("ref"), optimize=True)
        p.run({"input": x})
        assert not any(wanted in r.getMessage() for r in caplog.records)
        monkeypatch.setenv(name, "1")
        p = migraphx.parse_onnx(model)
        p.compile(migraphx.get_target("ref"), optimize=True)
        p.run({"input": x})
        assert any(wanted in r.getMessage() for r in caplog.records)
        caplog.clear()
        monkeypatch.setenv(name, "0")
        migraphx.parse_onnx(model).compile(migraphx.get_target("ref"), optimize=True)
        assert not any(wanted in r.getMessage() for r in caplog.records)


def test_the_driver_shows_what_a_variable_asks_for(model, monkeypatch) -> None:
    monkeypatch.setenv("MIGRAPHX_TRACE_EVAL", "1")
    done = driven("run", model, "--ref")
    assert done.returncode == 0 and "convolution" in done.stderr and "note: MIGRAPHX_TRACE_EVAL=1" in done.stderr


def test_a_loaded_program_shows_its_runs(model, tmp_path, monkeypatch, caplog) -> None:
    p = migraphx.parse_onnx(model)
    p.compile(migraphx.get_target("ref"))
    monkeypatch.setenv("MIGRAPHX_TRACE_EVAL", "2")
    with caplog.at_level(logging.DEBUG, logger="mgx"):  # which is restored after the block
        loaded = migraphx.load_buffer(migraphx.save_buffer(p))
        loaded.run({"input": np.ones((1, 3, 8, 8), np.float32)})
    assert any("convolution" in r.getMessage() for r in caplog.records)


def test_ranges_need_a_profiler(model) -> None:
    done = driven("roctx", model, "--ref")
    assert done.returncode == 2 and "has no profiler that shows ranges" in done.stderr
