"""Conditional graphs: a kernel of the graph sets a condition that decides on the device whether the last part runs."""

from __future__ import annotations

import ctypes
import struct
from typing import Final

from mgx_core.errors import DeviceError

from .driver_context import DriverContext
from .graph import Graph
from .module import Function, Module

__all__ = ["EMULATED", "ConditionalGraph", "decider"]

CONDITIONAL: Final = 13  # CUgraphNodeType
ASSIGN_DEFAULT: Final = 1  # the condition is reset to its default at each launch

# Sets a graph's condition to the number at an address.  PTX, because the driver links cudaGraphSetConditional only into PTX,
# whatever the version of the compiler that builds other kernels.
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


class ConditionalGraph:
    """A graph under construction; `condition` is zero at the start of each launch.

    Errors: DeviceError if the driver does not support conditional nodes (see `possible`).
    """

    def __init__(self, device: DriverContext) -> None:
        if not self.possible(device):
            raise DeviceError(f"the {device.driver.kind} driver does not support conditional graph nodes")
        self.device = device
        device.activate()
        self.graph = Graph(device, device.driver.out("graph_new", 0))
        self.condition: int = device.driver.out("graph_condition", self.graph.handle, device.context, 0, ASSIGN_DEFAULT)

    @staticmethod
    def possible(device: DriverContext) -> bool:
        """Returns True if the driver supports conditional nodes: CUDA's from 12.4 on, HIP's does not."""
        return device.driver.graph_condition is not None and device.driver.graph_choice is not None

    def of(self, first: Graph, check: Graph, otherwise: Graph) -> Graph:
        """Returns a graph of `first` and `check`, concurrently, followed by `otherwise` if the condition is then not zero."""
        driver, whole = self.device.driver, self.graph.handle
        before = [driver.out("graph_child", whole, None, 0, part.handle) for part in (first, check)]
        needs = (ctypes.c_void_p * len(before))(*before)
        # CUgraphNodeParams: type, padding to 16; handle, kind (if), number of branches, address of their graphs (output), context
        params = ctypes.create_string_buffer(256)
        struct.pack_into("=i12xQiIQQ", params, 0, CONDITIONAL, self.condition, 0, 1, 0, self.device.context)
        driver.out("graph_choice", whole, needs, len(before), ctypes.addressof(params))
        (branches,) = struct.unpack_from("=Q", params, 32)
        branch = ctypes.c_uint64.from_address(branches).value
        driver.out("graph_child", branch, None, 0, otherwise.handle)
        return self.graph


def decider(device: DriverContext, image: bytes | None) -> Function:
    """Returns the kernel ``decide(address of a number, condition)``; image: compiled `EMULATED`, for the emulated device."""
    return Module(device, _CUDA if image is None else image).function("decide", "PP")
