"""cuDNN's backend API: the library, engines for operation graphs, and the search for plans.

A description of a GPU (`device`, from `Cudnn.describe_device`) suffices to search plans without one, and to build those with
prebuilt kernels; engines that compile kernels require the driver, and launching requires the device.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from mgx_core import dtype
from mgx_core.errors import DeviceError, No
from mgx_core.types.dtype import DType

from .cudnn_constants import CUDNN, SIGNATURES, STATUSES, Attr, Behavior, Heuristic, Kind, Note, Type
from .cudnn_descriptor import Descriptor
from .cudnn_graph import Graph
from .cudnn_operations import operation_graph
from .cudnn_plan import CudnnPlan
from .loading import Api, find, out

__all__ = ["EXACT", "NARROW", "Cudnn", "notes_for"]


# keeps float32 exact: excludes engines that round operands to TF32 or half, or whose transform loses precision
EXACT: Final = frozenset({
    Note.TENSOR_CORE, Note.DOWN_CONVERT_INPUTS, Note.REDUCED_PRECISION_REDUCTION, Note.WINOGRAD_6X6, Note.WINOGRAD_13X13
})  # fmt: skip
NARROW: Final = frozenset(
    {Note.DOWN_CONVERT_INPUTS, Note.REDUCED_PRECISION_REDUCTION, Note.WINOGRAD_6X6, Note.WINOGRAD_13X13}
)


class Cudnn:
    """The library with a handle for the current device, or with the description of a device that is not present.

    Errors: DeviceError if the library is not found, or fails to create a handle and no description was given.
    """

    def __init__(
        self, library: Any = None, device: Mapping[str, Any] | None = None, workspace: int = 256 << 20
    ) -> None:
        found = find(CUDNN) if library is None else library
        self.library = found
        self.api = Api(found, SIGNATURES, self._describe)
        self.max_workspace = workspace
        self.lock = threading.Lock()
        self.device: Descriptor | None = None
        self.handle: Any = None
        self.stream: int | None = None
        version = found.cudnnGetVersion
        if isinstance(found, ctypes.CDLL):
            version.restype = ctypes.c_size_t
            found.cudnnGetErrorString.restype = ctypes.c_char_p
        self.version = int(version())
        if device is None:
            self.handle, pointer = out()
            self.api.call("cudnnCreate", pointer)
        else:
            self.device = Descriptor(self, Kind.DEVICE_PROPERTIES)
            self.device.set_bytes(Attr.DEVICE_JSON, json.dumps(dict(device)).encode()).finalize()

    def describe_device(self) -> dict[str, Any]:
        """Returns a JSON-able description of the handle's device, for another process to plan for it."""
        properties = Descriptor(self, Kind.DEVICE_PROPERTIES)
        properties.set(Attr.DEVICE_HANDLE, Type.HANDLE, self.handle.value).finalize()
        facts: dict[str, Any] = json.loads(properties.get_bytes(Attr.DEVICE_JSON))
        return facts

    def close(self) -> None:
        """Destroys the handle; plans built with it must not be launched afterwards."""
        if self.handle:
            self.api.call("cudnnDestroy", self.handle)
            self.handle = None

    def _describe(self, status: int) -> str:
        function = getattr(self.library, "cudnnGetErrorString", None)
        text = function(status) if function is not None else None
        return text.decode() if isinstance(text, bytes) else STATUSES.get(status, "unknown status")

    def error(self, call: str, status: int) -> DeviceError:
        return DeviceError(f"{call}: {self._describe(status)} ({status}){self.last_error()}")

    def last_error(self) -> str:
        """Returns the library's own message about its last failure, if any."""
        function = getattr(self.library, "cudnnGetLastErrorString", None)
        if function is None:
            return ""
        buffer = ctypes.create_string_buffer(1024)
        function(buffer, ctypes.c_size_t(len(buffer)))
        text = buffer.value.decode(errors="replace").strip()
        return f": {text.splitlines()[0]}" if text else ""

    # -- engines and plans

    def configurations(
        self,
        operations: Descriptor,
        banned: frozenset[Note],
        modes: Sequence[Heuristic] = (Heuristic.A, Heuristic.FALLBACK),
    ) -> Iterator[tuple[Descriptor, list[int], list[int]]]:
        """Yields engine configurations without banned notes, best guess first, with their numerical and behavior notes."""
        for mode in modes:
            heuristic = Descriptor(self, Kind.ENGINE_HEURISTIC)
            heuristic.set(Attr.HEUR_OPERATION_GRAPH, Type.DESCRIPTOR, operations)
            heuristic.set(Attr.HEUR_MODE, Type.HEUR_MODE, int(mode))
            if self.device is not None:
                heuristic.set(Attr.HEUR_DEVICE_PROPERTIES, Type.DESCRIPTOR, self.device)
            if heuristic.try_finalize():
                continue
            count = heuristic.count(Attr.HEUR_RESULTS, Type.DESCRIPTOR)
            for config in heuristic.get_descriptors(Attr.HEUR_RESULTS, Kind.ENGINE_CONFIG, count):
                (engine,) = config.get_descriptors(Attr.CONFIG_ENGINE, Kind.ENGINE, 1)
                numerical = engine.get(Attr.ENGINE_NUMERICAL_NOTE, Type.NUMERICAL_NOTE, 16)
                behavior = engine.get(Attr.ENGINE_BEHAVIOR_NOTE, Type.BEHAVIOR_NOTE, 16)
                if not banned.intersection(numerical):
                    yield config, numerical, behavior

    def plan(
        self, name: str, graph: Graph, banned: frozenset[Note], choice: Mapping[str, Any] | None = None
    ) -> CudnnPlan | No:
        """Returns the saved plan if it is from this version of the library, else the first one the heuristics find."""
        if choice is not None and choice.get("version") == self.version:
            restored = self.restore(name, graph, str(choice["plan"]))
            if not isinstance(restored, No):
                return restored
        for plan in self.search(name, graph, banned):
            if not isinstance(plan, No):
                return plan
            last = plan
        return last

    def plans(
        self, name: str, graph: Graph, banned: frozenset[Note], count: int = 8, compiled: bool = True,
        share: tuple[int, int] = (0, 1),
    ) -> list[CudnnPlan] | No:  # fmt: skip
        """Returns at most `count` plans from all heuristics, best guess first, for timing.

        compiled: include engines that compile kernels for the graph, which takes a fraction of a second or more each.
        share: (i, n): only every n-th engine is tried, from the i-th on, so that n threads try them all.
        """
        found: list[CudnnPlan] = []
        last = No(f"{name}: no engine")
        for plan in self.search(name, graph, banned, (Heuristic.A, Heuristic.B, Heuristic.FALLBACK), compiled, share):
            if isinstance(plan, No):
                last = plan
            elif all(plan.saved != other.saved for other in found):
                found.append(plan)
                if len(found) == count:
                    break
        return found or last

    def search(
        self, name: str, graph: Graph, banned: frozenset[Note],
        modes: Sequence[Heuristic] = (Heuristic.A, Heuristic.FALLBACK), compiled: bool = True,
        share: tuple[int, int] = (0, 1),
    ) -> Iterator[CudnnPlan | No]:  # fmt: skip
        """Yields plans as they are found, a refusal for each engine that fails, and a final refusal."""
        try:
            operations = operation_graph(self, graph)
        except DeviceError as error:
            yield No(f"{name}: {error}")
            return
        found = ((c, Behavior.RUNTIME_COMPILATION in b) for c, _, b in self.configurations(operations, banned, modes))
        for config, compiles in islice(((c, own) for c, own in found if compiled or not own), share[0], None, share[1]):
            descriptor = self._new_plan()
            descriptor.set(Attr.PLAN_ENGINE_CONFIG, Type.DESCRIPTOR, config)
            status = descriptor.try_finalize()
            if status:
                yield No(f"{name}: cudnnBackendFinalize(PLAN): {self._describe(status)} ({status}){self.last_error()}")
                continue
            plan = CudnnPlan(self, name, graph, descriptor, compiles)
            if plan.workspace > self.max_workspace:
                yield No(
                    f"{name}: an engine needs a workspace of {plan.workspace} bytes, allowed are {self.max_workspace}"
                )
                continue
            yield plan
        yield No(f"{name}: no (further) engine of cuDNN {self.version} serves this graph{self.last_error()}")

    def _new_plan(self) -> Descriptor:
        """Returns a plan descriptor for the current or the described device."""
        descriptor = Descriptor(self, Kind.PLAN)
        if self.handle is not None:
            descriptor.set(Attr.PLAN_HANDLE, Type.HANDLE, self.handle.value)
        if self.device is not None:
            descriptor.set(Attr.PLAN_DEVICE_PROPERTIES, Type.DESCRIPTOR, self.device)
        return descriptor

    def restore(self, name: str, graph: Graph, saved: str) -> CudnnPlan | No:
        """Rebuilds the plan described by `saved`; `graph` must equal the one it was built from."""
        descriptor = self._new_plan()
        descriptor.set_bytes(Attr.PLAN_JSON, saved.encode())
        status = descriptor.try_finalize()
        if status:
            return No(f"{name}: the saved plan was rejected: {self._describe(status)} ({status}){self.last_error()}")
        return CudnnPlan(self, name, graph, descriptor, False)


def notes_for(of: DType, tf32: bool = False) -> frozenset[Note]:
    """Returns the notes that exclude an engine for this element type."""
    return EXACT if of in (dtype.float32, dtype.float64) and not tf32 else NARROW
