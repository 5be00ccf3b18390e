"""Functions on programs and modules, named as in the header without ``migraphx_``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core
import migraphx
from migraphx import argument, instruction_ref, module, op, program, shape
from migraphx.programs import of_program

from .attributes import read
from .calls import SUCCESS, Calls
from .custom_operators import CustomOperators
from .handles import element
from .options import CompileOptions

__all__ = ["Programs"]

Parameters = dict[str, argument]


class Programs:
    """The functions, and the C calls that they use to print text and to invoke callbacks."""

    def __init__(self, calls: Calls, operators: CustomOperators) -> None:
        self._calls, self._operators = calls, operators

    def _print(self, text: object) -> None:
        """Writes to C's stdout, so that output is in order with the program's own."""
        self._calls.lib.fputs_out(f"{text}\n".encode())

    def operation_create(self, name: str, attributes: str | None) -> Any:
        return self._operators.operation(name) or op(name, **read(attributes))

    def operation_name(self, given: op) -> str:
        return given.name()

    def instructions_create(self, instructions: Sequence[instruction_ref]) -> list[instruction_ref]:
        return list(instructions)

    def modules_create(self, modules: Sequence[module]) -> list[module]:
        return list(modules)

    def module_create(self, name: str) -> module:
        made: module = program().create_module(name)
        return made

    def module_print(self, given: module) -> None:
        self._print(given)

    def module_add_instruction(self, given: module, operation: op, args: Sequence[instruction_ref]) -> instruction_ref:
        return given.add_instruction(operation, args)

    def module_add_instruction_with_mod_args(
        self, given: module, operation: op, args: Sequence[instruction_ref], modules: Sequence[module]
    ) -> instruction_ref:
        return given.add_instruction(operation, args, modules)

    def module_add_literal(self, given: module, of: shape, buffer: int) -> instruction_ref:
        return given.add_literal(argument(np.array(migraphx.argument_from_pointer(of, buffer))))

    def module_add_parameter(self, given: module, name: str, of: shape) -> instruction_ref:
        return given.add_parameter(name, of)

    def module_add_return(self, given: module, args: Sequence[instruction_ref]) -> instruction_ref:
        return given.add_return(args)

    def module_add_allocation(self, given: module, of: shape) -> instruction_ref:
        return given.add_instruction(op("allocate", shape=of), [])

    def program_create(self) -> program:
        return program()

    def program_get_main_module(self, given: program) -> module:
        return given.get_main_module()

    def program_create_module(self, given: program, name: str) -> module:
        return given.create_module(name)

    def program_compile(self, given: program, target: Any, options: CompileOptions) -> None:
        mode = migraphx.compile_modes(options.compile_mode)
        given.compile(target, options.offload_copy, options.fast_math, options.exhaustive_tune, mode)

    def program_get_parameter_shapes(self, given: program) -> dict[str, shape]:
        return given.get_parameter_shapes()

    def program_get_output_shapes(self, given: program) -> list[shape]:
        return given.get_output_shapes()

    def program_print(self, given: program) -> None:
        self._print(given)

    def program_sort(self, given: program) -> None:
        given.sort()

    def program_write_netron_output(self, given: program, name: str) -> None:
        given.write_netron_output(name)

    def program_run(self, given: program, parameters: Parameters) -> list[argument]:
        return given.run(parameters)

    def program_run_async(self, given: program, parameters: Parameters, stream: Any, name: str) -> list[argument]:
        return given.run_async(parameters, self._calls.address(stream), name)

    def program_run_trace(self, given: program, parameters: Parameters, callback: Any, data: Any) -> list[argument]:
        calls, numbers = self._calls, iter(range(1 << 62))

        def traced(instruction: instruction_ref, value: argument) -> None:
            info = calls.handles.new("trace_info", (next(numbers), instruction.name(), value))
            try:
                status = callback(calls.ffi.cast("migraphx_trace_info_t", info.address), data)
            finally:
                calls.handles.destroy(info.address, "trace_info")
            if status != SUCCESS:
                raise RuntimeError(f"the callback of a traced run returned status {status} at {instruction}")

        return given.run_trace(parameters, traced)

    def program_equal(self, one: program, other: program) -> bool:
        return one == other

    def program_experimental_get_context(self, given: program) -> Any:
        executable = given.core.executable
        if executable is None:
            raise ValueError("a compiled program is required: call compile first")
        return executable.context

    def trace_info_create(self) -> tuple[int, str, argument]:
        return 0, "", migraphx.fill_argument(shape(), 0)

    def trace_info_get_index(self, info: tuple[int, str, argument]) -> int:
        return info[0]

    def trace_info_get_name(self, info: tuple[int, str, argument]) -> str:
        return info[1]

    def trace_info_get_result(self, info: tuple[int, str, argument]) -> argument:
        return info[2]

    def context_finish(self, context: Any) -> None:
        context.finish()

    def context_get_queue(self, context: Any) -> Any:
        return self._calls.ffi.cast("void*", context.queue)

    def load(self, name: str, options: dict[str, Any]) -> program:
        return migraphx.load(name, **options)

    def save(self, given: program, name: str, options: dict[str, Any]) -> None:
        migraphx.save(given, name, **options)

    def parse_onnx(self, name: str, options: dict[str, Any]) -> program:
        folder = options.get("external_data_path")
        if folder is None:
            return migraphx.parse_onnx(name, **options)
        return migraphx.parse_onnx_buffer(Path(name).read_bytes(), **options)

    def parse_onnx_buffer(self, data: bytes, options: dict[str, Any]) -> program:
        return migraphx.parse_onnx_buffer(data, **options)

    def parse_tf(self, name: str, options: dict[str, Any]) -> program:
        return migraphx.parse_tf(name, **options)

    def parse_tf_buffer(self, data: bytes, options: dict[str, Any]) -> program:
        return of_program(mgx_core.parse_tf_buffer(data, **options, channels_first=options["is_nhwc"]))

    def get_onnx_operators_size(self) -> int:
        return len(migraphx.get_onnx_operators())

    def get_onnx_operator_name_at_index(self, index: int) -> str:
        return element(migraphx.get_onnx_operators(), index)

    def quantize_fp16(self, given: program) -> None:
        migraphx.quantize_fp16(given)

    def quantize_fp16_with_op_names(self, given: program, names: Sequence[str]) -> None:
        migraphx.quantize_fp16(given, names or ["all"])

    def quantize_bf16(self, given: program) -> None:
        migraphx.quantize_bf16(given)

    def quantize_bf16_with_op_names(self, given: program, names: Sequence[str]) -> None:
        migraphx.quantize_bf16(given, names or ["all"])

    def quantize_int8(self, given: program, target: Any, options: dict[str, Any]) -> None:
        chosen = {"ins_names": options["ins_names"]} if options["ins_names"] else {}
        migraphx.quantize_int8(given, target, options["calibration"], **chosen)

    def quantize_fp8(self, given: program, target: Any, options: dict[str, Any]) -> None:
        migraphx.quantize_fp8(given, target, options["calibration"])
