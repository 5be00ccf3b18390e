"""Topological order of a graph's nodes."""

from __future__ import annotations

from mgx_core import ParseError

from .messages import onnx

AttributeProto = onnx.AttributeProto
NodeProto = onnx.NodeProto

__all__ = ["in_order", "names_read"]

# the types of most attributes
WITHOUT_GRAPHS = frozenset(
    AttributeProto.AttributeType.Value(kind)
    for kind in ("FLOAT", "INT", "STRING", "TENSOR", "FLOATS", "INTS", "STRINGS")
)


def in_order(nodes: list[NodeProto]) -> list[NodeProto]:
    """Returns nodes in topological order.  Errors: ParseError if they form a cycle."""
    made_by = {name: n for n, node in enumerate(nodes) for name in node.output if name}
    done: set[str] = set()
    needs = [made_by.keys() & names_read(node) for node in nodes]
    for node, need in zip(nodes, needs, strict=True):
        if not need <= done:
            break
        done.update(node.output)
    else:
        return nodes
    waiting = [len(need) for need in needs]
    readers: dict[str, list[int]] = {}
    for n, need in enumerate(needs):
        for name in need:
            readers.setdefault(name, []).append(n)
    ready = [n for n, count in enumerate(waiting) if not count]
    order: list[NodeProto] = []
    for n in ready:
        order.append(nodes[n])
        for name in nodes[n].output:
            for reader in readers.get(name, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
    if len(order) < len(nodes):
        stuck = next(n for n, count in enumerate(waiting) if count)
        raise ParseError(f"the graph has a cycle through node {nodes[stuck].name!r} ({nodes[stuck].op_type})")
    return order


def names_read(node: NodeProto) -> list[str]:
    """Returns the names that a node reads, including values captured by its subgraphs."""
    found = [i for i in node.input if i]
    for a in node.attribute:
        if a.type in WITHOUT_GRAPHS:
            continue
        for graph in [a.g] if a.type == AttributeProto.GRAPH else a.graphs:
            own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
            own.update(name for inner in graph.node for name in inner.output)
            read = [name for inner in graph.node for name in names_read(inner)] + [o.name for o in graph.output]
            found += [name for name in read if name not in own]
    return found
