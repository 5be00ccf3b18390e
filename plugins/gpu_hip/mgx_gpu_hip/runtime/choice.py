"""Graphs that end with a choice: what the device runs last depends on a condition that a kernel of the graph sets."""

from __future__ import annotations

import ctypes
import struct
from typing import Final

from mgx_core.errors import DeviceError

from .driver_context import DriverContext
from .graph import Graph
from .module import Function, Module

__all__ = ["EMULATED", "Choice", "decider"]

CONDITIONAL: Final = 13  # type of a node, in CUDA
ASSIGN_DEFAULT: Final = 1  # flag: the condition is the default again when a launch begins

# Sets the condition of a graph to the number that lies at an address.  In PTX, since the driver links this function into PTX
# alone, whatever the version of the compiler that other kernels come from.
_CUDA: Final = b"""
.version 8.3
.target sm_50
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value);
.visible .entry decide(.param .u64 number, .param .u64 handle)
{
  .reg .b64 %d<4>;
  .reg .b32 %r<2>;
  ld.param.u64 %d1, [number];
  cvta.to.global.u64 %d2, %d1;
  ld.global.u32 %r1, [%d2];
  ld.param.u64 %d3, [handle];
  {
    .param .b64 condition;
    .param .b32 value;
    st.param.b64 [condition], %d3;
    st.param.b32 [value], %r1;
    call.uni cudaGraphSetConditional, (condition, value);
  }
  ret;
}
"""

EMULATED: Final = """
KERNEL(32) decide(const u32* number, u32* condition) {
  if (threadIdx.x == 0) *condition = *number;
}
"""


class Choice:
    """A graph in the making; `condition` is zero when a launch begins.

    Errors: DeviceError if the driver has no such graphs (see `possible`).
    """

    def __init__(self, device: DriverContext) -> None:
        if not self.possible(device):
            raise DeviceError(f"the {device.driver.kind} driver has no graphs with conditions")
        self.device = device
        device.activate()
        self.graph = Graph(device, device.driver.out("graph_new", 0))
        self.condition: int = device.driver.out("graph_condition", self.graph.handle, device.context, 0, ASSIGN_DEFAULT)

    @staticmethod
    def possible(device: DriverContext) -> bool:
        """Returns True if the driver has graphs with conditions: CUDA's from 12.4 on, none of HIP's so far."""
        return device.driver.graph_condition is not None and device.driver.graph_choice is not None

    def of(self, first: Graph, check: Graph, otherwise: Graph) -> Graph:
        """Returns the whole: `first` and `check` at the same time, behind both `otherwise` if the condition is not zero then."""
        driver, whole = self.device.driver, self.graph.handle
        before = [driver.out("graph_child", whole, None, 0, part.handle) for part in (first, check)]
        needs = (ctypes.c_void_p * len(before))(*before)
        # CUgraphNodeParams: type, padding to 16; handle, kind (if), branches, address of their graphs (given back), context
        params = ctypes.create_string_buffer(256)
        struct.pack_into("=i12xQiIQQ", params, 0, CONDITIONAL, self.condition, 0, 1, 0, self.device.context)
        driver.out("graph_choice", whole, needs, len(before), ctypes.addressof(params))
        (branches,) = struct.unpack_from("=Q", params, 32)
        branch = ctypes.c_uint64.from_address(branches).value
        driver.out("graph_child", branch, None, 0, otherwise.handle)
        return self.graph


def decider(device: DriverContext, image: bytes | None) -> Function:
    """Returns the kernel ``decide(address of a number, condition)``; image: of `EMULATED`, for the emulated device."""
    return Module(device, _CUDA if image is None else image).function("decide", "PP")
