"""mgx: a graph compiler and inference engine for deep learning, composed of plugins.

The names here are the public interface, which a test pins.  Frontends and targets are separate packages
(``pip install mgx-onnx mgx-ref``), discovered on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from .program import Program
from .types.argument import Argument
from .types.shape import Shape
from .version import __version__

# public name -> module and attribute, imported on first use, so that importing mgx takes little longer than importing numpy
_PUBLIC = {
    "Builder": "rules.engine:Builder",
    "CompileOptions": "options:CompileOptions",
    "Context": "targets.target:Context",
    "DType": "types.dtype:DType",
    "DeviceError": "errors:DeviceError",
    "Dim": "types.dim:Dim",
    "DynamicDimension": "types.dynamic_dimension:DynamicDimension",
    "EXACT": "rules.engine:EXACT",
    "Executable": "run.executable:Executable",
    "Frontend": "frontend:Frontend",
    "HostContext": "targets.target:HostContext",
    "HostKernel": "targets.kernel:HostKernel",
    "Instruction": "ir.instruction:Instruction",
    "Kernel": "targets.kernel:Kernel",
    "Kernels": "targets.kernel_table:Kernels",
    "Launch": "targets.kernel:Launch",
    "Lazy": "plugins.manager:Lazy",
    "Macro": "macros.macro:Macro",
    "MgxError": "errors:MgxError",
    "Module": "ir.module:Module",
    "No": "errors:No",
    "OpSet": "ops.opset:OpSet",
    "Operation": "ops.operation:Operation",
    "OptionalShape": "types.shape:OptionalShape",
    "ParameterError": "errors:ParameterError",
    "ParseError": "errors:ParseError",
    "Pass": "passes.interface:Pass",
    "PassError": "errors:PassError",
    "PluginError": "errors:PluginError",
    "Pointwise": "ops.elementwise:Pointwise",
    "RANGE": "rules.engine:RANGE",
    "ROUNDING": "rules.engine:ROUNDING",
    "Reference": "targets.kernel:Reference",
    "Rewrite": "passes.rewrite:Rewrite",
    "Rules": "rules.engine:Rules",
    "Runner": "targets.runner:Runner",
    "SequenceShape": "types.shape:SequenceShape",
    "ShapeError": "errors:ShapeError",
    "StoreError": "errors:StoreError",
    "Target": "targets.target:Target",
    "TupleShape": "types.shape:TupleShape",
    "UnrankedError": "errors:UnrankedError",
    "UnsupportedError": "errors:UnsupportedError",
    "Watch": "targets.watch:Watch",
    "allocate_gpu": "device:allocate_gpu",
    "argument_from_pointer": "device:argument_from_pointer",
    "best_target": "api:best_target",
    "create_argument": "types.creation:create_argument",
    "define_op": "ops.declaration:op",
    "dim": "types.dim",
    "dtype": "types.dtype",
    "fill_argument": "types.creation:fill_argument",
    "from_gpu": "device:from_gpu",
    "generate_argument": "types.creation:generate_argument",
    "get_gpu_context": "device:get_gpu_context",
    "get_onnx_operators": "api:get_onnx_operators",
    "get_target": "api:get_target",
    "get_tf_operators": "api:get_tf_operators",
    "gpu_sync": "device:gpu_sync",
    "hookimpl": "plugins.manager:hookimpl",
    "load": "saving:load",
    "load_buffer": "saving:load_buffer",
    "op": "api:op",
    "ops": "ops",
    "optimize": "api:optimize",
    "parse": "parsing:parse",
    "parse_buffer": "parsing:parse_buffer",
    "parse_onnx": "api:parse_onnx",
    "parse_onnx_buffer": "api:parse_onnx_buffer",
    "parse_program": "api:parse_program",
    "parse_tf": "api:parse_tf",
    "parse_tf_buffer": "api:parse_tf_buffer",
    "plugin_manager": "plugins.manager:manager",
    "autocast_fp8": "quantize:autocast_fp8",
    "quantize_bf16": "quantize:quantize_bf16",
    "quantize_dynamic": "quantize:quantize_dynamic",
    "quantize_fp8": "quantize:quantize_fp8",
    "quantize_fp16": "quantize:quantize_fp16",
    "quantize_int4_weights": "quantize:quantize_int4_weights",
    "quantize_int8": "quantize:quantize_int8",
    "save": "saving:save",
    "save_buffer": "saving:save_buffer",
    "scalar": "ops.scalar",
    "to_gpu": "device:to_gpu",
}

# MIGraphX's names; `program` deliberately hides the submodule, which the import above has bound
argument = Argument
program = Program
shape = Shape

__all__ = ["Argument", "Program", "Shape", "__version__", "argument", "program", "shape"]
__all__ += list(_PUBLIC)


def __getattr__(name: str) -> Any:
    place = _PUBLIC.get(name)
    if place is None:
        raise AttributeError(f"module 'mgx_core' has no attribute {name!r}")
    module, _, attribute = place.partition(":")
    found = importlib.import_module(f"{__name__}.{module}")
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
