"""Execution plans of cuDNN's backend."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mgx_core import dtype
from mgx_core.errors import ParameterError
from mgx_core.types.dtype import DType

from .cudnn_constants import Attr, Kind, Type
from .cudnn_descriptor import Backend, Descriptor
from .cudnn_graph import Graph

__all__ = ["CudnnPlan"]

NUMBERS: Final[Mapping[DType, Any]] = {
    dtype.float32: ctypes.c_float, dtype.float64: ctypes.c_double, dtype.int32: ctypes.c_int32, dtype.int64: ctypes.c_int64
}  # fmt: skip


class CudnnPlan:
    """A compiled graph.

    workspace: bytes required at launch; compiled: True if the engine compiled kernels for the graph; choice: JSON-able, restores
    the plan without a search.
    """

    def __init__(self, cudnn: Backend, name: str, graph: Graph, descriptor: Descriptor, compiled: bool) -> None:
        self.cudnn = cudnn
        self.name = name
        self.names = dict(graph.names)
        self.descriptor = descriptor
        self.compiled = compiled
        self.workspace = int(descriptor.get(Attr.PLAN_WORKSPACE_SIZE, Type.INT64)[0])
        self._values = [(t.id, NUMBERS[t.dtype](t.value)) for t in graph.values]
        self._packs: dict[tuple[Any, ...], Descriptor] = {}

    def with_numbers(self, numbers: Sequence[float]) -> CudnnPlan:
        """Returns the plan with other values of the graph's scalars, in their order."""
        made = copy.copy(self)
        made._values = [(id, type(value)(n)) for (id, value), n in zip(self._values, numbers, strict=True)]
        made._packs = {}
        return made

    @property
    def saved(self) -> str:
        return self.descriptor.get_bytes(Attr.PLAN_JSON).decode()

    @property
    def choice(self) -> dict[str, Any]:
        return {"library": "cudnn", "version": self.cudnn.version, "plan": self.saved}

    def launch(self, stream: int, *, workspace: int | None = None, **addresses: int) -> None:
        """Enqueues the plan on a stream, with the device address of each named operand.  May be captured in a graph.

        Errors: ParameterError for missing or unknown names; DeviceError from the library.
        """
        cudnn = self.cudnn
        if workspace is None and self.workspace:
            raise ParameterError(f"{self.name} requires a workspace of {self.workspace} bytes")
        key = (workspace, *sorted(addresses.items()))
        with cudnn.lock:
            pack = self._packs.get(key)
            if pack is None:
                pack = self._pack(addresses, workspace)
                if len(self._packs) >= 4:
                    self._packs.clear()
                self._packs[key] = pack
            if stream != cudnn.stream:
                cudnn.api.call("cudnnSetStream", cudnn.handle, stream)
                cudnn.stream = stream
            status = cudnn.api.functions["cudnnBackendExecute"](cudnn.handle, self.descriptor.handle, pack.handle)
        if status:
            raise cudnn.error(f"cudnnBackendExecute ({self.name})", status)

    def _pack(self, addresses: Mapping[str, int], workspace: int | None) -> Descriptor:
        if addresses.keys() != self.names.keys():
            raise ParameterError(
                f"{self.name} takes the addresses {', '.join(self.names)}, got {', '.join(addresses) or 'none'}"
            )
        ids = [self.names[name] for name in addresses] + [id for id, _ in self._values]
        pointers = [*addresses.values(), *(ctypes.addressof(value) for _, value in self._values)]
        pack = Descriptor(self.cudnn, Kind.VARIANT_PACK)
        pack.set(Attr.PACK_IDS, Type.INT64, *ids)
        pack.set(Attr.PACK_POINTERS, Type.VOID_PTR, *pointers)
        pack.set(Attr.PACK_WORKSPACE, Type.VOID_PTR, workspace or 0)
        return pack.finalize()

    def __repr__(self) -> str:
        return self.name
