"""The functions that people call: thin doors to the plugin manager, the compiler and the store."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from .ops.operation import Operation, OpSet
from .options import CompileOptions
from .parsing import parse, parse_buffer
from .plugins.operations import make_op
from .program import Program

__all__ = [
    "best_target",
    "get_onnx_operators",
    "get_target",
    "load",
    "load_buffer",
    "make_op",
    "op",
    "optimize",
    "parse_onnx",
    "parse_onnx_buffer",
    "parse_program",
    "save",
    "save_buffer",
]


def get_target(name: str) -> Any:
    """The target called `name` (``ref``, ``cpu``, ``gpu``, or any other that is installed).

    Errors: UnsupportedError if no installed package brings it, saying what to install; PluginError if its package is broken.
    """
    from .plugins.manager import manager

    return manager().target(name)


def best_target() -> str:
    """The name of the best installed target that can work on this machine.  Errors: UnsupportedError if there is none."""
    from .plugins.manager import manager

    return manager().best_target()


class OpMaker:
    """`make_op` as MIGraphX's users call it, ``op("pooling", mode=op.pooling_mode.max)``, with its two enumerations."""

    pooling_mode: Final = SimpleNamespace(average="average", max="max", lpnorm="lpnorm")
    rnn_direction: Final = SimpleNamespace(forward="forward", reverse="reverse", bidirectional="bidirectional")

    def __call__(self, name: str, /, **attributes: Any) -> Operation:
        return make_op(name, **attributes)


op: Final = OpMaker()


def parse_onnx(path: Any, **options: Any) -> Program:
    """A program from an ONNX file; options are those of MIGraphX (``map_input_dims``, ``dim_params``, ...).

    Errors: ParseError for damaged files; UnsupportedError for operators that nothing converts, or without the package mgx-onnx.
    """
    return parse(path, "onnx", **options)


def parse_onnx_buffer(data: bytes, **options: Any) -> Program:
    """A program from the bytes of an ONNX file; see `parse_onnx`."""
    return parse_buffer(data, "onnx", **options)


def get_onnx_operators() -> list[str]:
    """Names of the ONNX operators that `parse_onnx` knows."""
    from .plugins.manager import manager

    names: list[str] = manager().load("frontends", "onnx")().operators()
    return names


def parse_program(text: str, opset: OpSet | None = None) -> Program:
    """A program from its text form (`Program.text`, with ``full=True`` where literals are large).

    opset: the ops that may occur; by default the standard ones and those of all plugins.
    Errors: ParseError with the line's number, what was expected and what was got; UnsupportedError for unknown ops.
    """
    from .ir.text.parser import parse_graph
    from .plugins.manager import manager

    return Program(parse_graph(text, manager().opset() if opset is None else opset))


def optimize(
    program: Program, options: CompileOptions | Mapping[str, Any] | None = None, /, **keywords: Any
) -> Program:
    """A copy of the program with the target-independent passes applied."""
    from .compile.stages import optimize_module

    copy = program.clone()
    optimize_module(copy.get_main_module(), CompileOptions.of(options, **keywords))
    return copy


def save(program: Program, path: Any, format: str = "msgpack") -> None:
    """Write a program, compiled or not, to a file (``msgpack`` or ``json``)."""
    from . import store

    store.save(program, path, format)


def load(path: Any, format: str = "msgpack", *, trust: bool | None = None, check: bool = False) -> Program:
    """Read a program that `save` wrote; the format is recognised by itself.

    check: verify the checksums of all literals too, which reads the whole file.
    trust: whether compiled code may be taken from the file (None: if the same user wrote it).
    Errors: StoreError for damaged files and for files of a newer mgx.
    """
    from . import store

    return Program.loaded(store.load(path, check, trust))


def save_buffer(program: Program, format: str = "msgpack") -> bytes:
    """A program as the bytes of its file (``msgpack`` or ``json``)."""
    from . import store

    return store.save_buffer(program, format)


def load_buffer(data: bytes, *, trust: bool | None = None) -> Program:
    """A program from bytes; see `load`.  Errors: StoreError."""
    from . import store

    return Program.loaded(store.load_buffer(data, trust))
