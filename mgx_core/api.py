"""Top-level functions of the public interface: thin wrappers of the plugin manager, the frontends and the compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from .errors import ParameterError
from .ops.operation import Operation
from .ops.opset import OpSet
from .options import CompileOptions
from .parsing import frontend_of, parse, parse_buffer
from .plugins.operations import make_op
from .program import Program

__all__ = [
    "best_target", "frontend_operators", "get_onnx_operators", "get_target", "get_tf_operators", "make_op", "op",
    "optimize", "parse_onnx", "parse_onnx_buffer", "parse_program", "parse_tf", "parse_tf_buffer",
]  # fmt: skip


def get_target(name: str) -> Any:
    """Returns a target by name (``ref``, ``cpu``, ``gpu`` or any other that is installed).

    Errors: UnsupportedError if it is not installed, with the package to install; PluginError if its package is broken.
    """
    from .plugins.manager import manager

    return manager().target(name)


def best_target() -> str:
    """Returns the name of the best installed target for this machine.  Errors: UnsupportedError if there is none."""
    from .plugins.manager import manager

    return manager().best_target()


class OpMaker:
    """`make_op` in MIGraphX's form, ``op("pooling", mode=op.pooling_mode.max)``, with its two enumerations."""

    pooling_mode: Final = SimpleNamespace(average="average", max="max", lpnorm="lpnorm")
    rnn_direction: Final = SimpleNamespace(forward="forward", reverse="reverse", bidirectional="bidirectional")

    def __call__(self, name: str, /, **attributes: Any) -> Operation:
        return make_op(name, **attributes)


op: Final = OpMaker()


def parse_onnx(path: Any, **options: Any) -> Program:
    """Parses an ONNX file; options are those of MIGraphX (``map_input_dims``, ``dim_params``, ...).

    Errors: ParseError for corrupt files; UnsupportedError for unsupported operators, or without the package mgx-onnx.
    """
    return parse(path, "onnx", **options)


def parse_onnx_buffer(data: bytes, **options: Any) -> Program:
    """Parses the contents of an ONNX file; see `parse_onnx`."""
    return parse_buffer(data, "onnx", **options)


def get_onnx_operators() -> list[str]:
    """Returns the names of the ONNX operators that `parse_onnx` supports."""
    return frontend_operators("onnx")


def parse_tf(
    filename: Any,
    is_nhwc: bool = True,
    batch_size: int = 1,
    map_input_dims: Mapping[str, Sequence[int]] | None = None,
    output_names: Sequence[str] = (),
    **options: Any,
) -> Program:
    """Parses a frozen graph or the folder of a SavedModel, like MIGraphX's function: unknown extents become `batch_size`.

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
    """Parses the contents of a frozen graph; see `parse_tf`."""
    return parse_buffer(data, "tf", **_tf_options(is_nhwc, batch_size, map_input_dims, output_names), **options)


def _tf_options(
    is_nhwc: bool, batch_size: int, map_input_dims: Mapping[str, Sequence[int]] | None, output_names: Sequence[str]
) -> dict[str, Any]:
    dims = dict(map_input_dims or {})
    return {"is_nhwc": is_nhwc, "batch_size": batch_size, "map_input_dims": dims, "output_names": list(output_names)}


def get_tf_operators() -> list[str]:
    """Returns the names of the TensorFlow operators that `parse_tf` supports."""
    return frontend_operators("tf")


def frontend_operators(name: str) -> list[str]:
    """Returns the names of the operators that a frontend supports."""
    return frontend_of(name).operators()


def parse_program(text: str, opset: OpSet | None = None) -> Program:
    """Parses the text form of a program (`Program.text`; large literals require ``full=True``).

    opset: the known ops; default: the standard ones and those of all plugins.
    Errors: ParseError with the line number, the expected and the actual text; UnsupportedError for unknown ops.
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
