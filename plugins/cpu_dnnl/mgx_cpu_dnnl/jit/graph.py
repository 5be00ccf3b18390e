"""Dataflow graphs of primitives over one iteration space: the IR from which loops are generated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape

from .cost import COST, VECTORS64
from .element import computed

__all__ = ["Graph", "Node", "bounded", "number", "read_in_place", "text_of", "walk"]

BOUNDS: Final = {"max": "max_const", "min": "min_const"}
# a difference in the last place of an operand may change their result by a whole step
STEPS: Final = frozenset(("round", "floor", "ceil", "trunc", "mod", "fmod", "sign"))
# between such and a quotient
MOVED: Final = frozenset(("div", "exact_div", "add", "sub", "mul", "neg", "abs", "max", "min", "where"))

T = TypeVar("T")


class Node:
    """A node: one value at each point of the iteration space.

    kind: ``load``, ``const``, ``prim``, ``convert``, ``reduce``; dtype: as computed (for ``load`` as stored); word: the
    name of the primitive or reduction, the type that is converted to, or the constant as text; parameter, strides: what a load
    reads, with strides by axis; axes: the axes along which it varies.  Nodes are hash-consed: equal nodes are one object.
    """

    __slots__ = ("args", "axes", "dtype", "ident", "kind", "level", "parameter", "strides", "word")

    def __init__(
        self,
        kind: str,
        dtype: DType,
        args: tuple[Node, ...],
        word: str,
        axes: frozenset[int],
        level: int,
        parameter: int = 0,
        strides: tuple[int, ...] = (),
    ) -> None:
        self.kind = kind
        self.dtype = dtype
        self.args = args
        self.word = word
        self.axes = axes
        self.level = level  # longest chain of reductions below it
        self.parameter = parameter
        self.strides = strides
        self.ident = 0

    @property
    def cost(self) -> int:
        """Returns roughly how many vector instructions it takes, without its operands."""
        if self.kind in ("const", "load"):
            return 1 if self.kind == "load" else 0
        if self.kind == "prim":
            cost = COST.get(self.word, 1)
            if self.dtype is not dt.float64 or cost < 13:
                return cost
            return cost * (3 if self.word in VECTORS64 else 10)
        return 2


class Graph:
    """A hash-consed graph and its outputs."""

    def __init__(self, dims: Sequence[int], reduced: frozenset[int]) -> None:
        self.dims = tuple(dims)
        self.reduced = reduced
        self._outputs: list[Node] = []
        self._known: dict[Hashable, Node] = {}
        self._found: dict[Hashable, Any] = {}
        self._steps: Mapping[int, tuple[int, ...]] | None = None  # by ident, if the graph was made by `placed`
        self._shares = False  # True if `_known` is shared with other graphs

    @property
    def outputs(self) -> list[Node]:
        """Returns the nodes that the body returns."""
        return self._outputs

    @outputs.setter
    def outputs(self, nodes: list[Node]) -> None:
        self._outputs, self._found = nodes, {}

    def placed(self, dims: Sequence[int], steps: Mapping[int, tuple[int, ...]]) -> Graph:
        """Returns the same nodes over other extents; steps: strides of the loads by `ident`."""
        made = Graph(dims, self.reduced)
        made._outputs, made._known, made._found = self._outputs, self._known, self._found
        made._steps, made._shares = steps, True
        return made

    def steps(self, load: Node) -> tuple[int, ...]:
        """Returns the strides of a load by axis."""
        return load.strides if self._steps is None else self._steps[load.ident]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns `make()`, cached for all graphs that differ only in extents and strides; it must not depend on these."""
        found: T | None = self._found.get(key)
        if found is None:
            found = self._found[key] = make()
        return found

    @property
    def nodes(self) -> list[Node]:
        """Returns all nodes in topological order."""
        return self.once("nodes", lambda: list(walk(self.outputs)))

    @property
    def cost(self) -> int:
        """Returns roughly how many vector instructions a point takes."""
        return self.once("cost", lambda: sum(node.cost for node in self.nodes))

    def node(
        self, kind: str, dtype: DType, args: tuple[Node, ...], word: str, axes: frozenset[int], level: int
    ) -> Node:
        """Returns a node that is not a load."""
        key = (kind, dtype.name, tuple(a.ident for a in args), word)
        return self._known.get(key) or self._add(key, Node(kind, dtype, args, word, axes, level))

    def _add(self, key: Hashable, node: Node) -> Node:
        if self._shares:
            self._known, self._shares = dict(self._known), False
        self._known[key] = node
        node.ident = len(self._known)
        return node

    def load(self, param: int, dtype: DType, strides: Sequence[int]) -> Node:
        steps = tuple(0 if n == 1 else s for n, s in zip(self.dims, strides, strict=True))
        axes = frozenset(i for i, s in enumerate(steps) if s)
        key = ("load", dtype.name, param, steps)
        return self._known.get(key) or self._add(key, Node("load", dtype, (), "", axes, 0, param, steps))

    def const(self, value: Any, dtype: DType) -> Node:
        return self.node("const", dtype, (), repr(value), frozenset(), 0)

    def prim(self, name: str, dtype: DType, args: tuple[Node, ...]) -> Node:
        axes = frozenset[int]().union(*(a.axes for a in args))
        if name == "div" and dtype is dt.float32:
            simpler = self._division(args)
            if simpler is not None:
                return simpler
        if name == "add" and dtype is dt.float32:
            simpler = self._one_and_tanh(args)
            if simpler is not None:
                return simpler
        if name == "pow" and dtype.is_float and args[1].kind == "const" and float(args[1].word) in (3.0, 4.0):
            square = self.prim("mul", dtype, (args[0], args[0]))
            return self.prim("mul", dtype, (square, args[0] if float(args[1].word) == 3.0 else square))
        if name in ("max", "min") and dtype.is_float and any(a.kind == "const" and a.word == "nan" for a in args):
            name = "add"  # NaN for any other operand: code for min and max by a constant assumes that it is a number
        if name in STEPS and args[0].dtype.is_float:  # halfway between two integers, the last bit decides
            args = tuple(self.exact(a) for a in args)
        return self.node("prim", dtype, args, name, axes, max((a.level for a in args), default=0))

    def _division(self, args: tuple[Node, ...]) -> Node | None:
        """Rewrites 1 / (1 + exp(-x)) as one primitive."""
        one, below = args
        if not (one.kind == "const" and float(one.word) == 1.0 and below.kind == "prim" and below.word == "add"):
            return None
        a, b = below.args
        if b.kind == "const":
            a, b = b, a
        if not (a.kind == "const" and float(a.word) == 1.0 and b.kind == "prim" and b.word == "exp"):
            return None
        x = b.args[0]
        x = x.args[0] if x.kind == "prim" and x.word == "neg" else self.prim("neg", dt.float32, (x,))
        return self.prim("sigmoid", dt.float32, (x,))

    def _one_and_tanh(self, args: tuple[Node, ...]) -> Node | None:
        """Rewrites 1 + tanh(x) as 2 / (1 + exp(-2 x)), which does not cancel where tanh is near -1."""
        a, b = args if args[0].kind == "const" else args[::-1]
        if not (a.kind == "const" and float(a.word) == 1.0 and b.kind == "prim" and b.word == "tanh"):
            return None
        twice = self.prim("add", dt.float32, (b.args[0], b.args[0]))
        half = self.prim("sigmoid", dt.float32, (twice,))
        return self.prim("add", dt.float32, (half, half))

    def exact(self, x: Node, depth: int = 8) -> Node:
        """Returns a value whose divisions, up to a few sums and products away, do not become products with reciprocals."""
        if x.kind != "prim" or x.word not in MOVED or x.dtype is not dt.float32 or not depth:
            return x
        args = tuple(self.exact(a, depth - 1) for a in x.args)
        word = "exact_div" if x.word == "div" else x.word
        return self.node("prim", x.dtype, args, word, x.axes, x.level)

    def convert(self, x: Node, to: DType) -> Node:
        """Returns x converted to a type; the node computes in a wider one, and has the narrow type's name as `word`."""
        source = x.dtype
        if x.kind == "load" and x.dtype is to:
            return x
        if source is to or (computed(source) is to):
            return x
        if not to.is_float:
            x = self.exact(x)
        if x.kind == "const":
            value: Any = number(x)
            with np.errstate(all="ignore"):
                from mgx_core.ops.scalar import convert

                made = convert(np.asarray(value, computed(source).numpy), to)
            return self.const(made.astype(computed(to).numpy).item(), computed(to))
        return self.node("convert", computed(to), (x,), to.name, x.axes, x.level)

    def reduce(self, kind: str, x: Node, dtype: DType) -> Node:
        return self.node("reduce", computed(dtype), (x,), kind, x.axes - self.reduced, x.level + 1)


