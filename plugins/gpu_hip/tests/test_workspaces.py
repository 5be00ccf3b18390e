"""Library plans share one workspace, and one memset node clears their counters."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mgx_core.targets.values import Buffer
from mgx_gpu_hip.bound_steps import BoundStep
from mgx_gpu_hip.graph_cache import _capture_steps
from mgx_gpu_hip.runtime import open_device
from mgx_gpu_hip.runtime.graph import Graph
from mgx_gpu_hip.runtime.symbols import C_TYPES, CALLS
from mgx_gpu_hip.steps import LibraryStep
from mgx_gpu_hip.workspaces import HEAD, MAX_BYTES, share_workspaces

TYPES = {call.name: [C_TYPES[c] for c in call.parameters("cuda")] for call in CALLS}


def step(size: int | None, plan: Any = None) -> LibraryStep:
    buffer = None if size is None else Buffer("arena", size)
    out = Buffer("arena", 8)
    return LibraryStep(
        "product", [], [out] if buffer is None else [out, buffer], plan=plan, operands={}, aligns={}, workspace=buffer
    )


def test_no_step_writes_to_the_start_of_a_later_ones_window() -> None:
    sizes = [256, None, 4096, 100, MAX_BYTES + 1, 2048]
    steps = [step(size) for size in sizes]
    share_workspaces(steps)
    shared = [s for s, size in zip(steps, sizes, strict=True) if size and size <= MAX_BYTES]
    whole = shared[0].workspace
    assert whole is not None and all(s.workspace is whole and s.writes[1] is whole for s in shared)
    for n, s in enumerate(shared):
        assert s.window is not None and s.window % HEAD == 0
        assert all(s.window >= later.window + HEAD for later in shared[n + 1 :])
    assert whole.bytes == max(w.window + n for w, n in zip(shared, (256, 4096, 100, 2048), strict=True))
    assert steps[1].workspace is None and steps[1].window is None
    assert steps[4].workspace is not whole and steps[4].window is None


def test_a_single_workspace_stays_as_it_is() -> None:
    (alone,) = steps = [step(512)]
    held = alone.workspace
    share_workspaces(steps)
    assert alone.workspace is held and alone.window is None


class Nodes:
    """A driver's graph: a chain of nodes by number; odd ones fill memory."""

    def __init__(self, kinds: list[tuple[int, int, int] | None]) -> None:
        self.kinds = dict(enumerate(kinds, 1))
        self.edges = {(n, n + 1) for n in range(1, len(kinds))}

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name not in TYPES:
            return found

        def call(*args: Any) -> None:
            for kind, value in zip(TYPES[name], args, strict=True):
                kind.from_param(value)  # with the conventions of the driver's functions
            found(*args)

        return call

    def graph_nodes(self, handle: int, found: Any, count: Any) -> None:
        _give(list(self.kinds), found, count)

    def graph_node_needs(self, node: int, found: Any, count: Any) -> None:
        _give([a for a, b in self.edges if b == node], found, count)

    def graph_node_users(self, node: int, found: Any, count: Any) -> None:
        _give([b for a, b in self.edges if a == node], found, count)

    def graph_node_free(self, node: int) -> None:
        del self.kinds[node]
        self.edges = {e for e in self.edges if node not in e}

    def graph_join(self, handle: int, before: Any, behind: Any, count: int) -> None:
        assert count == 1 and (before[0], behind[0]) not in self.edges
        self.edges.add((before[0], behind[0]))

    def graph_node_fill(self, node: int, given: Any) -> None:
        fill = self.kinds[node]
        assert fill is not None
        found = given._obj
        found.address, found.value, found.width, found.element, found.height = *fill, 1, 1

    def graph_free(self, handle: int) -> None:
        pass

    def out(self, name: str, node: int, type: Any, last: bool) -> int:
        return 0 if self.kinds[node] is None else 2


def _give(handles: list[int], found: Any, count: Any) -> None:
    if found is not None:
        found[: len(handles)] = handles
    ctypes.c_size_t.from_address(ctypes.addressof(count._obj)).value = len(handles)


def given(nodes: Nodes) -> Any:
    """Returns a device whose graphs have these nodes."""
    return SimpleNamespace(driver=nodes, dispose=lambda *_: None)


def test_omitted_members_leave_a_chain() -> None:
    nodes = Nodes([None, (512, 0, 4), None, (768, 7, 4), None])
    graph = Graph(given(nodes), 9)
    assert [(n, *f) for n, f in graph.memsets()] == [(2, 512, 0, 4), (4, 768, 7, 4)]
    graph.remove(2)
    assert nodes.edges == {(1, 3), (3, 4), (4, 5)} and graph.memsets()[0][0] == 4


def test_a_counter_in_the_part_of_an_earlier_step_is_cleared_before_its_own_step() -> None:
    recorded: list[tuple[int, int, int] | None] = []

    def capture(stream: Any) -> Any:
        recorded.clear()
        return nullcontext(SimpleNamespace(result=lambda: Graph(given(Nodes(list(recorded))), 9)))

    def fill(address: int, value: int, size: int) -> None:
        recorded.append((address, value, size))

    device: Any = SimpleNamespace(capture=capture, stream=lambda handle: SimpleNamespace(fill=fill))
    steps = [step(4 * HEAD) for _ in range(3)]
    share_workspaces(steps)
    assert [s.window for s in steps] == [2 * HEAD, HEAD, 0]
    cleared = [[], [HEAD, 2 * HEAD], [0]]  # the first step writes to the memory of the second's counter
    bound = [
        BoundStep(s, [*(lambda handle, a=a: fill(4096 + a, 0, 4) for a in fills), lambda handle: recorded.append(None)])  # type: ignore[misc]
        for s, fills in zip(steps, cleared, strict=True)
    ]
    graph = _capture_steps(bound, {id(steps[0].workspace): 4096}, device, SimpleNamespace(handle=7))  # type: ignore[arg-type]
    assert [f.address - 4096 for _, f in graph.memsets()] == [0, 2 * HEAD]


@pytest.mark.gpu
def test_counters_are_cleared_once_for_all_steps() -> None:
    device = open_device()
    memory = device.allocate(4 * HEAD)
    out = device.allocate(4 * 4)
    host = np.full(4 * HEAD, 0xFF, np.uint8)

    class Plan:
        """Clears its counter, reads it, and leaves a non-zero value there."""

        def __init__(self, number: int) -> None:
            self.number = number

        def launch(self, handle: int, workspace: int) -> None:
            stream = device.stream(handle)
            stream.fill(workspace, 0, 4)
            stream.copy(out.address + 4 * self.number, workspace, 4)
            stream.copy(workspace, memory.address + 3 * HEAD + 8, 4)  # which is not cleared

    steps = [step(HEAD, Plan(n)) for n in range(3)]
    share_workspaces(steps)
    (whole,) = {id(s.workspace): s.workspace for s in steps}.values()
    assert whole is not None
    bound = [
        BoundStep(s, [lambda handle, s=s: s.plan.launch(handle, memory.address + (s.window or 0))])  # type: ignore[misc]
        for s in steps
    ]
    stream = device.stream()
    graph = _capture_steps(bound, {id(whole): memory.address}, device, stream)
    assert graph.nodes() == 7 if device.kind == "cuda" else 9  # copies, and one node that clears
    made = graph.instantiate()
    for _ in range(2):
        stream.copy_in(memory.address, host)
        made.launch(stream.handle)
        stream.wait()
        found = np.ones(4, np.uint32)
        stream.copy_out(found, out.address)
        stream.wait()
        assert list(found[:3]) == [0, 0, 0]
