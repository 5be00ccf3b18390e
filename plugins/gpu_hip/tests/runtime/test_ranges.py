"""Profiler ranges, on recording fakes of the vendors' libraries."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import DeviceError, UnsupportedError
from mgx_gpu_hip.runtime import ranges

STAND_IN = """
#include <stdio.h>
#include <string.h>
static char said[4096];
int PREFIXRangePushA(const char* text) { strcat(said, "{"); strcat(said, text); return 0; }
int PREFIXRangePop(void) { strcat(said, "}"); return 0; }
const char* said_so_far(void) { return said; }
"""


@pytest.mark.parametrize(
    ("kind", "prefix", "variable"), [("hip", "roctx", "MGX_ROCTX_LIBRARY"), ("cuda", "nvtx", "MGX_NVTX_LIBRARY")]
)
def test_each_instruction_has_a_range(kind, prefix, variable, tmp_path, monkeypatch) -> None:
    (tmp_path / "ranges.c").write_text(STAND_IN.replace("PREFIX", prefix))
    library = tmp_path / f"lib{prefix}.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "ranges.c", "-o", library], check=True)
    monkeypatch.setenv(variable, str(library))
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [])
    ranges.profiler_ranges.cache_clear()
    context = mgx.get_gpu_context()
    monkeypatch.setattr(type(context), "profiler_ranges", lambda self: ranges.profiler_ranges(kind))

    program = mgx.Program()
    module = program.get_main_module()
    x = module.add_parameter("x", mgx.Shape("float32", [4, 4]))
    module.add_return([module.add(mgx.op("softmax"), module.add(mgx.op("dot"), x, x))])
    program.compile(context)
    assert program.executable.mark({"x": np.ones((4, 4), np.float32)}) == 2
    said = ctypes.CDLL(str(library)).said_so_far
    said.restype = ctypes.c_char_p
    first, second, rest = said().decode().split("}")
    assert (
        first.startswith("{launch[") and "dot" in first and second.startswith("{") and "softmax" in second and not rest
    )
    ranges.profiler_ranges.cache_clear()


def test_missing_parts_are_reported(monkeypatch) -> None:
    ranges.profiler_ranges.cache_clear()
    monkeypatch.setenv("MGX_ROCTX_LIBRARY", "/no/such/library.so")
    with pytest.raises(DeviceError, match=r"no library with roctxRangePushA was found.*MGX_ROCTX_LIBRARY"):
        ranges.profiler_ranges("hip")
    with pytest.raises(UnsupportedError, match="'host' has no profiler"):
        ranges.profiler_ranges("host")
