"""mgx: a graph compiler and inference engine for deep learning, made of plugins.

The names here are the public interface; a test holds them.  Frontends and targets are packages of their own
(``pip install mgx-onnx mgx-ref``) and are found when first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from .argument import Argument
from .program import Program
from .shape import Shape

__version__ = "0.1.0"

# public name -> where it lives; loaded when first used, so that importing mgx costs little more than importing numpy
_PUBLIC = {
    "Builder": "rewrite:Builder",
    "CompileOptions": "options:CompileOptions",
    "DType": "dtype:DType",
    "DeviceError": "errors:DeviceError",
    "Dim": "dim:Dim",
    "DynamicDimension": "dynamic_dimension:DynamicDimension",
    "Executable": "executable:Executable",
    "HostContext": "target:HostContext",
    "HostKernel": "kernel:HostKernel",
    "Instruction": "ir.instruction:Instruction",
    "Kernel": "kernel:Kernel",
    "Kernels": "kernel:Kernels",
    "Launch": "kernel:Launch",
    "Lazy": "plugins:Lazy",
    "MgxError": "errors:MgxError",
    "Module": "ir.module:Module",
    "No": "kernel:No",
    "OpSet": "operation:OpSet",
    "Operation": "operation:Operation",
    "OptionalShape": "shape:OptionalShape",
    "ParameterError": "errors:ParameterError",
    "ParseError": "errors:ParseError",
    "Pass": "pipeline:Pass",
    "PassError": "errors:PassError",
    "PluginError": "errors:PluginError",
    "Pointwise": "operation:Pointwise",
    "Reference": "kernel:Reference",
    "Rules": "rewrite:Rules",
    "SequenceShape": "shape:SequenceShape",
    "ShapeError": "errors:ShapeError",
    "StoreError": "errors:StoreError",
    "Target": "target:Target",
    "TupleShape": "shape:TupleShape",
    "UnrankedError": "errors:UnrankedError",
    "UnsupportedError": "errors:UnsupportedError",
    "argument_from_pointer": "argument:argument_from_pointer",
    "best_target": "api:best_target",
    "create_argument": "argument:create_argument",
    "define_op": "operation:op",
    "dim": "dim",
    "dtype": "dtype",
    "fill_argument": "argument:fill_argument",
    "generate_argument": "argument:generate_argument",
    "get_onnx_operators": "api:get_onnx_operators",
    "get_target": "api:get_target",
    "hookimpl": "plugins:hookimpl",
    "load": "api:load",
    "load_buffer": "api:load_buffer",
    "op": "api:op",
    "ops": "ops",
    "optimize": "api:optimize",
    "parse_onnx": "api:parse_onnx",
    "parse_onnx_buffer": "api:parse_onnx_buffer",
    "parse_program": "api:parse_program",
    "plugin_manager": "plugins:manager",
    "quantize_bf16": "quantize:quantize_bf16",
    "quantize_fp16": "quantize:quantize_fp16",
    "save": "api:save",
    "save_buffer": "api:save_buffer",
    "scalar": "scalar",
}

# MIGraphX's spelling of the three; they hide the sub-modules of the same names, which importing above has bound already
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
