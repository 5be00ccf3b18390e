"""Device graphs: work captured from a stream once and replayed with one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

from mgx_core.errors import DeviceError
from mgx_core.garbage import no_collections

from .driver_context import DriverContext
from .failures import UPDATE_FAILED, CallError
from .stream import Stream

__all__ = ["Capture", "Graph", "GraphExec"]

MEMSET = 2  # CUgraphNodeType
THREAD_LOCAL = 1  # capture mode: other threads, such as torch's, may continue to allocate


class Memset(NamedTuple):
    """A memset node: sets `size` bytes to a value."""

    address: int
    value: int
    size: int


class _MemsetParams(ctypes.Structure):
    """CUDA's CUDA_MEMSET_NODE_PARAMS."""

    _fields_: ClassVar = [
        ("address", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


def _handles(ask: Callable[[Any, Any], None]) -> list[int]:
    """Returns the handles from a call that fills an array and a count."""
    count = ctypes.c_size_t()
    ask(None, ctypes.byref(count))
    found = (ctypes.c_void_p * max(count.value, 1))()
    ask(found, ctypes.byref(count))
    return [int(handle or 0) for handle in found[: count.value]]


class Graph:
    """A captured graph.  Memory that its launches access must outlive it and its executables."""

    __slots__ = ("device", "handle")

    def __init__(self, device: DriverContext, handle: int) -> None:
        self.device = device
        self.handle = handle

    def nodes(self) -> int:
        """Returns the number of nodes."""
        return int(self.device.driver.out("graph_nodes", self.handle, 0, last=True))

    def instantiate(self) -> GraphExec:
        return GraphExec(self)

    def memsets(self) -> list[tuple[int, Memset]]:
        """Returns the memset nodes with their parameters, if the driver reports them."""
        driver, found = self.device.driver, []
        if driver.graph_node_free is None:
            return []
        for node in _handles(partial(driver.graph_nodes, self.handle)):
            if driver.out("graph_node_type", node, type=ctypes.c_int, last=True) == MEMSET:
                given = _MemsetParams()
                driver.graph_node_fill(node, ctypes.byref(given))
                if given.height == 1:
                    found.append((node, Memset(given.address, given.value, given.width * given.element)))
        return found

    def remove(self, node: int) -> None:
        """Removes a node; its dependents then depend on its dependencies."""
        driver = self.device.driver
        dependencies, dependents = (
            _handles(partial(call, node)) for call in (driver.graph_node_needs, driver.graph_node_users)
        )
        driver.graph_node_free(node)
        for a in dependencies:
            for b in dependents:
                driver.graph_join(self.handle, (ctypes.c_void_p * 1)(a), (ctypes.c_void_p * 1)(b), 1)

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self.device.dispose("graph_free", self.handle)


class GraphExec:
    """An executable graph: ``launch(stream handle)`` enqueues it."""

    __slots__ = ("_call", "device", "handle")

    def __init__(self, graph: Graph) -> None:
        self.handle = 0
        self.device = graph.device
        self.device.activate()
        self.handle = self.device.driver.out("graph_instantiate", graph.handle, 0)
        self._call = self.device.driver.graph_launch

    def launch(self, stream: int = 0) -> None:
        self._call(self.handle, stream)

    def upload(self, stream: Stream) -> None:
        """Uploads the graph ahead of the first launch, if the driver supports it."""
        if self.device.driver.graph_upload is not None:
            self.device.driver.graph_upload(self.handle, stream.handle)

    def update(self, graph: Graph) -> bool:
        """Updates to the arguments of a graph of the same structure; False if the structure differs (instantiate it instead)."""
        driver = self.device.driver
        try:
            if driver.kind == "cuda":
                driver.graph_update(self.handle, graph.handle, (ctypes.c_ubyte * 64)())
            else:
                driver.graph_update(self.handle, graph.handle, (ctypes.c_size_t * 1)(), (ctypes.c_int * 1)())
        except CallError as error:
            if error.code == UPDATE_FAILED:
                return False
            raise
        return True

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self.device.dispose("graph_exec_free", self.handle)


class Capture:
    """Context manager: captures work enqueued on the stream instead of running it; `graph` is the result.

    Garbage collection is disabled inside: collecting a library plan would free memory, which invalidates the capture.
    """

    __slots__ = ("_no_collection", "graph", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._no_collection = no_collections()
        self.graph: Graph | None = None

    def result(self) -> Graph:
        """Returns the captured graph.  Errors: DeviceError if nothing was captured."""
        if self.graph is None:
            raise DeviceError("nothing was captured")
        return self.graph

    def instantiate(self) -> GraphExec:
        """Instantiates the captured graph.  Errors: DeviceError if nothing was captured."""
        return self.result().instantiate()

    def __enter__(self) -> Capture:
        device = self.stream.device
        device.activate()
        device.hold_disposals(True)
        self._no_collection.__enter__()
        try:
            device.driver.capture_begin(self.stream.handle, THREAD_LOCAL)
        except CallError:
            self._no_collection.__exit__(None, None, None)
            device.hold_disposals(False)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device = self.stream.device
        try:
            handle = device.driver.out("capture_end", self.stream.handle, last=True)
        except CallError:
            if kind is None:
                raise
            return  # the error that broke the capture is already propagating
        finally:
            self._no_collection.__exit__(None, None, None)
            device.hold_disposals(False)
        self.graph = Graph(device, handle)
