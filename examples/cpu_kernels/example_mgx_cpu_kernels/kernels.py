"""Plans for the target `cpu`: a C function for `decay`, a numpy function for `sort_rows`; `bent_identity` needs none."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mgx_core import HostKernel, Kernel, Kernels, No, Shape
from mgx_core.settings import cache_directory
from mgx_core.types.dtype import float32
from mgx_cpu_dnnl.c_kernels import c_function_kernel

from .ops import Decay, SortRows

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
SOURCE = Path(__file__).with_name("decay.c")


@cache
def library() -> ctypes.CDLL | No:
    """Returns the C function, compiled once per source."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("c++")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    path = cache_directory() / "example_mgx_cpu_kernels" / f"decay-{digest}.so"
    if not path.exists():
        if compiler is None:
            return No("decay.c needs a C compiler, and there is none")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / "decay.so"
            command = [compiler, "-x", "c", "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return No(f"decay.c does not compile: {done.stderr}")
            os.replace(made, path)
    return ctypes.CDLL(str(path))


@PLANS.plan(Decay, dtypes=[float32])
def by_c_function(op: Decay, inputs: Sequence[Shape], context: Any) -> Kernel | No:
    found = library()
    if isinstance(found, No):
        return found
    address = ctypes.cast(found.decay, ctypes.c_void_p).value
    assert address is not None
    (rate,) = struct.unpack("q", struct.pack("d", op.rate))
    return c_function_kernel(
        "decay in C",
        op,
        address,
        work=lambda shapes: shapes[0].elements() // max(1, shapes[0].lens()[-1]),
        args=lambda shapes: [shapes[0].lens()[-1], rate],
        owner=found,
        grain=64,
    )


@PLANS.plan(SortRows)
def by_numpy(op: SortRows, inputs: Sequence[Shape], context: Any) -> Kernel | No:
    return HostKernel("sort by numpy", lambda x: np.sort(x, axis=-1))
