"""Evaluates the expression of every item of docs/parity.md, and checks the totals."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import json
import logging
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import mgx_core
import migraphx
from mgx_core.driver import main as driver
from mgx_core.driver.rules import known_passes
from mgx_core.ir.module import nested
from mgx_core.ir.ordering import captures
from mgx_core.ir.verify import misplaced
from mgx_tf.wire.messages import message
from migraphx.environment import COUNTERPARTS, LOG_LEVEL, PASSES, READ, WITHOUT

ROOT: Final = Path(__file__).parents[4]
PAGE: Final = ROOT / "docs" / "parity.md"
STATES: Final = ("yes", "partly", "no")
TENSORFLOW: Final = (
    "Add AddN AddV2 All ArgMax ArgMin AvgPool BatchMatMul BatchMatMulV2 BiasAdd Cast ConcatV2 Const Conv2D "
    "DepthwiseConv2dNative ExpandDims FusedBatchNorm FusedBatchNormV3 GatherV2 Identity LessEqual MatMul MaxPool Mean Mul OneHot "
    "Pack Pad Pow Relu Relu6 Reshape Rsqrt Shape Sigmoid Slice Softmax Split SplitV SquaredDifference Squeeze StopGradient "
    "StridedSlice Sub Tanh Transpose"
)


class Row(NamedTuple):
    area: str
    items: list[str]
    state: str
    tried: str
    remark: str


def rows() -> list[Row]:
    found, area = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            area = line[3:]
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if area != "Totals" and len(cells) == 4 and cells[1] in STATES:
            found.append(Row(area, cells[0].split("; "), cells[1], cells[2].strip("`"), cells[3]))
    return found


ROWS: Final = rows()


# functions available in expressions


def done(*returned: None) -> bool:
    """True for calls that return nothing."""
    return all(r is None for r in returned)


def named_in(path: str, text: str) -> bool:
    """True if a file of the repository contains this text."""
    return text in (ROOT / path).read_text(encoding="utf-8")


def guide(block: str) -> bool:
    """True if a test of test_guides.py runs the block of this name."""
    return block in blocks_run()


@cache
def blocks_run() -> frozenset[str]:
    """Returns the names passed to `ran` in the tests of test_guides.py."""
    tree = ast.parse(Path(__file__).with_name("test_guides.py").read_text(encoding="utf-8"))
    tests = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")]
    calls = [c for t in tests for c in ast.walk(t) if isinstance(c, ast.Call)]
    return frozenset(
        a.id
        for c in calls
        if isinstance(c.func, ast.Name) and c.func.id == "ran"
        for a in c.args
        if isinstance(a, ast.Name)
    )


def driven(*words: str) -> str:
    """Returns the output of a driver command."""
    done = CliRunner().invoke(driver, list(words))
    assert done.exit_code == 0, done.output
    return str(done.output)


def flag(command: str, name: str) -> bool:
    return name in re.findall(r"(?<!\S)--?[a-z0-9-]+", driven(command, "--help").replace(",", " "))


def passes() -> set[str]:
    return set(known_passes())


def extensions() -> set[str]:
    from mgx_core.plugins.manager import manager

    return {e for _, lazy in manager().offered("frontends") for e in lazy.files} | set(manager().names("frontends"))


@cache
def onnx_operators() -> frozenset[str]:
    return frozenset(migraphx.get_onnx_operators())


def variable(name: str) -> bool:
    return name in {*READ, *COUNTERPARTS, *WITHOUT, LOG_LEVEL, PASSES}


def inner_functions() -> tuple[Any, ...]:
    return misplaced, nested, captures


def declared(handle: str) -> list[Any]:
    """Returns the functions of the C header for a handle, or all."""
    path = ROOT / "plugins/capi/mgx_c/declarations.py"
    spec = importlib.util.spec_from_file_location("capi_declarations", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["capi_declarations"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    header = (ROOT / "plugins/capi/include/migraphx/migraphx.h").read_text()
    if handle and f"typedef struct migraphx_{handle}*" not in header:
        return []
    return [f for f in module.functions(header) if f.name.startswith(f"migraphx_{handle}")]


def logged(action: Any, **environment: str) -> str:
    """Returns what is logged at level DEBUG during `action`."""
    written: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(f"{record.name}: {record.getMessage()}")

    logger, handler = logging.getLogger("mgx"), Kept()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            action()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    return "\n".join(written)


def raised(action: Any) -> str:
    with pytest.raises(mgx_core.MgxError) as caught:
        action()
    return str(caught.value)


def printed(action: Any) -> str:
    """Returns the standard output before an error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(mgx_core.MgxError):
        action()
    return said.getvalue()