def bounded(node: Node) -> tuple[str, tuple[Node, ...]]:
    """Returns name and operands of a primitive; the maximum or minimum of a float32 and a constant becomes a clamp.

    A clamp's second operand is the constant, which is not NaN; of two zeros of different signs it returns the first operand.
    Constants that loops get as arguments must be treated the same way, so that all code computes equal bits.
    """
    name, args = node.word, node.args
    if name not in BOUNDS or node.dtype is not dt.float32 or all(a.kind != "const" for a in args):
        return name, args
    return BOUNDS[name], args if args[1].kind == "const" else args[::-1]


def read_in_place(graph: Graph, outputs: Sequence[Shape]) -> frozenset[int]:
    """Returns the parameters that results may alias: an element is only read to compute the result at the same index."""
    loads = [(n.parameter, graph.steps(n)) for n in graph.nodes if n.kind == "load"]
    full = [o for o in outputs if tuple(o.lens()) == graph.dims]
    wanted = {tuple(0 if n == 1 else s for n, s in zip(graph.dims, o.strides(), strict=True)) for o in full}
    once = [(param, steps) for param, steps in loads if sum(param == other for other, _ in loads) == 1]
    return frozenset(param for param, steps in once if wanted == {steps})


def number(node: Node) -> Any:
    text = node.word
    return {"True": True, "False": False}[text] if text in ("True", "False") else _parse(text)


def _parse(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return float(text)


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yields nodes and their transitive operands once each, in topological order."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node.ident in seen:
            return
        seen.add(node.ident)
        for a in node.args:
            yield from visit(a)
        yield node

    for node in nodes:
        yield from visit(node)


def text_of(
    nodes: Sequence[Node],
    load: Callable[[Node], Any] = lambda node: node.parameter,
    const: Callable[[Node], Any] = lambda node: node.word,
) -> tuple[str, dict[int, int]]:
    """Returns nodes as text for a key, a line each, and their line numbers by `ident`; load, const: text of such nodes."""
    at = {n.ident: i for i, n in enumerate(nodes)}
    words = {"load": load, "const": const}
    lines = [
        f"{i} {n.kind} {n.dtype} {words[n.kind](n) if n.kind in words else n.word} {[at[a.ident] for a in n.args]}"
        for i, n in enumerate(nodes)
    ]
    return "\n".join(lines), at
