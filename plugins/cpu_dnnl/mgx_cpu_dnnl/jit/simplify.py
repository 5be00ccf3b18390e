"""Rewrites of a graph that need to see several nodes: softmax, whose exponents are never above 0."""

from __future__ import annotations

from mgx_core import dtype as dt

from .graph import Graph, Node, walk

__all__ = ["simplify"]


def simplify(graph: Graph) -> None:
    """Softmax: exponentials of what is not above 0, sums that are at least 1, and a maximum that need not mind NaN.

    With M the maximum of a, and S the sum of exp(a - M): the exponents are 0 or less and one of them is 0, so S is at least 1
    (or NaN).  A NaN in a makes S NaN by itself, so where everything depends on S the maximum may pass over it.
    """
    sums = [n for n in walk(graph.outputs) if _is_softmax_sum(n)]
    if not sums:
        return
    exponentials = {n.args[0].ident for n in sums}
    totals = {n.ident for n in sums}
    tops = {n.args[0].args[0].args[1].ident for n in sums if all(any(m is n for m in walk([o])) for o in graph.outputs)}
    went: dict[int, Node] = {}
    for node in walk(graph.outputs):
        args = tuple(went[a.ident] for a in node.args)
        extra = node.extra
        if node.ident in exponentials:
            extra = "exp_negative"
        elif node.ident in totals:
            extra = "total"
        elif node.ident in tops:
            extra = "top"
        if extra == node.extra and all(a is b for a, b in zip(args, node.args, strict=True)):
            went[node.ident] = node
        else:
            went[node.ident] = graph.node(node.kind, node.dtype, args, extra, node.axes, node.level)
    graph.outputs = [went[o.ident] for o in graph.outputs]


def _is_softmax_sum(node: Node) -> bool:
    if node.kind != "reduce" or node.extra != "sum" or node.dtype is not dt.float32:
        return False
    e = node.args[0]
    if e.kind != "prim" or e.extra != "exp":
        return False
    d = e.args[0]
    if d.kind != "prim" or d.extra != "sub":
        return False
    a, top = d.args
    return top.kind == "reduce" and top.extra == "max" and top.args[0] is a
