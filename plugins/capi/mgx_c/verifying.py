"""Functions that compare programs with the reference, named as in the header without ``migraphx_``."""

from __future__ import annotations

from migraphx import (
    argument,
    compile_modes,
    program,
    program_verify_mode,
    program_verify_options,
    program_verify_precision,
    target,
)
from migraphx.verifying import Compared, Verified

from .handles import HandleError, element
from .options import CompileOptions

Options = program_verify_options


def program_verify_options_create() -> Options:
    return program_verify_options()


def program_verify_options_set_compile_options(options: Options, given: CompileOptions) -> None:
    for name in ("offload_copy", "fast_math", "exhaustive_tune"):
        setattr(options, name, getattr(given, name))
    options.compile_mode = compile_modes(given.compile_mode)


def program_verify_options_set_rms_tolerance(options: Options, value: float) -> None:
    options.rms_tol = value


def program_verify_options_set_absolute_tolerance(options: Options, value: float) -> None:
    options.atol = value


def program_verify_options_set_relative_tolerance(options: Options, value: float) -> None:
    options.rtol = value


def program_verify_options_set_precision(options: Options, value: int) -> None:
    options.precision = program_verify_precision(value)


def program_verify_options_set_ref_use_double(options: Options, value: bool) -> None:
    options.ref_use_double = value


def program_verify_options_set_compiled_model(options: Options, filename: str | None) -> None:
    options.compiled_model = _given(filename, "the name of a file")


def program_verify_options_set_name(options: Options, name: str | None) -> None:
    options.name = _given(name, "a name")


def _given(text: str | None, what: str) -> str:
    if text is None:
        raise HandleError(f"{what} is required, got null")
    return text


def program_verify(on: program, where: target, mode: int, values: dict[str, argument], options: Options) -> Verified:
    return on.verify(where, program_verify_mode(mode), values, options)


def program_verify_result_passed(result: Verified) -> bool:
    return result.passed()


def program_verify_result_get_mode(result: Verified) -> int:
    return int(result.mode.value)


def program_verify_result_has_failure_step(result: Verified) -> bool:
    return result.failure_step is not None


def program_verify_result_get_failure_step(result: Verified) -> int:
    """Returns the index of the first instruction that differs.  Errors: LookupError if none does."""
    if result.failure_step is None:
        raise LookupError("no instruction differs: call has_failure_step first")
    return result.failure_step


def program_verify_result_size(result: Verified) -> int:
    return len(result.results)


def program_verify_result_get(result: Verified, index: int) -> Compared:
    return element(result.results, index)


def program_verify_layer_get_name(layer: Compared) -> str:
    return layer.name


def program_verify_layer_get_operator(layer: Compared) -> str:
    return layer.operator


def program_verify_layer_get_message(layer: Compared) -> str:
    return layer.message


def program_verify_layer_get_index(layer: Compared) -> int:
    return layer.index


def program_verify_layer_get_rms_error(layer: Compared) -> float:
    return layer.rms_error


def program_verify_layer_passed(layer: Compared) -> bool:
    return layer.passed


def program_verify_layer_threw_exception(layer: Compared) -> bool:
    return layer.exception
