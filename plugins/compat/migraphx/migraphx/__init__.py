"""MIGraphX's Python module implemented with mgx: its classes, functions, defaults and signatures."""

from __future__ import annotations

from .installed import refuse_to_hide_another

refuse_to_hide_another()

from mgx_core import __version__, get_gpu_context  # noqa: E402

from .arguments import (  # noqa: E402
    allocate_gpu,
    argument,
    argument_from_pointer,
    create_argument,
    fill_argument,
    from_gpu,
    generate_argument,
    gpu_sync,
    to_gpu,
)
from .compile_modes import compile_modes  # noqa: E402
from .instructions import instruction_ref, module  # noqa: E402
from .operations import macro, op  # noqa: E402
from .parsing import (  # noqa: E402
    get_onnx_operators,
    load,
    load_buffer,
    optimize,
    parse_onnx,
    parse_onnx_buffer,
    parse_tf,
    save,
    save_buffer,
)
from .programs import get_target, program, target  # noqa: E402
from .quantizing import autocast_fp8, quantize_bf16, quantize_fp8, quantize_fp16, quantize_int8  # noqa: E402
from .shapes import shape  # noqa: E402
from .verifying import program_verify_mode, program_verify_options, program_verify_precision  # noqa: E402

__all__ = [
    "__version__",
    "allocate_gpu",
    "argument",
    "argument_from_pointer",
    "autocast_fp8",
    "compile_modes",
    "create_argument",
    "fill_argument",
    "from_gpu",
    "generate_argument",
    "get_gpu_context",
    "get_onnx_operators",
    "get_target",
    "gpu_sync",
    "instruction_ref",
    "load",
    "load_buffer",
    "macro",
    "module",
    "op",
    "optimize",
    "parse_onnx",
    "parse_onnx_buffer",
    "parse_tf",
    "program",
    "program_verify_mode",
    "program_verify_options",
    "program_verify_precision",
    "quantize_bf16",
    "quantize_fp16",
    "quantize_fp8",
    "quantize_int8",
    "save",
    "save_buffer",
    "shape",
    "target",
    "to_gpu",
]