def tensorflow_graph() -> bytes:
    """Two results of an image [-1, 4, 6, 3]."""
    graph = message("GraphDef")()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    for extent in (-1, 4, 6, 3):
        x.attr["shape"].shape.dim.add(size=extent)
    for name, op in (("a", "Relu"), ("b", "Tanh")):
        graph.node.add(name=name, op=op, input=["x"]).attr["T"].type = 1
    return bytes(graph.SerializeToString())


def model(
    nodes: list[Any], weights: list[Any] = (), lens: tuple[Any, ...] = (2, 3), kind: int = TensorProto.FLOAT
) -> bytes:  # type: ignore[assignment]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, lens)
    y = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("of.nobody", 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return made


def unknown_operator() -> None:
    migraphx.parse_onnx_buffer(model([helper.make_node("Nonesuch", ["x"], ["y"], domain="of.nobody")]))


def too_large() -> None:
    migraphx.generate_argument(migraphx.shape(lens=[1 << 45]))


def quantized() -> Any:
    """Returns a product of two quantized and dequantized tensors."""
    weights = [
        ("s", numpy.array(0.1, numpy.float32)),
        ("z", numpy.array(0, numpy.int8)),
        ("w", numpy.ones((3, 4), numpy.int8)),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    return mgx_core.parse_onnx_buffer(model(nodes, weights))


def onnx_option(name: str) -> Any:
    """Returns a field of mgx-onnx's options."""
    from mgx_onnx.options import OnnxOptions

    return OnnxOptions.__dataclass_fields__[name]


@pytest.fixture(scope="module")
def scope(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("parity") / "model.onnx"
    path.write_bytes(model([helper.make_node("Relu", ["x"], ["y"])]))
    others = {name: path.with_name(f"{name}.model") for name in "outz"}
    others["o"].write_bytes(model([helper.make_node("Relu", ["x"], ["y"])], lens=("n", 3)))
    others["u"].write_bytes(model([helper.make_node("Nonesuch", ["x"], ["y"], domain="of.nobody")]))
    others["t"].write_bytes(tensorflow_graph())
    others["z"].write_bytes(model([helper.make_node("NonZero", ["x"], ["y"])], kind=TensorProto.INT64))
    program = migraphx.parse_onnx(str(path))
    program.compile(migraphx.get_target("ref"))

    def traced() -> list[str]:
        seen: list[str] = []
        program.run_trace({"x": numpy.zeros((2, 3), numpy.float32)}, lambda i, _: seen.append(i.name()))
        return seen

    given = {"m": migraphx, "g": mgx_core, "p": program, "f": str(path), "traced": traced}
    given |= {name: str(file) for name, file in others.items()}
    return globals() | given | {"inspect": inspect, "json": json} | {"bytes_of": lambda f: Path(f).read_bytes()}


def test_a_call_without_a_result_is_reported() -> None:
    assert done(None, None) and not done(False) and not done(None, "")
    assert not guide("NONESUCH")


@pytest.mark.parametrize("row", [r for r in ROWS if r.tried], ids=lambda r: f"{r.area}: {r.items[0]}")
def test_items(row: Row, scope: dict[str, Any]) -> None:
    failed = []
    for item in row.items if "ITEM" in row.tried else [row.items[0]]:
        expression = row.tried.replace("ITEM", item)
        try:
            found = eval(expression, scope)
            good = all(found) if isinstance(found, tuple) else bool(found)
        except Exception as error:
            failed.append(f"{expression}: {type(error).__name__}: {error}")
        else:
            if not good:
                failed.append(f"{expression}: {found!r}")
    assert failed == []


def test_rows_without_an_expression_name_their_test() -> None:
    assert [r.items for r in ROWS if not r.tried and not r.remark] == []
    assert [r.items for r in ROWS if r.state != "yes" and not r.remark] == []


def test_totals() -> None:
    counted: dict[str, list[int]] = {}
    for row in ROWS:
        counted.setdefault(row.area, [0, 0, 0])[STATES.index(row.state)] += len(row.items)
    counted["all"] = [sum(c) for c in zip(*counted.values(), strict=True)]
    page = PAGE.read_text(encoding="utf-8")
    for area, (yes, partly, no) in counted.items():
        assert f"| {area} | {yes + partly + no} | {yes} | {partly} | {no} |" in page
    assert sum(counted["all"]) == 884


def test_nothing_is_missing_where_programs_would_break() -> None:
    areas = ("Python API", "ONNX options", "Compile, run and file options", "Save, load, export", "C and C++ API")
    driver_areas = ("Driver: commands", "Driver: flags")
    assert {r.area for r in ROWS} >= {*areas, *driver_areas}
    assert [r.items for r in ROWS if r.area in (*areas, *driver_areas) and r.state == "no"] == []
