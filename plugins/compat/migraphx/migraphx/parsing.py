"""`migraphx.parse_onnx` and related functions: the core's parsers with MIGraphX's signatures and defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import mgx_core as mgx
from mgx_core import DynamicDimension, ParameterError
from mgx_core.log import showing

from .environment import shown
from .programs import of_program, program
from .rule_names import with_core_rules

__all__ = [
    "get_onnx_operators",
    "load",
    "load_buffer",
    "optimize",
    "parse_onnx",
    "parse_onnx_buffer",
    "save",
    "save_buffer",
]

ONE: Final = DynamicDimension(1, 1)  # the value of unknown dimensions
NONE: Final[Mapping[str, Any]] = {}


def parse_onnx(
    filename: Any,
    default_dim_value: int = 0,
    default_dyn_dim_value: Any = ONE,
    dim_params: Mapping[str, Any] = NONE,
    map_input_dims: Mapping[str, Sequence[int]] = NONE,
    map_dyn_input_dims: Mapping[str, Sequence[Any]] = NONE,
    skip_unknown_operators: bool = False,
    print_program_on_error: bool = False,
    max_loop_iterations: int = 10,
    limit_max_iterations: int = 65535,
    use_debug_symbols: bool = False,
    use_symbolic_shapes: bool = False,
    **others: Any,
) -> program:
    """Parses an ONNX file; unknown dimensions become 1 unless an option overrides them.

    use_debug_symbols: node names become debug symbols of their instructions; use_symbolic_shapes: unknown dimensions are
    expressions of their names instead of ranges; others: unify_prefill_decode or split_prefill_decode, for a module for one token
    and one for the longest prompt (`prefill_decode`).
    Errors: ParseError for corrupt files; UnsupportedError for operators without a converter.
    """
    extent = _extent(default_dim_value, default_dyn_dim_value)

    def parse(dim_params: Mapping[str, Any]) -> mgx.Program:
        return mgx.parse_onnx(
            filename,
            **extent,
            dim_params=dim_params,
            map_input_dims=map_input_dims,
            map_dyn_input_dims=map_dyn_input_dims,
            skip_unknown_operators=skip_unknown_operators,
            print_program_on_error=print_program_on_error,
            max_loop_iterations=max_loop_iterations,
            limit_max_iterations=limit_max_iterations,
            use_dyn_output=False,
            use_symbolic_shapes=use_symbolic_shapes,
        )

    return _read(_parsed("parse_onnx", parse, dim_params, others), use_debug_symbols)


def parse_onnx_buffer(
    filename: bytes,
    default_dim_value: int = 0,
    default_dyn_dim_value: Any = ONE,
    map_input_dims: Mapping[str, Sequence[int]] = NONE,
    map_dyn_input_dims: Mapping[str, Sequence[Any]] = NONE,
    skip_unknown_operators: bool = False,
    print_program_on_error: bool = False,
    external_data_path: Any = "",
    use_debug_symbols: bool = False,
    dim_params: Mapping[str, Any] = NONE,
    use_symbolic_shapes: bool = False,
    **others: Any,
) -> program:
    """Parses a serialized ONNX model; see `parse_onnx`."""
    extent = _extent(default_dim_value, default_dyn_dim_value)

    def parse(dim_params: Mapping[str, Any]) -> mgx.Program:
        return mgx.parse_onnx_buffer(
            filename,
            **extent,
            map_input_dims=map_input_dims,
            map_dyn_input_dims=map_dyn_input_dims,
            skip_unknown_operators=skip_unknown_operators,
            print_program_on_error=print_program_on_error,
            external_data_path=external_data_path,
            use_dyn_output=False,
            dim_params=dim_params,
            use_symbolic_shapes=use_symbolic_shapes,
        )

    return _read(_parsed("parse_onnx_buffer", parse, dim_params, others), use_debug_symbols)


def _parsed(
    function: str, parse: Callable[..., mgx.Program], dim_params: Mapping[str, Any], others: Mapping[str, Any]
) -> mgx.Program:
    """Returns the program, or one with two sequence lengths if requested by `others`.  Errors: TypeError for other options."""
    from .prefill_decode import OPTIONS, with_two_lengths

    for name in others:
        if name not in OPTIONS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    asked = [name for name, on in others.items() if on]
    return with_two_lengths(asked[0], dim_params, parse) if asked else parse(dim_params)


def _read(made: mgx.Program, use_debug_symbols: bool) -> program:
    if use_debug_symbols:
        from .debug_symbols import show_sources

        show_sources(made)
    return of_program(made)


def _extent(default_dim_value: int, default_dyn_dim_value: Any) -> dict[str, Any]:
    """Returns whichever of the two options applies."""
    span = DynamicDimension.of(default_dyn_dim_value)
    if default_dim_value and span != ONE:
        raise ParameterError("default_dim_value and default_dyn_dim_value are mutually exclusive")
    if default_dim_value or span.min == span.max > 0:  # a default_dim_value of 0 keeps extents symbolic
        return {"default_dim_value": default_dim_value or span.min}
    return {"default_dyn_dim_value": span}


def parse_tf(
    filename: Any,
    is_nhwc: bool = True,
    batch_size: int = 1,
    map_input_dims: Mapping[str, Sequence[int]] = NONE,
    output_names: Sequence[str] = (),
) -> program:
    """Parses a frozen TensorFlow graph.

    is_nhwc: images (parameters and results of 4 axes) are NHWC in the graph, and NCHW in the program and in map_input_dims.
    Errors: UnsupportedError if no TensorFlow frontend is installed.
    """
    return of_program(
        mgx.parse(
            filename,
            "tf",
            channels_first=is_nhwc,
            batch_size=batch_size,
            map_input_dims=map_input_dims,
            output_names=list(output_names),
        )
    )


def get_onnx_operators() -> list[str]:
    return mgx.get_onnx_operators()


def optimize(model: program, options: Mapping[str, Any] | None = None) -> program:
    """Returns a copy of a program after the target-independent passes."""
    return of_program(mgx.optimize(model.core, with_core_rules(options)))


def load(filename: Any, format: str = "msgpack") -> program:
    """Loads a program file of mgx, or one that MIGraphX saved before compilation."""
    from mgx_core.store import check_format

    from .stored_programs import is_stored, read_stored

    check_format(format)
    where = Path(filename)
    if where.is_file():
        with where.open("rb") as file:
            foreign = is_stored(file.read(64))
        if foreign:
            return read_stored(where.read_bytes(), where)
    with showing(shown(os.environ)):
        return of_program(mgx.load(filename, format))


def save(p: program, filename: Any, format: str = "msgpack") -> None:
    mgx.save(p.core, filename, format)


def save_buffer(p: program, format: str = "msgpack") -> bytes:
    return mgx.save_buffer(p.core, format)


def load_buffer(b: bytes, format: str = "msgpack") -> program:
    """Loads a program from the bytes of a file; see `load`."""
    from mgx_core.store import check_format

    from .stored_programs import is_stored, read_stored

    check_format(format)
    if is_stored(bytes(b[:64])):
        return read_stored(bytes(b))
    with showing(shown(os.environ)):
        return of_program(mgx.load_buffer(b))
