"""Analyses TensorFlow 1 control flow: assigns each node to a loop (frame) and to the conditions under which it runs.

Switch forwards a value to one of two outputs (_SwitchN to one of many), Merge forwards whichever input is available.  A loop is
a frame: the nodes between Enter and Exit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Final

from mgx_core import ParseError
from mgx_core.records import dataclass

from .graph import Graph, GraphNode, Port

__all__ = ["ENTER", "EXIT", "MERGE", "NEXT", "SWITCH", "Frame", "Places", "places_of"]

ENTER: Final = ("Enter", "RefEnter")
EXIT: Final = ("Exit", "RefExit")
MERGE: Final = ("Merge", "RefMerge")
NEXT: Final = ("NextIteration", "RefNextIteration")
SWITCH: Final = ("Switch", "RefSwitch", "_SwitchN")


@dataclass(eq=False)
class Frame:
    """A loop: its Merge nodes with their Enter and NextIteration inputs, its condition, and its Exit nodes by Merge."""

    name: str
    parent: Frame | None
    merges: list[GraphNode] = field(default_factory=list)
    enters: dict[str, GraphNode] = field(default_factory=dict)  # keyed by the Merge
    nexts: dict[str, GraphNode] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)  # Switch -> Merge
    condition: str = ""

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else 1 + self.parent.depth


@dataclass
class Places:
    """The frame and conditions (predicate -> branch) of each node; empty without TensorFlow 1 control flow."""

    frames: dict[str, Frame | None] = field(default_factory=dict)
    conditions: dict[str, dict[Port, int]] = field(default_factory=dict)

    def frame(self, node: str) -> Frame | None:
        return self.frames.get(node)

    def conditions_of(self, node: str) -> dict[Port, int]:
        return self.conditions.get(node, {})

    def along(self, graph: Graph, port: Port) -> dict[Port, int]:
        """Returns the conditions under which a port has a value: those of its node and, for a Switch, the branch."""
        found = self.conditions_of(port.node)
        node = graph.nodes.get(port.node)
        if node is None or node.op not in SWITCH or self._of_loop(node):
            return found
        return {**found, node.inputs[1]: port.place}

    def _of_loop(self, node: GraphNode) -> bool:
        frame = self.frame(node.name)
        return frame is not None and node.name in frame.switches


def places_of(graph: Graph) -> Places:
    """Returns the frames and conditions of a graph's nodes, computed once per graph.  Errors: ParseError for malformed loops."""
    found: Places | None = graph.derived.get("places")
    if found is None:
        special = any(n.op in SWITCH or n.op in ENTER or n.op in MERGE for n in graph.nodes.values())
        for node in graph.nodes.values():
            if node.op in SWITCH and len(node.inputs) != 2:
                raise ParseError(f"{node!r} requires a value and a condition, got {len(node.inputs)} inputs")
        found = graph.derived["places"] = _computed(graph) if special else Places()
    return found


def _computed(graph: Graph) -> Places:
    places = Places()
    order = _ordered(graph)
    frames: dict[tuple[str, Frame | None], Frame] = {}
    for node in order:
        places.frames[node.name] = _frame(node, places, frames)
    for node in order:
        _register(graph, node, places)
    for frame in frames.values():
        for merge in frame.merges:
            if merge.name not in frame.nexts or not frame.condition:
                raise ParseError(f"the loop of frame {frame.name!r} is not closed at {merge.name!r}")
    for node in order:
        places.conditions[node.name] = _conditions(graph, node, places)
    return places


def _ordered(graph: Graph) -> list[GraphNode]:
    """Returns the nodes in topological order, ignoring loop back edges."""
    waiting: dict[str, int] = {}
    readers: dict[str, list[GraphNode]] = {}
    for node in graph.nodes.values():
        read = {p.node for p in node.inputs} | set(node.controls)
        count = 0
        for name in read:
            other = graph.nodes.get(name)
            if other is not None and other.op not in NEXT:
                readers.setdefault(name, []).append(node)
                count += 1
        waiting[node.name] = count
    ready = deque(n for n in graph.nodes.values() if not waiting[n.name])
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for reader in readers.get(node.name, ()):
            waiting[reader.name] -= 1
            if not waiting[reader.name]:
                ready.append(reader)
    if len(order) < len(graph.nodes):
        stuck = next(n for n in graph.nodes.values() if waiting[n.name])
        raise ParseError(f"the graph has a cycle through {stuck!r}")
    return order


def _frame(node: GraphNode, places: Places, frames: dict[tuple[str, Frame | None], Frame]) -> Frame | None:
    read = [places.frame(p.node) for p in node.inputs] + [places.frame(c) for c in node.controls]
    deepest = max((f for f in read if f is not None), key=lambda f: f.depth, default=None)
    if node.op in EXIT:
        if deepest is None:
            raise ParseError(f"{node!r} does not exit a loop")
        return deepest.parent
    if node.op in ENTER:
        name = node.attributes["frame_name"].s.decode("utf-8", "replace") if "frame_name" in node.attributes else ""
        key = (name, deepest)
        if key not in frames:
            frames[key] = Frame(name, deepest)
        return frames[key]
    return deepest


def _register(graph: Graph, node: GraphNode, places: Places) -> None:
    """Records a node's role in its loop."""
    frame = places.frame(node.name)
    if frame is None:
        return
    sources = [graph.nodes.get(p.node) for p in node.inputs]
    if node.op in MERGE and any(s is not None and s.op in NEXT for s in sources):
        frame.merges.append(node)
        for source in sources:
            if source is not None and source.op in NEXT:
                frame.nexts[node.name] = source
            elif source is not None and source.op in ENTER:
                frame.enters[node.name] = source
        if len(sources) != 2 or node.name not in frame.enters or node.name not in frame.nexts:
            raise ParseError(f"{node!r} of loop {frame.name!r} must have an Enter and a NextIteration as inputs")
    elif node.op == "LoopCond":
        if frame.condition:
            raise ParseError(f"the loop of frame {frame.name!r} has two conditions")
        frame.condition = node.name
    elif node.op in SWITCH and len(sources) == 2 and sources[1] is not None and sources[1].op == "LoopCond":
        merge = sources[0]
        if merge is None or merge.op not in MERGE:
            raise ParseError(f"{node!r} of loop {frame.name!r} must read a Merge")
        frame.switches[node.name] = merge.name


def _conditions(graph: Graph, node: GraphNode, places: Places) -> dict[Port, int]:
    frame = places.frame(node.name)
    if frame is not None and node.name in frame.nexts and node.op in MERGE:
        return places.conditions_of(frame.enters[node.name].name)
    edges = [places.along(graph, p) for p in node.inputs]
    controls = [places.conditions_of(c) for c in node.controls if c in graph.nodes]
    if node.op not in MERGE or not edges:
        joined: dict[Port, int] = {}
        for edge in (*edges, *controls):
            joined.update(edge)
        return joined
    kept = {p: b for p, b in edges[0].items() if all(e.get(p) == b for e in edges[1:])}
    for control in controls:
        kept.update(control)
    return kept
