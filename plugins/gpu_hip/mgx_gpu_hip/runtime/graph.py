"""Graphs: work of a stream captured once and replayed with one call."""

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

FILL = 2  # type of a node, in CUDA
THREAD_LOCAL = 1  # capture mode: other threads, such as torch's, may go on allocating


class Fill(NamedTuple):
    """An operation that sets `size` bytes to a value."""

    address: int
    value: int
    size: int


class _Fill(ctypes.Structure):
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
    """Returns the handles that a call gives which takes where to put them, and their number."""
    count = ctypes.c_size_t()
    ask(None, ctypes.byref(count))
    found = (ctypes.c_void_p * max(count.value, 1))()
    ask(found, ctypes.byref(count))
    return [int(handle or 0) for handle in found[: count.value]]


class Graph:
    """Captured work.  What the captured launches point at must live as long as anything made from it."""

    __slots__ = ("device", "handle")

    def __init__(self, device: DriverContext, handle: int) -> None:
        self.device = device
        self.handle = handle

    def nodes(self) -> int:
        """Returns number of operations."""
        return int(self.device.driver.out("graph_nodes", self.handle, 0, last=True))

    def instantiate(self) -> GraphExec:
        return GraphExec(self)

    def fills(self) -> list[tuple[int, Fill]]:
        """Returns the operations that set memory to one value, where the driver tells them, and what they set."""
        driver, found = self.device.driver, []
        if driver.graph_node_free is None:
            return []
        for node in _handles(partial(driver.graph_nodes, self.handle)):
            if driver.out("graph_node_type", node, type=ctypes.c_int, last=True) == FILL:
                given = _Fill()
                driver.graph_node_fill(node, ctypes.byref(given))
                if given.height == 1:
                    found.append((node, Fill(given.address, given.value, given.width * given.element)))
        return found

    def leave_out(self, node: int) -> None:
        """Removes an operation; those behind it run behind those before it."""
        driver = self.device.driver
        before, behind = (_handles(partial(call, node)) for call in (driver.graph_node_needs, driver.graph_node_users))
        driver.graph_node_free(node)
        for a in before:
            for b in behind:
                driver.graph_join(self.handle, (ctypes.c_void_p * 1)(a), (ctypes.c_void_p * 1)(b), 1)

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self.device.dispose("graph_free", self.handle)


class GraphExec:
    """A graph ready to run: ``launch(stream handle)`` queues it as a whole."""

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
        """Brings it to the device ahead of the first launch, where the driver can."""
        if self.device.driver.graph_upload is not None:
            self.device.driver.graph_upload(self.handle, stream.handle)

    def update(self, graph: Graph) -> bool:
        """Takes over the arguments of a graph of the same structure; False if it differs (instantiate it instead)."""
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
    """Context manager: what is queued on the stream inside is recorded instead of run; `graph` has it afterwards.

    No garbage is collected inside: a plan of a library that goes then gives memory back, which breaks the recording.
    """

    __slots__ = ("_undisturbed", "graph", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._undisturbed = no_collections()
        self.graph: Graph | None = None

    def taken(self) -> Graph:
        """Returns the recorded work.  Errors: DeviceError if nothing was."""
        if self.graph is None:
            raise DeviceError("nothing was captured")
        return self.graph

    def instantiate(self) -> GraphExec:
        """Makes the recorded work ready to run.  Errors: DeviceError if nothing was."""
        return self.taken().instantiate()

    def __enter__(self) -> Capture:
        device = self.stream.device
        device.activate()
        device.hold_disposals(True)
        self._undisturbed.__enter__()
        try:
            device.driver.capture_begin(self.stream.handle, THREAD_LOCAL)
        except CallError:
            self._undisturbed.__exit__(None, None, None)
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
            return  # the error that broke the capture propagates already
        finally:
            self._undisturbed.__exit__(None, None, None)
            device.hold_disposals(False)
        self.graph = Graph(device, handle)
