"""Driver functions that the runtime uses, with each vendor's name.

Types: p handle or device address (an integer), P address of an output, z size, u unsigned, i int, k 64-bit unsigned, b byte,
s string, h IPC handle.  Types that differ between the vendors are written ``HIP|CUDA``.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

__all__ = ["ATTRIBUTES", "CALLS", "C_TYPES", "OPTIONAL", "Call", "IpcHandle"]


class IpcHandle(ctypes.Structure):
    """The handle for sharing device memory between processes; passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


class Call(NamedTuple):
    """One function: our name, the vendors' names, and its parameter types for each vendor."""

    name: str
    hip: str
    cuda: str
    types: tuple[str, str]

    def symbol(self, kind: str) -> str:
        if kind == "host":
            return "host" + self.hip.removeprefix("hip")
        return self.cuda if kind == "cuda" else self.hip

    def parameters(self, kind: str) -> str:
        return self.types[1 if kind == "cuda" else 0]


C_TYPES: Final[dict[str, Any]] = {
    "p": ctypes.c_size_t,
    "P": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "u": ctypes.c_uint,
    "i": ctypes.c_int,
    "k": ctypes.c_ulonglong,
    "b": ctypes.c_ubyte,
    "s": ctypes.c_char_p,
    "h": IpcHandle,
}

_TABLE: Final = """
init              hipInit                       cuInit                          u
version           hipDriverGetVersion           cuDriverGetVersion              P
device_count      hipGetDeviceCount             cuDeviceGetCount                P
device_get        hipDeviceGet                  cuDeviceGet                     Pi
device_name       hipDeviceGetName              cuDeviceGetName                 Pii
device_attribute  hipDeviceGetAttribute         cuDeviceGetAttribute            Pii
device_memory     hipDeviceTotalMem             cuDeviceTotalMem_v2             Pi
context_retain    hipDevicePrimaryCtxRetain     cuDevicePrimaryCtxRetain        Pi
context_state     hipDevicePrimaryCtxGetState   cuDevicePrimaryCtxGetState      iPP
context_set       hipSetDevice                  cuCtxSetCurrent                 i|p
context_sync      hipDeviceSynchronize          cuCtxSynchronize                -
memory_info       hipMemGetInfo                 cuMemGetInfo_v2                 PP
malloc            hipMalloc                     cuMemAlloc_v2                   Pz
ipc_open          hipIpcOpenMemHandle           cuIpcOpenMemHandle_v2           Phu
ipc_close         hipIpcCloseMemHandle          cuIpcCloseMemHandle             p
address_range     hipMemGetAddressRange         cuMemGetAddressRange_v2         PPp
free              hipFree                       cuMemFree_v2                    p
host_malloc       hipHostMalloc                 cuMemHostAlloc                  Pzu
host_free         hipHostFree                   cuMemFreeHost                   p
host_register     hipHostRegister               cuMemHostRegister_v2            pzu
host_unregister   hipHostUnregister             cuMemHostUnregister             p
h2d               hipMemcpyHtoDAsync            cuMemcpyHtoDAsync_v2            ppzp
d2h               hipMemcpyDtoHAsync            cuMemcpyDtoHAsync_v2            ppzp
d2d               hipMemcpyDtoDAsync            cuMemcpyDtoDAsync_v2            ppzp
fill8             hipMemsetD8Async              cuMemsetD8Async                 pbzp
fill32            hipMemsetD32Async             cuMemsetD32Async                pizp
stream_create     hipStreamCreateWithFlags      cuStreamCreate                  Pu
stream_destroy    hipStreamDestroy              cuStreamDestroy_v2              p
stream_sync       hipStreamSynchronize          cuStreamSynchronize             p
stream_query      hipStreamQuery                cuStreamQuery                   p
stream_capturing  hipStreamIsCapturing          cuStreamIsCapturing             pP
stream_wait       hipStreamWaitEvent            cuStreamWaitEvent               ppu
event_create      hipEventCreateWithFlags       cuEventCreate                   Pu
event_record      hipEventRecord                cuEventRecord                   pp
event_sync        hipEventSynchronize           cuEventSynchronize              p
event_query       hipEventQuery                 cuEventQuery                    p
event_elapsed     hipEventElapsedTime           cuEventElapsedTime              Ppp
event_destroy     hipEventDestroy               cuEventDestroy_v2               p
module_load       hipModuleLoadData             cuModuleLoadData                Pp
module_unload     hipModuleUnload               cuModuleUnload                  p
module_function   hipModuleGetFunction          cuModuleGetFunction             Pps
function_get      hipFuncGetAttribute           cuFuncGetAttribute              Pip
function_set      hipFuncSetAttribute           cuFuncSetAttribute              pii
launch            hipModuleLaunchKernel         cuLaunchKernel                  puuuuuuuppp
launch_extended   -                             cuLaunchKernelEx                Pppp
occupancy         hipModuleOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessor Ppiz
capture_begin     hipStreamBeginCapture         cuStreamBeginCapture_v2         pi
capture_end       hipStreamEndCapture           cuStreamEndCapture              pP
capture_mode      hipThreadExchangeStreamCaptureMode cuThreadExchangeStreamCaptureMode P
graph_nodes       hipGraphGetNodes              cuGraphGetNodes                 pPP
graph_node_type   -                             cuGraphNodeGetType              pP
graph_node_fill   -                             cuGraphMemsetNodeGetParams      pP
graph_node_needs  -                             cuGraphNodeGetDependencies      pPP
graph_node_users  -                             cuGraphNodeGetDependentNodes    pPP
graph_join        -                             cuGraphAddDependencies          pPPz
graph_node_free   -                             cuGraphDestroyNode              p
graph_new         hipGraphCreate                cuGraphCreate                   Pu
graph_child       hipGraphAddChildGraphNode     cuGraphAddChildGraphNode        PpPzp
graph_condition   hipGraphConditionalHandleCreate cuGraphConditionalHandleCreate Pppuu
graph_choice      hipGraphAddNode               cuGraphAddNode                  PpPzp
graph_instantiate hipGraphInstantiateWithFlags  cuGraphInstantiateWithFlags     Ppk
graph_update      hipGraphExecUpdate            cuGraphExecUpdate_v2            ppPP|ppP
graph_launch      hipGraphLaunch                cuGraphLaunch                   pp
graph_upload      hipGraphUpload                cuGraphUpload                   pp
graph_exec_free   hipGraphExecDestroy           cuGraphExecDestroy              p
graph_free        hipGraphDestroy               cuGraphDestroy                  p
"""


def _calls() -> tuple[Call, ...]:
    out = []
    for line in _TABLE.strip().splitlines():
        name, hip, cuda, types = line.split()
        first, _, second = types.replace("-", "").partition("|")
        out.append(Call(name, hip, cuda, (first, second or first)))
    return tuple(out)


CALLS: Final = _calls()
OPTIONAL: Final = frozenset({
    "context_state", "launch_extended", "graph_upload", "function_set", "graph_nodes", "graph_node_type", "graph_node_fill",
    "graph_node_needs", "graph_node_users", "graph_join", "graph_node_free", "graph_condition", "graph_choice", "fill32",
})  # fmt: skip

# device attributes: units, shared memory per block (default, maximum), lanes, threads per block, L2 bytes
ATTRIBUTES: Final = {
    "hip": {"units": 63, "shared": 74, "wave": 87, "threads": 56},
    "host": {"units": 63, "shared": 74, "wave": 87, "threads": 56},
    "cuda": {"units": 16, "shared": 8, "shared_most": 97, "wave": 10, "threads": 1, "major": 75, "minor": 76, "l2": 38},
}
