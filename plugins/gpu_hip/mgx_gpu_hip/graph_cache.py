"""Caches device graphs of a program's steps, one per set of argument and result addresses."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgx_core.targets.schedule import Step
from mgx_core.targets.values import Buffer, Value

from .bound_steps import BoundStep, bound_steps, naming_errors
from .runtime import Device, DeviceArray, DeviceBuffer, Function, Graph, GraphExec, Stream
from .steps import CalledStep, DeviceStep, HostStep, LibraryStep
from .workspaces import HEAD

__all__ = ["GRAPHS", "CapturedGraph", "GraphCache", "captured", "enqueue", "warm_up"]

GRAPHS = 8  # maximum number of cached graphs
VARYING = 6  # distinct address sets after which arguments are copied instead: a copy takes less time than a capture


class CapturedGraph(NamedTuple):
    """A captured graph, None if the steps run one by one; eager: steps to enqueue while a stream is captured."""

    graph: GraphExec | None
    steps: list[BoundStep]
    eager: list[BoundStep]


NONE = CapturedGraph(None, [], [])


class GraphCache:
    """The latest graphs of a program's steps (first in, first out); programs with called steps run step by step.

    addresses: of all buffers by id, arguments and results in staging buffers; io_buffers: buffers of arguments and results, whose
    memory callers may supply; functions: by id of step, then by entry; overlap: see `bound_steps`.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        device: Device,
        functions: Mapping[int, Mapping[str, Function]],
        addresses: Mapping[int, int],
        io_buffers: Sequence[Buffer],
        overlap: bool,
    ) -> None:
        self.steps, self.device, self.functions = steps, device, functions
        self.addresses, self.io_buffers, self.overlap = addresses, io_buffers, overlap
        self.hosted = any(isinstance(s, CalledStep) for s in steps)
        self._graphs: OrderedDict[Any, CapturedGraph] = OrderedDict()
        self._seen: OrderedDict[Any, None] = OrderedDict()  # recent keys without a graph
        self._warmed_up = False  # every step has run once without an error

    def lookup(self, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> CapturedGraph:
        """Returns the entry for argument and result addresses by index; an empty one if none is cached."""
        return self._graphs.get(_key(inputs, outputs), NONE)

    def is_varying(self, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> bool:
        """Returns True if no graph is cached for these addresses although several others are."""
        return len(self._graphs) >= VARYING and _key(inputs, outputs) not in self._graphs

    def last(self) -> GraphExec | None:
        """Returns the graph executed last; None before the first, and where steps run one by one."""
        return next(reversed(self._graphs.values())).graph if self._graphs else None

    def execute_lazily(self, inputs: Mapping[int, int], outputs: Mapping[int, int], stream: Stream) -> None:
        """Enqueues all steps; captures a graph only when addresses recur, since most address sets occur once."""
        key = _key(inputs, outputs)
        if self.hosted or key in self._graphs or key in self._seen:
            self.execute(inputs, outputs, stream)
            return
        self._seen[key] = None
        while len(self._seen) > GRAPHS:
            self._seen.popitem(last=False)
        steps = bound_steps(self.steps, self._bound(inputs, outputs), self.functions, self.overlap)
        if self._warmed_up:
            enqueue(steps, stream.handle)
        else:
            self._warm_up(steps, stream)

    def execute(self, inputs: Mapping[int, int], outputs: Mapping[int, int], stream: Any) -> None:
        key = _key(inputs, outputs)
        found = self._graphs.get(key)
        if found is not None:
            self._graphs.move_to_end(key)
        else:
            found = self._capture(inputs, outputs, stream)
            self._graphs[key] = found
            while len(self._graphs) > GRAPHS:
                self._graphs.popitem(last=False)
        if found.graph is not None:
            if stream.handle and stream.captured():
                enqueue(found.eager, stream.handle)
            else:
                found.graph.launch(stream.handle)
            return
        for step, calls in found.steps:
            if isinstance(step, HostStep):
                self._on_host(step, self._bound(inputs, outputs), stream)
            elif isinstance(step, DeviceStep):
                self._on_device(step, self._bound(inputs, outputs))
            for call in calls:
                call(stream.handle)

    def _capture(self, inputs: Mapping[int, int], outputs: Mapping[int, int], after: Stream) -> CapturedGraph:
        graph, steps = self.graph(inputs, outputs, after)
        return CapturedGraph(None if graph is None else graph.instantiate(), steps, steps)

    def graph(
        self, inputs: Mapping[int, int], outputs: Mapping[int, int], after: Stream
    ) -> tuple[Graph | None, list[BoundStep]]:
        """Captures all steps for addresses by index; returns the graph, None if they must run one by one, and the steps.

        after: stream whose work (copies of arguments) must finish first.
        """
        addresses = self._bound(inputs, outputs)
        steps = bound_steps(self.steps, addresses, self.functions, self.overlap)
        if self.hosted or not steps:
            return None, steps
        own = self.device.stream()
        own.after(after)
        self._warm_up(steps, own)
        return _capture_steps(steps, addresses, self.device, own), steps

    def _bound(self, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> dict[int, int]:
        """Returns the addresses of all buffers, with the caller's for arguments and results that are used in place."""
        addresses = dict(self.addresses)
        for b in self.io_buffers:
            addresses_of = inputs if b.kind == "input" else outputs
            if b.index in addresses_of:
                addresses[id(b)] = addresses_of[b.index]
        return addresses

    def _warm_up(self, steps: Sequence[BoundStep], stream: Stream) -> None:
        """Runs all steps without capture, since libraries initialize lazily; the first run locates errors."""
        warm_up(steps, stream, alone=not self._warmed_up)
        self._warmed_up = True

    def _on_host(self, step: HostStep, addresses: Mapping[int, int], stream: Any) -> None:
        stream.wait()
        arrays = []
        for v in step.inputs:
            array = np.empty(v.lens, v.shape.dtype.numpy)
            if array.size:
                self.device.download(array, addresses[id(v.buffer)] + v.byte_offset)
            arrays.append(array)
        for v, result in zip(step.outputs, step.function(arrays), strict=True):
            array = np.ascontiguousarray(result)
            if array.size:
                stream.copy_in(addresses[id(v.buffer)] + v.byte_offset, array)
                stream.wait()

    def _on_device(self, step: DeviceStep, addresses: Mapping[int, int]) -> None:
        def array(value: Value) -> DeviceArray:
            shape, address = value.shape, addresses[id(value.buffer)] + value.byte_offset
            space = shape.element_space() * shape.dtype.size
            return DeviceArray(DeviceBuffer(self.device, address, space), shape.dtype, value.lens, value.strides)

        with naming_errors(step):
            step.function([array(v) for v in step.inputs], [array(v) for v in step.outputs])


def warm_up(steps: Sequence[BoundStep], stream: Stream, alone: bool) -> None:
    """Runs all steps one by one; alone: waits after each, so that the step of an error is known."""
    for step, calls in steps:
        with naming_errors(step):
            for call in calls:
                call(stream.handle)
            if alone:
                stream.wait()
    stream.wait()


def enqueue(steps: Sequence[BoundStep], stream: int) -> None:
    """Enqueues all steps one by one: for streams under capture, which reject graph launches, and for addresses seen once."""
    for _, calls in steps:
        for call in calls:
            call(stream)


def _capture_steps(steps: Sequence[BoundStep], addresses: Mapping[int, int], device: Device, stream: Stream) -> Graph:
    """Captures all steps; merges the memset nodes of library counters into one.

    Libraries reset a counter at the start of their workspace before each launch.  One memset at the first of them covers all.
    The memset of a step is removed only if it clears that step's own window (see `share_workspaces`).
    """
    users = [n for n, (step, _) in enumerate(steps) if isinstance(step, LibraryStep) and step.window is not None]
    if not users:
        return captured(_calls(steps), device, stream)
    first = steps[users[0]].step
    assert isinstance(first, LibraryStep) and first.workspace is not None
    start, size = addresses[id(first.workspace)], HEAD * len(users)
    graph = captured(_calls(steps), device, stream)
    if len(_counters(graph, start, size)) < 2:
        return graph

    def clear(handle: int) -> None:
        device.stream(handle).fill(start, 0, size)

    own: set[int] = set()  # counters inside the window of their own step, which no earlier step writes
    for step, calls in (steps[n] for n in users):
        assert isinstance(step, LibraryStep) and step.window is not None
        eager = captured(calls, device, stream)
        own.update(_counters(eager, start + step.window, HEAD).values())
    graph = captured([*_calls(steps[: users[0]]), clear, *_calls(steps[users[0] :])], device, stream)
    for node, address in _counters(graph, start, size).items():
        if address in own:
            graph.remove(node)
    return graph


def _counters(graph: Graph, start: int, size: int) -> dict[int, int]:
    """Returns counter addresses by memset node, for counters cleared by a single node."""
    found = [
        (node, fill.address)
        for node, fill in graph.memsets()
        if not fill.value and fill.size <= HEAD and start <= fill.address <= start + size - fill.size
    ]
    times = Counter((address - start) // HEAD for _, address in found)
    return {node: address for node, address in found if times[(address - start) // HEAD] == 1}


def _calls(steps: Iterable[BoundStep]) -> list[Callable[[int], None]]:
    return [call for _, calls in steps for call in calls]


def captured(calls: Iterable[Callable[[int], None]], device: Device, stream: Stream) -> Graph:
    """Captures calls, each of which takes a stream handle, as a graph."""
    with device.capture(stream) as capture:
        for call in calls:
            call(stream.handle)
    return capture.result()


def _key(inputs: Mapping[int, int], outputs: Mapping[int, int]) -> Any:
    """Returns the cache key: addresses of arguments and results."""
    return (*sorted(inputs.items()), *((-1 - n, a) for n, a in sorted(outputs.items())))
