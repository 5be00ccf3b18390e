"""Each driver flag listed in docs/parity.md is passed to a command and must affect the command's output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_core.driver import main as driver

PAGE: Final = Path(__file__).parents[4] / "docs" / "parity.md"
ROWS: Final = re.compile(r"^\| (--.*?) \| (?:yes|partly) \| `flag\(", re.M)


class Trial(NamedTuple):
    """words: after the command; shows: True for the output with the flag, and False for the one without it."""

    command: str
    words: str
    shows: Callable[[str, Path], bool]
    without: str | None = ""  # the words of the run that must differ; None if there is none


def has(text: str) -> Callable[[str, Path], bool]:
    return lambda said, _: text in said


def wrote(name: str, first: bytes) -> Callable[[str, Path], bool]:
    return lambda _, folder: (folder / name).is_file() and (folder / name).read_bytes().startswith(first)


def of_type(kind: str) -> Callable[[str, Path], bool]:
    """True if the compiled program has values of that type."""
    return lambda said, _: re.search(rf"\b{kind}\[", said) is not None


TRIALS: Final[dict[str, Trial]] = {
    "--log-level": Trial("compile", "m.onnx --cpu --log-level debug", has("pass normalize"), "m.onnx --cpu"),
    "--log-file": Trial("compile", "m.onnx --cpu --log-level debug --log-file log.txt", wrote("log.txt", b"parsed file"), "m.onnx --cpu"),
    "--test": Trial("read", "--test", has("float32[4, 5]"), None),
    "--onnx": Trial("read", "--onnx renamed.bin", has("relu("), None),
    "--tf": Trial("read", "--tf renamed_tf.bin", has("relu("), None),
    "--migraphx": Trial("read", "--migraphx renamed.mxr.bin", has("relu("), None),
    "--migraphx-json": Trial("read", "--migraphx-json renamed.json.bin", has("relu("), None),
    "--batch": Trial("read", "m.onnx --batch 7", has("float32[7, 4]"), "m.onnx"),
    "--input-dim": Trial("read", "m.onnx --input-dim @x 6 4", has("float32[6, 4]"), "m.onnx"),
    "--dyn-input-dim": Trial("read", "m.onnx --dyn-input-dim @x [{min:2,max:9},4]", has("2..9"), "m.onnx"),
    "--dim-param": Trial("read", "m.onnx --dim-param @n 5", has("float32[5, 4]"), "m.onnx"),
    "--default-dyn-dim": Trial("read", "m.onnx --default-dyn-dim {min:3,max:9}", has("3..9"), "m.onnx"),
    "--nhwc": Trial("read", "image.pb --nhwc", has("[1, 3, 4, 4]\n  %1 = pooling"), "image.pb --nchw"),
    "--nchw": Trial("read", "image.pb --nchw", has("-> float32[1, 4, 4, 3]\n"), "image.pb --nhwc"),
    "--output-names": Trial("read", "two.pb --output-names b a", has("tanh"), "two.pb --output-names a"),
    "--skip-unknown-operators": Trial("read", "unknown.onnx --skip-unknown-operators", has("unknown"), None),
    "--debug-symbols": Trial("read", "m.onnx --debug-symbols", has("product_of_x"), None),
    "--trim": Trial("read", "m.onnx --trim 1", lambda said, _: "relu" not in said, "m.onnx"),
    "--trim-size": Trial("read", "m.onnx --trim-size 1", lambda said, _: "dot" not in said, "m.onnx"),
    "--optimize": Trial("read", "twice.onnx --optimize", lambda said, _: said.count("exp(") == 1, "twice.onnx"),
    "--apply-pass": Trial("read", "twice.onnx -p merge-common", lambda said, _: said.count("exp(") == 1, "twice.onnx"),
    "--replace-literals": Trial("read", "m.onnx --replace-literals", lambda said, _: said.count("@param") == 2, "m.onnx"),
    "--strip-context": Trial("read", "compiled.mxr --strip-context -o s.mxr", lambda _, f: not mgx.load(f / "s.mxr").is_compiled(), None),
    "--graphviz": Trial("read", "m.onnx --graphviz", has("digraph"), "m.onnx"),
    "--brief": Trial("read", "m.onnx --brief", lambda said, _: "dot(" not in said, "m.onnx"),
    "--cpp": Trial("read", "m.onnx --cpp", has("migraphx::program make_program"), "m.onnx"),
    "--python": Trial("read", "m.onnx --python", has("add_instruction"), "m.onnx"),
    "--text": Trial("read", "m.onnx --text -o t.out", wrote("t.out", b"symbol n\nmodule main"), None),
    "--binary": Trial("read", "m.onnx --binary -o b.out", lambda _, f: not mgx.load(f / "b.out").is_compiled(), None),
    "--json": Trial("read", "m.onnx --json", lambda said, _: bool(json.loads(said)), None),
    "--output": Trial("read", "m.onnx --output t.txt", wrote("t.txt", b"symbol n\nmodule main"), None),
    "--fill0": Trial("run", "m.onnx --ref --fill0 x", has("[[0., 0., 0., 0.]]"), "m.onnx --ref"),
    "--fill1": Trial("run", "m.onnx --ref --fill1 x", has("[[4., 4., 4., 4.]]"), "m.onnx --ref"),
    "--load-arg": Trial("run", "m.onnx --ref --load-arg @x twos.npy", has("[[8., 8., 8., 8.]]"), "m.onnx --ref"),
    "--gpu": Trial("compile", "m.onnx --gpu", has("compiled for gpu"), "m.onnx --ref"),
    "--cpu": Trial("compile", "m.onnx --cpu", has("compiled for cpu"), "m.onnx --ref"),
    "--ref": Trial("compile", "m.onnx --ref", has("compiled for ref"), "m.onnx --cpu"),
    "--enable-offload-copy": Trial(
        "compile", "m.onnx --ref --enable-offload-copy --json", has('"offload_copy": true'), "m.onnx --ref --disable-offload-copy --json"
    ),
    "--disable-fast-math": Trial("compile", "m.onnx --ref --disable-fast-math --json", has('"fast_math": false'), "m.onnx --ref --json"),
    "--exhaustive-tune": Trial("compile", "m.onnx --ref --exhaustive-tune --json", has('"exhaustive_tune": true'), "m.onnx --ref --json"),
    "--fp16": Trial("compile", "m.onnx --ref --fp16 --text", of_type("float16"), "m.onnx --ref --text"),
    "--bf16": Trial("compile", "m.onnx --ref --bf16 --text", of_type("bfloat16"), "m.onnx --ref --text"),
    "--int8": Trial("compile", "m.onnx --ref --int8 --text", of_type("int8"), "m.onnx --ref --text"),
    "--fp8": Trial("compile", "m.onnx --ref --fp8 --text", has("float8"), "m.onnx --ref --text"),
    "--int4-weights": Trial("compile", "wide.onnx --ref --int4-weights --text", has("bits=4"), "wide.onnx --ref --text"),
    "--rms-tol": Trial("verify", "m.onnx --cpu --rms-tol 0.5", has("rms 0.5"), "m.onnx --cpu"),
    "--atol": Trial("verify", "m.onnx --cpu --atol 0.25", has("atol 0.25"), "m.onnx --cpu"),
    "--rtol": Trial("verify", "m.onnx --cpu --rtol 0.125", has("rtol 0.125"), "m.onnx --cpu"),
    "--per-instruction": Trial("verify", "m.onnx --cpu --per-instruction", has("dot"), "m.onnx --cpu"),
    "--reduce": Trial("verify", "m.onnx --cpu --reduce", has("passed"), None),
    "--bisect": Trial("verify", "m.onnx --cpu --bisect", has("passed"), None),
    "--ref-use-double": Trial(
        "verify",
        "sum.onnx --cpu --rms-tol 9 --atol 9 --rtol 9 --ref-use-double",
        lambda said, _: re.search("y +0 +0", said) is None,
        "sum.onnx --cpu --rms-tol 9 --atol 9 --rtol 9",
    ),
    "--compiled-model": Trial("verify", "m.onnx --cpu --compiled-model compiled.mxr", has("passed"), None),
}  # fmt: skip


def items() -> list[str]:
    """Returns the flags of the page's rows that only search for the flag in the help."""
    return [item for row in ROWS.findall(PAGE.read_text(encoding="utf-8")) for item in row.split("; ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the trials read."""
    here, node = tmp_path_factory.mktemp("flags"), helper.make_node

    def saved(name: str, *nodes: onnx.NodeProto, w: np.ndarray = np.ones((4, 4), np.float32)) -> None:  # noqa: B008
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", len(w)])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        weights = [numpy_helper.from_array(w, "w")]
        graph = helper.make_graph(nodes, "g", [x], [y], weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("of.nobody", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), here / name)

    saved("m.onnx", node("MatMul", ["x", "w"], ["p"], name="product_of_x"), node("Relu", ["p"], ["y"]))
    saved("wide.onnx", node("MatMul", ["x", "w"], ["y"]), w=np.ones((64, 64), np.float32))
    steps = [node("Add", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("Sub", ["b", "w"], ["y"])]
    saved("sum.onnx", *steps, w=np.full((4, 4), 1e8, np.float32))  # 0 in float32, x in float64
    saved("twice.onnx", node("Exp", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Add", ["a", "b"], ["y"]))
    saved("unknown.onnx", node("Nonesuch", ["x"], ["y"], domain="of.nobody"))
    (here / "renamed.bin").write_bytes((here / "m.onnx").read_bytes())
    np.save(here / "twos.npy", np.full((1, 4), 2, np.float32))
    program = mgx.parse_onnx(here / "m.onnx", default_dim_value=1)
    mgx.save(program, here / "renamed.mxr.bin")
    mgx.save(program, here / "renamed.json.bin", "json")
    program.compile(mgx.get_target("ref"))
    mgx.save(program, here / "compiled.mxr")
    graphs(here)
    return here


def graphs(here: Path) -> None:
    """TensorFlow graphs: of an image, and of two results."""
    message = pytest.importorskip("mgx_tf.wire.messages").message

    def graph(name: str, dims: tuple[int, ...], *nodes: tuple[str, str]) -> None:
        made = message("GraphDef")()
        x = made.node.add(name="x", op="Placeholder")
        x.attr["dtype"].type = 1
        for extent in dims:
            x.attr["shape"].shape.dim.add(size=extent)
        for result, op in nodes:
            one = made.node.add(name=result, op=op, input=["x"])
            one.attr["T"].type = 1
            if op == "MaxPool":
                one.attr["padding"].s = b"VALID"
                for field in ("ksize", "strides"):
                    one.attr[field].list.i.extend([1, 2, 2, 1])
                one.attr["data_format"].s = b"NHWC"
        (here / name).write_bytes(made.SerializeToString())

    graph("image.pb", (1, 4, 4, 3), ("y", "MaxPool"))
    graph("two.pb", (2, 3), ("a", "Relu"), ("b", "Tanh"))
    graph("renamed_tf.bin", (2, 3), ("a", "Relu"))


def said(command: str, words: str) -> str:
    if "--log" in words:  # which configures the logging of a process
        line = [sys.executable, "-m", "mgx_core", command, *words.split()]
        return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    done = CliRunner().invoke(driver, [command, *words.split()])
    assert done.exit_code == 0, done.output
    return str(done.output)


def test_every_flag_of_the_page_has_a_trial() -> None:
    assert set(items()) - TRIALS.keys() == set()


@pytest.mark.parametrize("name", TRIALS)
def test_flags(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = TRIALS[name]
    if name == "--gpu":
        pytest.importorskip("mgx_gpu_hip")
        monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
        monkeypatch.setattr("mgx_core.plugins.manager._manager", [])
    monkeypatch.chdir(folder)
    if trial.without:
        assert not trial.shows(said(trial.command, trial.without), folder)
    assert trial.shows(said(trial.command, trial.words), folder)
