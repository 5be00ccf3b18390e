"""The functions that people call: thin wrappers over the plugin manager, the compiler and the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from .errors import ParameterError
from .garbage import rarer_collections
from .ops.operation import Operation
from .ops.opset import OpSet
from .options import CompileOptions
from .parsing import frontend_of, parse, parse_buffer
from .plugins.operations import make_op
from .program import Program

__all__ = [
    "best_target", "frontend_operators", "get_onnx_operators", "get_target", "get_tf_operators", "load", "load_buffer",
    "make_op", "op", "optimize", "parse_onnx", "parse_onnx_buffer", "parse_program", "parse_tf", "parse_tf_buffer",
    "save", "save_buffer",
]  # fmt: skip


def get_target(name: str) -> Any:
    """Returns the target called `name` (``ref``, ``cpu``, ``gpu``, or any other that is installed).

    Errors: UnsupportedError if no installed package brings it, saying what to install; PluginError if its package is broken.
    """
    from .plugins.manager import manager

    return manager().target(name)


def best_target() -> str:
    """Returns the name of the best installed target that can work on this machine.  Errors: UnsupportedError if there is none."""
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
    """Returns a program from an ONNX file; options are those of MIGraphX (``map_input_dims``, ``dim_params``, ...).

    Errors: ParseError for damaged files; UnsupportedError for operators that nothing converts, or without the package mgx-onnx.
    """
    return parse(path, "onnx", **options)


def parse_onnx_buffer(data: bytes, **options: Any) -> Program:
    """Returns a program from the bytes of an ONNX file; see `parse_onnx`."""
    return parse_buffer(data, "onnx", **options)


def get_onnx_operators() -> list[str]:
    """Returns names of the ONNX operators that `parse_onnx` knows."""
    return frontend_operators("onnx")


def parse_tf(
    filename: Any,
    is_nhwc: bool = True,
    batch_size: int = 1,
    map_input_dims: Mapping[str, Sequence[int]] | None = None,
    output_names: Sequence[str] = (),
    **options: Any,
) -> Program:
    """A program from a frozen graph or a SavedModel's folder, in MIGraphX's call form: extents left open become `batch_size`.

    `parse` keeps them symbolic.  Errors: as `parse`; UnsupportedError without the package mgx-tf.
    """
    return parse(filename, "tf", **_tf_options(is_nhwc, batch_size, map_input_dims, output_names), **options)


def parse_tf_buffer(
    data: bytes,
    is_nhwc: bool = True,
    batch_size: int = 1,
    map_input_dims: Mapping[str, Sequence[int]] | None = None,
    output_names: Sequence[str] = (),
    **options: Any,
) -> Program:
    """Returns a program from the bytes of a frozen graph; see `parse_tf`."""
    return parse_buffer(data, "tf", **_tf_options(is_nhwc, batch_size, map_input_dims, output_names), **options)


def _tf_options(
    is_nhwc: bool, batch_size: int, map_input_dims: Mapping[str, Sequence[int]] | None, output_names: Sequence[str]
) -> dict[str, Any]:
    dims = dict(map_input_dims or {})
    return {"is_nhwc": is_nhwc, "batch_size": batch_size, "map_input_dims": dims, "output_names": list(output_names)}


def get_tf_operators() -> list[str]:
    """Returns names of the TensorFlow operators that `parse_tf` knows."""
    return frontend_operators("tf")


def frontend_operators(name: str) -> list[str]:
    """Returns names of the operators that a frontend knows."""
    return frontend_of(name).operators()


def parse_program(text: str, opset: OpSet | None = None) -> Program:
    """Returns a program from its text form (`Program.text`, with ``full=True`` where literals are large).

    opset: the ops that may occur; by default the standard ones and those of all plugins.
    Errors: ParseError with the line's number, what was expected and what was got; UnsupportedError for unknown ops.
    """
    from .ir.text.parser import parse_graph
    from .plugins.manager import manager

    if not isinstance(text, str):
        raise ParameterError(f"parse_program takes a program's text, got a value of type {type(text).__name__}")
    return Program(parse_graph(text, manager().opset() if opset is None else opset))


def optimize(
    program: Program, options: CompileOptions | Mapping[str, Any] | None = None, /, **keywords: Any
) -> Program:
    """Returns a copy of the program with the target-independent passes applied."""
    from .compile.stages import optimize_module

    copy = program.clone()
    optimize_module(copy.get_main_module(), CompileOptions.of(options, **keywords))
    return copy


def save(program: Program, path: Any, format: str = "msgpack") -> None:
    """Writes a program, compiled or not, to a file (``msgpack`` or ``json``)."""
    from . import store

    store.save(program, path, format)


@rarer_collections()
def load(path: Any, format: str = "msgpack", *, trust: bool | None = None, check: bool = False) -> Program:
    """Reads a program that `save` wrote; which of the formats it has is recognised by itself.

    check: verify the checksums of all literals too, which reads the whole file.
    trust: whether compiled code may be taken from the file (None: if the same user wrote it).
    Errors: StoreError for damaged files and for files of a newer mgx.
    """
    from . import store

    store.check_format(format)
    return Program.loaded(store.load(path, check, trust))


def save_buffer(program: Program, format: str = "msgpack") -> bytes:
    """Returns a program as the bytes of its file (``msgpack`` or ``json``)."""
    from . import store

    return store.save_buffer(program, format)


@rarer_collections()
def load_buffer(data: bytes, *, trust: bool | None = None) -> Program:
    """Returns a program from bytes; see `load`.  Errors: StoreError."""
    from . import store

    return Program.loaded(store.load_buffer(data, trust))
