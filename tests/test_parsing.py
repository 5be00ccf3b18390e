"""Format-independent parsing: frontend selection, options of frontends and of the core, errors with the file's name."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from click.testing import CliRunner

import mgx_core as mgx
from mgx_core.api import frontend_operators
from mgx_core.driver import main
from mgx_core.parsing import PROGRAM, PROGRAM_TEXT, reader_of
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl


class Plain(mgx.Frontend):
    """A frontend without support for extents: the file contains the name of a unary op, for x of [n, 3]."""

    def parse(self, path, **options):
        with open(path, "rb") as file:
            return self.parse_buffer(file.read(), **options)

    def parse_buffer(self, data, times=1):
        program = mgx.Program(output_names=["y"])
        graph = program.get_main_module()
        x = graph.add_parameter("x", mgx.Shape.of(mgx.dtype.float32, [mgx.dim.symbol("n", 1, 64), 3]))
        for _ in range(times):
            x = graph.add(mgx.op(json.loads(data)["op"]), x)
        graph.add_return([x])
        return program

    def operators(self):
        return []


class Bound(Plain):
    """A frontend that handles one of the extents options itself."""

    def parse(self, path, dim_params=None):
        assert dim_params in (None, {"n": 4})
        return self.parse_buffer(b'{"op": "tanh"}')


class Any(Plain):
    """A frontend that accepts any option."""

    def parse_buffer(self, data, **options):
        assert options in ({}, {"signature": "s"})
        return super().parse_buffer(data)


class Named(Plain):
    """A frontend that names more results than there are."""

    def parse_buffer(self, data):
        program = super().parse_buffer(data)
        program.output_names = ["a", "b"]
        return program


class Unmade(Plain):
    def __init__(self):
        raise OSError("no library")


class Nothing(Plain):
    def parse(self, path):
        return None


class Bad(Plain):
    def parse(self, path):
        raise mgx.ParseError("line 3 is damaged")


@pytest.fixture
def frontends(monkeypatch):
    class Plugin:
        @hookimpl
        def frontends(self):
            named = {
                "toy": Plain,
                ".toyj": Plain,
                "json": Plain,
                "tar.gz": Plain,
                "bound": Bound,
                "any": Any,
                "named": Named,
            }
            named |= {"none": Nothing, "bad": Bad, "txt": Plain, "unmade": Unmade}
            return [Lazy(name, f"{__name__}:{made.__name__}") for name, made in named.items()]

    made = Plugins(discover=False)
    made.register(Plugin(), "toys")
    monkeypatch.setattr(plugins, "_manager", [made])


@pytest.fixture
def file(tmp_path, frontends):
    def write(name, text='{"op": "tanh"}'):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def dims(program):
    return program.get_parameter_shapes()["x"].dims


def test_by_extension_by_name_and_from_bytes(file):
    for name in ("m.toy", "m.TOY", "m.toyj", "a.b.tar.gz", "m.json", "m.txt"):
        assert [i.name for i in mgx.parse(file(name)).get_main_module()][1] == "tanh"
    assert mgx.parse(file("m.what"), "toy").get_output_names() == ["y"]
    assert mgx.parse(file("m.what"), "toyj").get_output_names() == ["y"]
    assert mgx.parse_buffer(b'{"op": "exp"}', "toy", default_dim_value=2).get_parameter_shapes()["x"].lens() == [2, 3]


def test_programs_of_our_own_come_first_and_are_recognized(file, tmp_path):
    program = mgx.parse(file("m.toy"))
    for form in ("json", "msgpack"):
        mgx.save(program, tmp_path / "own.json", form)
        assert reader_of(tmp_path / "own.json") == PROGRAM
        assert mgx.parse(tmp_path / "own.json", default_dim_value=5).get_parameter_shapes()["x"].lens() == [5, 3]
    (tmp_path / "own.txt").write_text(program.text(full=True))
    assert reader_of(tmp_path / "own.txt") == PROGRAM_TEXT
    assert mgx.parse(tmp_path / "own.txt", dim_params={"n": 7}).get_parameter_shapes()["x"].lens() == [7, 3]


def test_unknown_extension(file):
    with pytest.raises(
        mgx.UnsupportedError, match=r"m\.what.*\.toyj.*name the frontend that reads it.*--frontend NAME"
    ):
        mgx.parse(file("m.what"))


def test_files_whose_frontend_is_not_installed_name_its_package(file, tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    for name, package in (
        ("m.pb", "tf"),
        ("m.keras", "tf"),
        ("saved", "tf"),
        ("m.pt2", "torch"),
        ("m.tflite", "tflite"),
    ):
        with pytest.raises(mgx.MgxError, match=f"pip install mgx-{package}$"):
            mgx.parse(tmp_path / name)
    (tmp_path / "m.cpu").touch()  # the name of a target
    with pytest.raises(mgx.UnsupportedError, match="no frontend reads the extension"):
        mgx.parse(tmp_path / "m.cpu")


@pytest.mark.parametrize(
    ("options", "extents"),
    [
        ({"default_dim_value": 2}, "[2, 3]"),
        ({"dim_params": {"n": 4}}, "[4, 3]"),
        ({"dim_params": {"n": {"min": 2, "max": 8}}}, "[n, 3]"),
        ({"map_input_dims": {"x": [6, 3]}}, "[6, 3]"),
        ({"map_dyn_input_dims": {"x": [{"min": 1, "max": 9}, 3]}}, "[x_0, 3]"),
        ({"default_dyn_dim_value": [1, 9]}, "[n, 3]"),
        ({"times": 2}, "[n, 3]"),
    ],
)
def test_core_fixes_extents_that_a_frontend_does_not(file, options, extents):
    assert str(mgx.parse(file("m.toy"), **options).get_parameter_shapes()["x"]) == f"float32{extents}"


def test_a_frontend_receives_the_extents_options_that_it_accepts(file):
    assert str(mgx.parse(file("m.bound"), dim_params={"n": 4}).get_output_shapes()[0]) == "float32[n, 3]"
    assert str(mgx.parse(file("m.bound"), default_dim_value=4).get_output_shapes()[0]) == "float32[4, 3]"


def test_unknown_options(file):
    with pytest.raises(mgx.ParameterError, match=r"frontend 'toy' takes no option 'tmies'; did you mean 'times'"):
        mgx.parse(file("m.toy"), tmies=3)
    stored = file("m.mxr")
    mgx.save(mgx.parse(file("m.toy")), stored)
    with pytest.raises(mgx.ParameterError, match=r"a stored program .* takes no option 'times'"):
        mgx.parse(stored, times=3)
    for options in ({"map_input_dims": {"y": [1]}}, {"default_dim_value": 1, "default_dyn_dim_value": [1, 2]}):
        with pytest.raises(mgx.ParameterError):
            mgx.parse(file("m.toy"), **options)


def test_extents_are_not_lost_on_a_frontend_that_takes_any_option(file):
    assert dims(mgx.parse(file("m.any"), map_input_dims={"x": [5, 3]}, signature="s")) == (5, 3)
    with pytest.raises(mgx.ParameterError, match="'q'"):
        mgx.parse(file("m.any"), dim_params={"q": 5})


def test_a_name_for_each_result(file):
    with pytest.raises(
        mgx.PluginError,
        match=r"frontend 'named' returned an invalid program: .* got 2 output names \('a', 'b'\) for 1 res",
    ):
        mgx.parse(file("m.named"))
    program = mgx.Program(output_names=["a"])
    main = program.get_main_module()
    assert program.get_output_names() == ["a"]  # before there is a result
    x = main.add_parameter("x", mgx.Shape("float32", [2]))
    main.add_return([x, x])
    with pytest.raises(mgx.ParameterError, match=r"got 1 output names \('a'\) for 2 results"):
        mgx.optimize(program).get_output_names()


def test_errors_name_the_file(file):
    with pytest.raises(mgx.ParseError, match=r"file '.*m\.bad': line 3 is damaged"):
        mgx.parse(file("m.bad"))
    with pytest.raises(mgx.PluginError, match=r"file '.*m\.none': frontend 'none' must return a Program, got NoneType"):
        mgx.parse(file("m.none"))
    with pytest.raises(mgx.PluginError, match=r"file '.*m\.toy': frontend 'toy' failed: KeyError: 'op'"):
        mgx.parse(file("m.toy", "{}"))


@pytest.mark.parametrize(
    ("words", "extents"),
    [
        (["--batch", "2"], [2, 3]),
        (["--dim-param", "@n", "4"], [4, 3]),
        (["--input-dim", "@x", "5", "3"], [5, 3]),
        (["--dyn-input-dim", "@x", "[{min:1,max:8}, 3]"], ["x_0", 3]),
        (["--default-dyn-dim", "{min:1,max:8}"], ["n", 3]),
    ],
)
def test_every_extents_option_of_the_driver(file, words, extents):
    done = CliRunner().invoke(main, ["params", str(file("m.toy")), *words, "--json"])
    assert json.loads(done.output)["parameters"]["x"]["dims"] == extents


def test_the_driver_names_frontend_and_option(file):
    done = CliRunner().invoke(main, ["params", str(file("m.toy")), "--skip-unknown-operators"])
    assert done.exit_code == 2
    assert "frontend 'toy' takes no option --skip-unknown-operators" in done.output


def test_bytes_of_files(file):
    program = mgx.parse(b'{"op": "exp"}', "toy", default_dim_value=2)
    assert mgx.parse(bytearray(b'{"op": "exp"}'), "toy").get_parameter_shapes()["x"].rank == 2
    for data in (*(mgx.save_buffer(program, form) for form in ("msgpack", "json")), program.text(full=True).encode()):
        assert mgx.parse(data).get_parameter_shapes()["x"].lens() == [2, 3]
    with pytest.raises(
        mgx.ParameterError, match=r"parse got 3 bytes, which .* name the frontend .* parse\(data, \"NAME\"\)"
    ):
        mgx.parse(b"abc")


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        ("parse", None, "parse takes the path of a file, got None$"),
        ("parse", 3, "parse takes the path of a file, got a value of type int$"),
        ("parse", "", "parse takes the path of a file, got an empty one"),
        ("parse", io.BytesIO(b""), r"of type BytesIO; parse_buffer\(data, frontend\) takes .* the result of .read\(\)"),
        (
            "load",
            b"abc",
            "load takes the path of a file, got a value of type bytes; load_buffer takes the bytes of a file",
        ),
        ("load_buffer", "m.mxr", "load_buffer takes the bytes of a file, got 'm.mxr'; load takes a path"),
        (
            "parse_onnx_buffer",
            "m.onnx",
            "parse_buffer for frontend 'onnx' takes the bytes of a file, got 'm.onnx'; parse takes a",
        ),
        ("parse_onnx_buffer", io.BytesIO(b""), r"got a value of type BytesIO; pass the result of .read\(\)"),
        ("parse_program", None, "parse_program takes a program's text, got a value of type NoneType"),
    ],
)
def test_other_types_than_paths_and_bytes(call, given, said):
    with pytest.raises(mgx.ParameterError, match=said):
        getattr(mgx, call)(given)
    with pytest.raises(mgx.ParameterError, match="save takes the path of a file, got None"):
        mgx.Program().save(None)


def test_a_file_that_is_not_there(tmp_path, frontends):
    for name in ("model", "m.unknown", "m.toy", "m.txt"):
        with pytest.raises(mgx.ParseError, match=rf"{name}' cannot be read: No such file or directory"):
            mgx.parse(tmp_path / name)
    with pytest.raises(mgx.StoreError, match=r"m\.mxr: cannot be read: No such file or directory"):
        mgx.parse(tmp_path / "m.mxr")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that the system refuses to read")
@pytest.mark.parametrize("name", ["m.toy", "m.bad", "m.text"])
def test_files_that_cannot_be_read(tmp_path, frontends, name):
    (tmp_path / name).symlink_to("/proc/self/mem")
    with pytest.raises(mgx.MgxError, match=rf"'.*{name}'.* Input/output error"):
        mgx.parse(tmp_path / name)
    (tmp_path / "m").symlink_to("/proc/self/mem")
    with pytest.raises(mgx.ParseError, match=r"'.*m' cannot be read: Input/output error"):
        mgx.parse(tmp_path / "m")


@pytest.mark.parametrize("path", ["folder/" * 1000 + "m.text", "m" * 300 + ".toy"])
def test_paths_that_the_system_refuses(frontends, path):
    for one in (path, path.removesuffix(".text").removesuffix(".toy")):
        with pytest.raises(mgx.ParseError, match="cannot be read: File name too long"):
            mgx.parse(one)


@pytest.mark.parametrize("path", ["m\0.toy", "m\ud800.toy"])
def test_paths_that_no_file_can_have(frontends, path):
    for call in (
        mgx.parse,
        mgx.load,
        mgx.Program().save,
        mgx.Program().report,
        mgx.Argument([1.0]).save,
        mgx.Argument.load,
    ):
        with pytest.raises(mgx.ParameterError, match=r"takes the path of a file, which 'm.*toy' cannot be"):
            call(path)


class Typed(Plain):
    """A frontend whose signature has type annotations."""

    def parse_buffer(self, data, times: int = 1, fast: bool = False, weights: dict[str, float] | None = None):
        return super().parse_buffer(data, times)


class Recorded(Plain):
    """A frontend with a record of options."""

    @dataclasses.dataclass
    class Options:
        size: float = 1.0
        names: Sequence[str] = ()
        mode: Literal["a", "b"] = "a"
        folder: str | os.PathLike[str] | None = None
        dims: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)

    options = Options

    def parse_buffer(self, data, **options):
        return super().parse_buffer(data)


@pytest.mark.parametrize(
    ("frontend", "given", "wanted"),
    [
        (Typed, {"times": "2"}, "times must be an int, got '2'"),
        (Typed, {"times": True}, "times must be an int, got True"),
        (Typed, {"fast": "no"}, "fast must be true or false, got 'no'"),
        (Typed, {"fast": 2}, "fast must be true or false, got 2"),
        (Typed, {"weights": {"a": "b"}}, "weights must be a mapping by name of numbers or None, got {'a': 'b'}"),
        (Recorded, {"size": "big"}, "size must be a number, got 'big'"),
        (Recorded, {"names": "xy"}, "names must be a list of strings, got 'xy'"),
        (Recorded, {"names": [1]}, "names must be a list of strings, got [1]"),
        (Recorded, {"mode": "c"}, "mode must be one of 'a', 'b', got 'c'"),
        (Recorded, {"folder": 3}, "folder must be a string or a path or None, got 3"),
        (Recorded, {"dims": {"x": 3}}, "dims must be a mapping by name of lists, got {'x': 3}"),
        (Typed, {"default_dim_value": "3"}, "default_dim_value must be an int, got '3'"),
        (Typed, {"default_dyn_dim_value": 2.5}, "default_dyn_dim_value must be an int or a range, got 2.5"),
        (Typed, {"map_dyn_input_dims": {"x": ["a"]}}, "map_dyn_input_dims['x'] must be an int or a range, got 'a'"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_options_name(monkeypatch, frontend, given, wanted):
    monkeypatch.setattr("mgx_core.parsing.frontend_of", lambda name: frontend())
    with pytest.raises(mgx.ParameterError, match=re.escape(wanted)):
        mgx.parse_buffer(b'{"op": "tanh"}', "toy", **given)


@pytest.mark.parametrize(
    ("frontend", "given"),
    [
        (Typed, {"times": np.int32(2), "fast": 1, "weights": {"a": 1, "b": 0.5}}),
        (Recorded, {"size": 2, "names": ("a",), "mode": "b", "folder": Path("x"), "dims": {"x": np.array([1, 2])}}),
    ],
)
def test_values_of_the_declared_types_are_accepted(monkeypatch, frontend, given):
    monkeypatch.setattr("mgx_core.parsing.frontend_of", lambda name: frontend())
    assert mgx.parse_buffer(b'{"op": "tanh"}', "toy", **given).get_output_names() == ["y"]


def test_an_option_that_a_parser_forwards_is_rejected_likewise(tmp_path, monkeypatch):
    (tmp_path / "m.toy").write_bytes(b'{"op": "tanh"}')
    monkeypatch.setattr("mgx_core.parsing.frontend_of", lambda name: Typed())
    with pytest.raises(mgx.ParameterError, match="frontend 'toy': times must be an int, got '2'"):
        mgx.parse(tmp_path / "m.toy", "toy", times="2")


def test_extents_of_another_type_are_refused_for_our_own_files():
    text = Plain().parse_buffer(b'{"op": "tanh"}').text(full=True).encode()
    with pytest.raises(mgx.ParameterError, match="a program as text: default_dim_value must be an int, got 'x'"):
        mgx.parse(text, default_dim_value="x")


def test_text_of_another_encoding_is_refused(tmp_path):
    text = b"module main  # \xe9"
    (tmp_path / "m.txt").write_bytes(text)
    for source in (text, tmp_path / "m.txt"):
        with pytest.raises(mgx.ParseError, match="a program as text must be UTF-8, got byte 15 as 0xe9"):
            mgx.parse(source)


def test_operators_of_a_frontend_that_cannot_be_made(frontends):
    assert frontend_operators("toy") == []
    with pytest.raises(mgx.PluginError, match="frontend 'unmade' could not be created: OSError: no library"):
        frontend_operators("unmade")
