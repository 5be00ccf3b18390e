"""Shared code of tests of compiled loops."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import dtype as dt
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.kernel import JitKernel

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def new_engine(machine: str) -> Engine:
    """Returns an engine that keeps nothing on disk, for the processor of this machine (``host``) or one with AVX2 only."""
    return Engine(cache=None) if machine == "host" else Engine("x86-64-v3", cache=None)


def shape_of(array: np.ndarray[Any, Any]) -> Shape:
    """Returns an array's shape with its strides."""
    return Shape(dt.of(array.dtype), array.shape, [s // array.itemsize for s in array.strides])


def strided(array: Any, order: Sequence[int], gap: int = 0) -> np.ndarray[Any, Any]:
    """Returns the same values with permuted axes in memory, possibly with gaps."""
    array = np.asarray(array)
    lens = [array.shape[a] for a in order]
    if gap and lens:
        lens[-1] += gap
    memory = np.zeros(lens, array.dtype)
    view = memory[..., : lens[-1] - gap] if gap and lens else memory
    view = view.transpose(np.argsort(order)) if lens else view
    view[...] = array
    return view


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
