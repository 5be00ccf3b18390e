"""Functions on option records, named as in the header without ``migraphx_``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

from migraphx import argument, compile_modes

Options = dict[str, Any]


class CompileOptions(ctypes.Structure):
    """The struct of `migraphx/compile_options.hpp`, located at its handle's address."""

    _fields_: ClassVar = [
        *((n, ctypes.c_bool) for n in ("offload_copy", "fast_math", "exhaustive_tune")),
        ("compile_mode", ctypes.c_int),
    ]
    offload_copy: bool
    fast_math: bool
    exhaustive_tune: bool
    compile_mode: int


def onnx_options_create() -> Options:
    return {"map_input_dims": {}, "map_dyn_input_dims": {}}


def onnx_options_set_input_parameter_shape(options: Options, name: str, dims: Sequence[int]) -> None:
    options["map_input_dims"][name] = list(dims)


def onnx_options_set_dyn_input_parameter_shape(options: Options, name: str, dims: Sequence[Any]) -> None:
    options["map_dyn_input_dims"][name] = list(dims)


def onnx_options_set_default_dim_value(options: Options, value: int) -> None:
    options["default_dim_value"] = value


def onnx_options_set_default_dyn_dim_value(options: Options, value: Any) -> None:
    options["default_dyn_dim_value"] = value


def onnx_options_set_default_loop_iterations(options: Options, value: int) -> None:
    options["max_loop_iterations"] = value


def onnx_options_set_limit_loop_iterations(options: Options, value: int) -> None:
    options["limit_max_iterations"] = value


def onnx_options_set_external_data_path(options: Options, path: str) -> None:
    options["external_data_path"] = path


def onnx_options_set_use_debug_symbols(options: Options, value: bool) -> None:
    options["use_debug_symbols"] = value


def tf_options_create() -> Options:
    return {"map_input_dims": {}, "is_nhwc": False}


def tf_options_set_nhwc(options: Options, value: bool) -> None:
    options["is_nhwc"] = value


def tf_options_set_input_parameter_shape(options: Options, name: str, dims: Sequence[int]) -> None:
    options["map_input_dims"][name] = list(dims)


def tf_options_set_default_dim_value(options: Options, value: int) -> None:
    options["batch_size"] = value


def tf_options_set_output_names(options: Options, names: Sequence[str]) -> None:
    options["output_names"] = list(names)


def file_options_create() -> Options:
    return {"format": "msgpack"}


def file_options_set_file_format(options: Options, name: str) -> None:
    options["format"] = name


def compile_options_create() -> CompileOptions:
    return CompileOptions(
        offload_copy=False, fast_math=True, exhaustive_tune=False, compile_mode=compile_modes.balanced.value
    )


def compile_options_set_offload_copy(options: CompileOptions, value: bool) -> None:
    options.offload_copy = value


def compile_options_set_fast_math(options: CompileOptions, value: bool) -> None:
    options.fast_math = value


def compile_options_set_exhaustive_tune_flag(options: CompileOptions, value: bool) -> None:
    options.exhaustive_tune = value


def compile_options_set_compile_mode(options: CompileOptions, value: int) -> None:
    options.compile_mode = min((m.value for m in compile_modes), key=lambda mode: abs(mode - value))


def quantize_op_names_create() -> list[str]:
    return []


def quantize_op_names_add(names: list[str], name: str) -> None:
    names.append(name)


def quantize_int8_options_create() -> Options:
    return {"calibration": [], "ins_names": []}


def quantize_int8_options_add_op_name(options: Options, name: str) -> None:
    options["ins_names"].append(name)


def quantize_int8_options_add_calibration_data(options: Options, data: dict[str, argument]) -> None:
    options["calibration"].append(dict(data))


def quantize_fp8_options_create() -> Options:
    return {"calibration": []}


def quantize_fp8_options_add_calibration_data(options: Options, data: dict[str, argument]) -> None:
    options["calibration"].append(dict(data))
