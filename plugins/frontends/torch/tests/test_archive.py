"""``.pt2`` files are read without executing code from them."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import mgx_core
from mgx_torch.converter import STANDARD, Converters

UNBOUNDED = (
    "9**9**9**9", "1<<(1<<40)", "Pow(Integer(9), Integer(9999999999))",
    "Pow(Pow(Integer(9), Integer(4)), Integer(4))", "Pow(Integer(9), Integer(-1))", "Pow(Integer(9), Integer(2.5))",
    f"Pow(Add({', '.join(f'Integer({i})' for i in range(99))}), Integer(2))", "LShift(Integer(1), Integer(1099511627776))",
    f"Integer({1 << 64})", "+".join(["1"] * 20000),
)  # fmt: skip


class Armed:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[nn.Module, Path]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    size = torch.export.Dim("n", min=1, max=64)
    exported = torch.export.export(model, (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: size},))
    torch.export.save(exported, tmp_path / "model.pt2")
    return model, tmp_path / "model.pt2"


def changed(path: Path, change: Callable[[str, bytes], bytes]) -> bytes:
    """Copies an archive with changed entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return out.getvalue()


def test_file_is_parsed_by_its_ending(saved: tuple[nn.Module, Path]) -> None:
    model, path = saved
    program = mgx_core.parse(path)
    program.compile(mgx_core.get_target("cpu"))
    x = torch.randn(5, 3, 8, 8)
    got = program.run({program.get_parameter_names()[0]: x.numpy()})[0].to_numpy()
    torch.testing.assert_close(torch.from_numpy(got), model(x), rtol=1e-5, atol=1e-5)


class Pair(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


class Parted(nn.Module):
    def forward(self, x: Pair) -> dict[str, Any]:
        return {"parts": Pair(x.high * 2, x.low), "count": 3, "sums": [x.low.sum(0)]}


def test_results_of_a_class_are_read_without_it(tmp_path: Path) -> None:
    given = Pair(torch.randn(2, 3), torch.randn(4))
    torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="test_archive.Pair")
    torch.export.save(torch.export.export(Parted(), (given,)), tmp_path / "model.pt2")
    absent = changed(
        tmp_path / "model.pt2", lambda name, data: data.replace(b"test_archive.Pair", b"no_such_module.Pair")
    )
    program = mgx_core.parse_buffer(absent, "pt2")
    program.compile(mgx_core.get_target("cpu"))
    found = program.run(dict(zip(program.get_parameter_names(), given, strict=True)))
    for got, want in zip(found, (given.high * 2, given.low, torch.tensor(3), given.low.sum(0)), strict=True):
        torch.testing.assert_close(torch.from_dlpack(got), want)


def test_pickled_sample_inputs_are_not_touched(saved: tuple[nn.Module, Path], tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    data = changed(saved[1], lambda n, d: pickle.dumps(Armed(str(trap))) if n.endswith("model.pt") else d)
    mgx_core.parse_buffer(data, "pt2")
    assert not trap.exists()


def test_pickled_weight_is_refused(saved: tuple[nn.Module, Path], tmp_path: Path) -> None:
    def change(name: str, data: bytes) -> bytes:
        return data.replace(b'"use_pickle": false', b'"use_pickle": true') if "weights_config" in name else data

    with pytest.raises(mgx_core.ParseError, match="unpickles nothing"):
        mgx_core.parse_buffer(changed(saved[1], change), "pt2")


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "torch.ops.aten.add.Tensor.__class__",
        "builtins.eval",
        "torch.load",
        "_operator.call",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.factorial",
        "torch.ops.python.getattr",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.aten.relu.default.__class__",
        "torch.ops.aten.__class__.mro.x",
        "_operator.lshift",
    ],
)
def test_call_of_anything_but_an_operator_is_refused(saved: tuple[nn.Module, Path], target: str) -> None:
    def change(name: str, data: bytes) -> bytes:
        return data.replace(b"torch.ops.aten.relu.default", target.encode()) if name.endswith("model.json") else data

    with pytest.raises(mgx_core.ParseError, match="not an operator of torch"):
        mgx_core.parse_buffer(changed(saved[1], change), "pt2")


