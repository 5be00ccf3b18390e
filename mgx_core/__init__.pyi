"""The public names for type checkers; `__init__.py` loads them when first used, and a test compares the two."""

from . import ops
from .api import (
    best_target,
    get_onnx_operators,
    get_target,
    get_tf_operators,
    op,
    optimize,
    parse_onnx,
    parse_onnx_buffer,
    parse_program,
    parse_tf,
    parse_tf_buffer,
)
from .device import allocate_gpu, argument_from_pointer, from_gpu, get_gpu_context, gpu_sync, to_gpu
from .errors import (
    DeviceError,
    MgxError,
    No,
    ParameterError,
    ParseError,
    PassError,
    PluginError,
    ShapeError,
    StoreError,
    UnrankedError,
    UnsupportedError,
)
from .frontend import Frontend
from .ir.instruction import Instruction
from .ir.module import Module
from .macros.macro import Macro
from .ops import scalar
from .ops.declaration import op as define_op
from .ops.elementwise import Pointwise
from .ops.operation import Operation
from .ops.opset import OpSet
from .options import CompileOptions
from .parsing import parse, parse_buffer
from .passes.interface import Pass
from .passes.rewrite import Rewrite
from .plugins.manager import Lazy, hookimpl
from .plugins.manager import manager as plugin_manager
from .program import Program
from .quantize import (
    autocast_fp8,
    quantize_bf16,
    quantize_dynamic,
    quantize_fp8,
    quantize_fp16,
    quantize_int4_weights,
    quantize_int8,
)
from .rules.engine import EXACT, RANGE, ROUNDING, Builder, Rules
from .run.executable import Executable
from .saving import load, load_buffer, save, save_buffer
from .targets.kernel import HostKernel, Kernel, Launch, Reference
from .targets.kernel_table import Kernels
from .targets.runner import Runner
from .targets.target import Context, HostContext, Target
from .targets.watch import Watch
from .types import dim, dtype
from .types.argument import Argument
from .types.creation import create_argument, fill_argument, generate_argument
from .types.dim import Dim
from .types.dtype import DType
from .types.dynamic_dimension import DynamicDimension
from .types.shape import OptionalShape, SequenceShape, Shape, TupleShape
from .version import __version__

argument = Argument
program = Program
shape = Shape

__all__ = [
    "Argument",
    "Builder",
    "CompileOptions",
    "Context",
    "DType",
    "DeviceError",
    "Dim",
    "DynamicDimension",
    "EXACT",
    "Executable",
    "Frontend",
    "HostContext",
    "HostKernel",
    "Instruction",
    "Kernel",
    "Kernels",
    "Launch",
    "Lazy",
    "Macro",
    "MgxError",
    "Module",
    "No",
    "OpSet",
    "Operation",
    "OptionalShape",
    "ParameterError",
    "ParseError",
    "Pass",
    "PassError",
    "PluginError",
    "Pointwise",
    "Program",
    "RANGE",
    "ROUNDING",
    "Reference",
    "Rewrite",
    "Rules",
    "Runner",
    "SequenceShape",
    "Shape",
    "ShapeError",
    "StoreError",
    "Target",
    "TupleShape",
    "UnrankedError",
    "UnsupportedError",
    "Watch",
    "__version__",
    "allocate_gpu",
    "argument",
    "argument_from_pointer",
    "autocast_fp8",
    "best_target",
    "create_argument",
    "define_op",
    "dim",
    "dtype",
    "fill_argument",
    "from_gpu",
    "generate_argument",
    "get_gpu_context",
    "get_onnx_operators",
    "get_target",
    "get_tf_operators",
    "gpu_sync",
    "hookimpl",
    "load",
    "load_buffer",
    "op",
    "ops",
    "optimize",
    "parse",
    "parse_buffer",
    "parse_onnx",
    "parse_onnx_buffer",
    "parse_program",
    "parse_tf",
    "parse_tf_buffer",
    "plugin_manager",
    "program",
    "quantize_bf16",
    "quantize_dynamic",
    "quantize_fp16",
    "quantize_fp8",
    "quantize_int4_weights",
    "quantize_int8",
    "save",
    "save_buffer",
    "scalar",
    "shape",
    "to_gpu",
]
