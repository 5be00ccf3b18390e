"""The kernel for cpu: a C function, compiled where it is first needed."""

import ctypes
import struct
import subprocess
from functools import cache
from pathlib import Path

from mgx_core import Kernels, No
from mgx_core.settings import cache_directory
from mgx_core.types.dtype import float32
from mgx_cpu_dnnl.c_kernels import c_function_kernel

from .op import ClipRows

PLANS = Kernels("cpu")


@cache
def library() -> ctypes.CDLL:
    source = Path(__file__).with_name("clip_rows.c")
    built = cache_directory() / "example_mgx_op_everywhere" / "clip_rows.so"
    built.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", built, source, "-lm"], check=True)
    return ctypes.CDLL(str(built))


@PLANS.plan(ClipRows)
def in_c(op, inputs, context):
    if inputs[0].dtype is not float32:
        return No(f"made for float32, got {inputs[0].dtype}")
    return c_function_kernel(
        "clip_rows in C", op, ctypes.cast(library().clip_rows, ctypes.c_void_p).value, owner=library(), grain=16,
        work=lambda shapes: shapes[0].elements() // max(1, shapes[0].lens()[-1]),
        args=lambda shapes: [shapes[0].lens()[-1], *struct.unpack("q", struct.pack("d", op.limit))],
    )  # fmt: skip
