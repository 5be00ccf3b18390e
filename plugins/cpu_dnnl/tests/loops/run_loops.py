"""Shared code of tests of compiled loops."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_cpu_dnnl.jit.kernel import JitKernel

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def run_numpy(kernel: JitKernel, arrays: Sequence[np.ndarray[Any, Any]], chunks: int = 1) -> None:
    """Runs a kernel on arrays (inputs, then outputs), split into `chunks` ranges."""
    pointers = [a.ctypes.data for a in arrays]
    workspace = np.empty(kernel.workspace_bytes + 64, np.uint8)
    if kernel.workspace_bytes:
        pointers.append(-(-workspace.ctypes.data // 64) * 64)
    buffers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
    for step in (kernel, *kernel.after):
        args = (ctypes.c_int64 * max(len(step.args), 1))(*step.args)
        scratch = np.empty(step.scratch_bytes + 64, np.uint8)
        aligned = -(-scratch.ctypes.data // 64) * 64
        function = SIGNATURE(step.address)
        for chunk in range(chunks):
            begin, end = step.work * chunk // chunks, step.work * (chunk + 1) // chunks
            if begin < end:
                function(ctypes.addressof(buffers), ctypes.addressof(args), begin, end, aligned)