def test_operators_converted_by_a_package_are_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.library.custom_op("mgx_test_archive::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return twice(x) + 1

    x = torch.randn(3)
    torch.export.save(torch.export.export(Model(), (x,)), tmp_path / "model.pt2")
    with pytest.raises(mgx_core.ParseError, match=r"'twice' calls .* no installed package converts it"):
        mgx_core.parse(tmp_path / "model.pt2")

    ours = Converters()
    ours.converts("twice", domain="mgx_test_archive")(lambda n, x: n.add("add", x, x))
    for module in ("archive", "exported"):
        monkeypatch.setattr(f"mgx_torch.{module}.all_converters", lambda: STANDARD + ours)
    program = mgx_core.parse(tmp_path / "model.pt2")
    program.compile(mgx_core.get_target("cpu"))
    torch.testing.assert_close(torch.from_dlpack(program.run({"x": x})[0]), x * 2 + 1)


@pytest.mark.parametrize(
    "operand", ["torch.os.system", "torch.load", "_operator.call", "torch.ops.debugprims.load_tensor.default"]
)
def test_operand_that_could_be_called_is_refused(saved: tuple[nn.Module, Path], operand: str) -> None:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("model.json"):
            return data
        model = json.loads(data)
        (node,) = (n for n in model["graph_module"]["graph"]["nodes"] if "relu" in n["target"])
        node["target"] = "torch.ops.higher_order.wrap"
        node["inputs"].insert(0, {"name": "", "arg": {"as_operator": operand}, "kind": 1})
        return json.dumps(model).encode()

    with pytest.raises(mgx_core.ParseError, match="as an argument, which is not an operator of torch"):
        mgx_core.parse_buffer(changed(saved[1], change), "pt2")


@pytest.mark.parametrize(
    "text", ["__import__('os').getpid()", "s0.__class__", "[1]", "exec", "(lambda: 1)()", *UNBOUNDED]
)
def test_size_that_is_code_is_refused(saved: tuple[nn.Module, Path], text: str) -> None:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("model.json"):
            return data
        model = json.loads(data)

        def walk(value: Any) -> None:
            if isinstance(value, dict):
                for key in value:
                    if key == "expr_str":
                        value[key] = text
                    walk(value[key])
            elif isinstance(value, list):
                for item in value:
                    walk(item)

        walk(model)
        return json.dumps(model).encode()

    with pytest.raises(mgx_core.ParseError):
        mgx_core.parse_buffer(changed(saved[1], change), "pt2")


def test_chain_of_squared_sizes_is_refused(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x.shape[0] * x.shape[1]

    batch, width = torch.export.Dim("b", min=2, max=64), torch.export.Dim("w", min=2, max=64)
    exported = torch.export.export(Net(), (torch.randn(3, 5),), dynamic_shapes=({0: batch, 1: width},))
    torch.export.save(exported, tmp_path / "model.pt2")

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("model.json"):
            return data
        model = json.loads(data)
        nodes = model["graph_module"]["graph"]["nodes"]
        (at,) = (i for i, n in enumerate(nodes) if n["target"] == "_operator.mul")
        last, more = nodes[at]["outputs"][0]["as_sym_int"]["as_name"], []
        for count in range(40):
            made = json.loads(json.dumps(nodes[at]))
            made["name"] = f"square_{count}"
            for given in made["inputs"]:
                given["arg"] = {"as_sym_int": {"as_name": last}}
            made["outputs"] = [{"as_sym_int": {"as_name": made["name"]}}]
            last = made["name"]
            more.append(made)
        nodes[at + 1 : at + 1] = more
        return json.dumps(model).encode()

    mgx_core.parse(tmp_path / "model.pt2")
    with pytest.raises(mgx_core.ParseError, match="product of more than"):
        mgx_core.parse_buffer(changed(tmp_path / "model.pt2", change), "pt2")


def test_sizes_that_are_computed_from_others_are_read(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x[:, :, 1:], x], 2) + x.shape[2] // 2

    exported = torch.export.export(
        Net(), (torch.randn(2, 4, 16),), dynamic_shapes=({2: torch.export.Dim("n", min=8, max=64)},)
    )
    torch.export.save(exported, tmp_path / "model.pt2")
    program = mgx_core.parse(tmp_path / "model.pt2")
    program.compile(mgx_core.get_target("ref"))
    x = torch.randn(2, 4, 21)
    got = program.run({program.get_parameter_names()[0]: x.numpy()})[0].to_numpy()
    torch.testing.assert_close(torch.from_numpy(got), Net()(x))


def test_statements_about_sizes_are_read(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0].sum()  # with an assertion that the number of positions is not negative

    x = torch.randn(3, 4)
    torch.export.save(torch.export.export(Masked(), (x,)), tmp_path / "masked.pt2")
    program = mgx_core.parse(tmp_path / "masked.pt2")
    program.compile(mgx_core.get_target("ref"))
    assert float(program.run({"x": x.numpy()})[0].to_numpy()) == pytest.approx(float(Masked()(x)), rel=1e-5)


def test_squares_of_sizes_are_read(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x[:, ::2]
            return torch.cat([(x.T @ x).flatten(), (y.T @ y).flatten()])

    size = torch.export.Dim("n", min=4, max=64)
    torch.export.save(
        torch.export.export(Net(), (torch.randn(4, 5),), dynamic_shapes=({1: size},)), tmp_path / "model.pt2"
    )
    program = mgx_core.parse(tmp_path / "model.pt2")
    program.compile(mgx_core.get_target("ref"))
    x = torch.randn(4, 8)
    got = program.run({program.get_parameter_names()[0]: x.numpy()})[0].to_numpy()
    torch.testing.assert_close(torch.from_numpy(got), Net()(x))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("writer", "zipped"), [("save", True), ("save", False), ("jit.save", True)])
def test_a_file_of_another_writer_has_a_helpful_error(tmp_path: Path, writer: str, zipped: bool) -> None:
    path, layer = tmp_path / "model.pt2", nn.Linear(4, 3)
    if writer == "jit.save":
        torch.jit.save(torch.jit.trace(layer, torch.randn(2, 4)), path)
    else:
        torch.save(layer, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(mgx_core.ParseError, match=rf"written by torch\.{writer},.*torch\.export\.save\("):
        mgx_core.parse(path)


@pytest.mark.parametrize("cut", [0, 10, 500, 5000])
def test_damaged_file_is_refused(saved: tuple[nn.Module, Path], cut: int) -> None:
    with pytest.raises(mgx_core.ParseError):
        mgx_core.parse_buffer(saved[1].read_bytes()[:cut], "pt2")


def test_short_weight_is_refused(saved: tuple[nn.Module, Path]) -> None:
    data = changed(saved[1], lambda n, d: d[:8] if n.endswith("weight_0") else d)
    with pytest.raises(mgx_core.ParseError, match="bytes"):
        mgx_core.parse_buffer(data, "pt2")
