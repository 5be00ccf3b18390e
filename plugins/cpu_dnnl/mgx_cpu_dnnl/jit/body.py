"""Lowers a fused group's body to a graph: views become strides, ops become primitives."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.module import Module
from mgx_core.ops.broadcast import Broadcast, Multibroadcast
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Identity
from mgx_core.ops.reduce import ReduceMean
from mgx_core.ops.reshape import Squeeze, Unsqueeze
from mgx_core.ops.scalar import NUMPY, PRIMITIVES, Call, Cast, Expr, fold, leaf_of, same
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import surely_equal

from .element import computed, supported
from .graph import Graph, Node

__all__ = ["prepared", "read"]

PATTERNS: Final = 64  # cached per body
# views whose strides along axes with an extent above 1 are their operand's, or 0
KEEPING = (Broadcast, Multibroadcast, Squeeze, Transpose, Unsqueeze)
KINDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


class _Tree:
    """A value of the body before it is mapped to the iteration space: a function that builds its node, and its strided leaves.

    Views are pushed down to the leaves; a reduction is a leaf whose strides encode its axes.
    """

    __slots__ = ("args", "build", "leaf", "shape")

    def __init__(
        self, shape: Shape, build: Callable[..., Node], args: tuple[_Tree, ...] = (), leaf: bool = False
    ) -> None:
        self.shape = shape
        self.build = build
        self.args = args
        self.leaf = leaf


def prepared(
    body: Module,
    inputs: Sequence[Shape],
    dims: Sequence[int],
    axes: Sequence[int] = (),
    *prepare: Callable[[Graph], None],
) -> Graph:
    """Returns the graph of `read` after `prepare`, cached for bodies that differ only in extents and strides.

    prepare: rewrites that depend on neither.  Errors: Refused with the reason.
    """
    key = _pattern(body, inputs)
    if key is None:
        return _made(body, inputs, dims, axes, prepare)
    graphs: dict[Hashable, Graph] = body.pattern.derive("graphs", lambda _: {})
    key = (tuple(axes), prepare, key)
    graph = graphs.get(key)
    if graph is None:
        coded = [Shape(x.dtype, x.dims, [s and i + 1 for i, s in enumerate(x.strides())]) for x in inputs]
        if len(graphs) >= PATTERNS:
            graphs.clear()
        graph = graphs[key] = _made(body, coded, dims, axes, prepare)
    steps = {}
    for node in graph.nodes:
        if node.kind == "load":
            real = inputs[node.parameter].strides()
            steps[node.ident] = tuple([real[c - 1] if c else 0 for c in node.strides])
    return graph.placed(dims, steps)


def _made(
    body: Module,
    inputs: Sequence[Shape],
    dims: Sequence[int],
    axes: Sequence[int],
    prepare: Sequence[Callable[[Graph], None]],
) -> Graph:
    graph = read(body, inputs, dims, axes)
    for one in prepare:
        one(graph)
    return graph


def _pattern(body: Module, inputs: Sequence[Shape]) -> Hashable | None:
    """Returns the cache key of a body's nodes: besides its `pattern`, which extents are equal or 1, and which strides are 0.

    None if they depend on more: views that depend on strides or attributes, element counts, or extents of 0.
    """
    pattern = body.pattern
    if pattern is body or not pattern.derive("keeps strides", _keeps_strides):
        return None
    labels = {1: 0}
    found: list[Hashable] = []
    for ins in body:
        if not ins.is_return:
            shape = ins.shape
            found.append((shape.dtype, *[labels.setdefault(d, len(labels)) for d in shape.lens()]))
    for p, x in zip(body.parameters.values(), inputs, strict=True):
        if p.shape.dims != x.dims:
            return None
        found.append((x.dtype, *[s == 0 for s in x.strides()]))
    return None if 0 in labels else tuple(found)


def _keeps_strides(body: Module) -> bool:
    """Returns True if, for all extents, each stride of the result is that of an operand along one axis."""

    def fits(ins: Instruction) -> bool:
        counts = isinstance(ins.op, ReduceMean) and not ins.shape.dtype.is_float  # depends on the element count
        return isinstance(ins.op, KEEPING) or not (counts or ins.op.symbols() or ins.op.view)

    return all(fits(ins) for ins in body if not (ins.is_param or ins.is_return))


def read(body: Module, inputs: Sequence[Shape], dims: Sequence[int], axes: Sequence[int] = ()) -> Graph:
    """Returns the graph of a body whose parameters have the given strided shapes.  Errors: Refused with the reason."""
    return _Reader(body, inputs, dims, axes).run()


class _Reader:
    def __init__(self, body: Module, inputs: Sequence[Shape], dims: Sequence[int], axes: Sequence[int]) -> None:
        self.inputs = inputs
        self.graph = Graph(dims, frozenset(axes))
        self.body = body
        self.kept = tuple(1 if i in self.graph.reduced else n for i, n in enumerate(dims))
        self.held: dict[Instruction, _Tree] = {}
        self.placed: dict[tuple[int, int], Node] = {}
        self.trees: list[_Tree] = []  # keeps the trees alive, so that their ids stay unique

    def run(self) -> Graph:
        parameters = list(self.body.parameters.values())
        if len(parameters) != len(self.inputs):
            raise Refused(f"the body has {len(parameters)} parameters, got shapes for {len(self.inputs)}")
        body = self.body
        if not all(surely_equal(p.shape.dims, x.dims) for p, x in zip(parameters, self.inputs, strict=True)):
            fresh = {p.op.label: x.as_standard() for p, x in zip(parameters, self.inputs, strict=True)}  # type: ignore[attr-defined]
            body = body.clone(parameters=fresh)
        at = 0
        for ins in body:
            if ins.is_param:
                self.held[ins] = self._leaf(at, self.inputs[at])
                at += 1
            elif not ins.is_return and not ins.is_absent:
                self.held[ins] = self._tree(ins)
        self.graph.outputs = [self._stored(self._place(self.held[o])) for o in body.outputs]
        return self.graph

    def _stored(self, node: Node) -> Node:
        """Makes stored quotients of inputs exact, since a consumer may round them to integers."""
        if node.kind == "prim" and node.word == "where":  # a quantization scale, or 1 for an empty range
            condition, *chosen = node.args
            return self.graph.prim("where", node.dtype, (condition, *map(self._stored, chosen)))
        given = node.kind == "prim" and node.word == "div" and node.args[1].kind in ("load", "const")
        return self.graph.exact(node) if given else node

    def _keep(self, tree: _Tree) -> _Tree:
        self.trees.append(tree)
        return tree

    def _leaf(self, param: int, shape: Shape) -> _Tree:
        if not supported(shape.dtype):
            raise Refused(f"loops do not support {shape.dtype}")

        def build(tree: _Tree) -> Node:
            lens, steps = tree.shape.lens(), tree.shape.strides()
            if tree.shape.elements() == 1:
                lens = steps = [1] * len(self.graph.dims)
            return self.graph.load(param, shape.dtype, [0 if n == 1 else s for n, s in zip(lens, steps, strict=True)])

        return self._keep(_Tree(shape, build, leaf=True))

    def _tree(self, ins: Instruction) -> _Tree:
        op = ins.op
        if ins.literal is not None:
            return self._literal(ins)
        if isinstance(op, Pointwise):
            return self._pointwise(ins)
        if op.combine:
            return self._reduction(ins)
        if isinstance(op, Identity):
            return self.held[ins.inputs[0]]
        if op.view is not None and len(ins.inputs) == 1:
            return self._viewed(self.held[ins.inputs[0]], op)
        raise Refused(f"{op.name} is not a pointwise op, reduction or view")

    def _literal(self, ins: Instruction) -> _Tree:
        value = np.asarray(ins.literal.value) if ins.literal is not None else np.asarray(0)
        if value.size != 1 or not supported(ins.shape.dtype):
            raise Refused(f"the literal {ins.shape} in the body is not a supported scalar")
        dtype = ins.shape.dtype
        number = value.reshape(()).astype(computed(dtype).numpy).item()
        return self._keep(_Tree(ins.shape, lambda tree: self.graph.const(number, computed(dtype)), leaf=True))

    def _viewed(self, tree: _Tree, op: Any) -> _Tree:
        if tree.leaf:
            found = _view(op, tree.shape)
            if found is None:
                raise Refused(f"{op.name} of {tree.shape} is not a view")
            offset, shape = found
            if offset:
                raise Refused(f"{op.name} of an input starts at an offset")
            return self._keep(_Tree(shape, tree.build, leaf=True))
        return self._keep(_Tree(op.infer(tree.shape), tree.build, tuple(self._viewed(a, op) for a in tree.args)))

    def _pointwise(self, ins: Instruction) -> _Tree:
        args = tuple(self.held[i] for i in ins.inputs)
        result = ins.shape
        if not supported(result.dtype) or any(not supported(i.shape.dtype) for i in ins.inputs):
            raise Refused(f"loops do not support {ins.op.name} from {ins.inputs[0].shape.dtype} to {result.dtype}")
        op: Any = ins.op
        stored = [i.shape.dtype for i in ins.inputs]

        def build(*nodes: Node) -> Node:
            return _expression(self.graph, type(op).scalar, nodes, stored, op, result.dtype)

        return self._keep(_Tree(result.as_standard(), build, args))

    def _reduction(self, ins: Instruction) -> _Tree:
        graph = self.graph
        source = ins.inputs[0]
        rank = len(source.shape.dims)
        axes = set(ins.op.reduced_axes(rank))
        if len(ins.inputs) != 1 or tuple(source.shape.dims) != graph.dims or axes != graph.reduced:
            raise Refused(
                f"{ins.op.name} over {sorted(axes)} of {source.shape} in a group over {sorted(graph.reduced)}"
            )
        kind = "mean" if isinstance(ins.op, ReduceMean) else KINDS[ins.op.combine]
        dtype = ins.shape.dtype
        x = self._place(self.held[source])
        node = self._whole_mean(x, dtype) if kind == "mean" and not dtype.is_float else graph.reduce(kind, x, dtype)
        codes = Shape(dtype, self.kept, [i + 1 for i in range(rank)]) if rank else Shape(dtype, ())

        def fixed(tree: _Tree) -> Node:
            for axis, (n, step) in enumerate(zip(tree.shape.lens(), tree.shape.strides(), strict=True)):
                if n != 1 and step not in (0, axis + 1):
                    raise Refused("a reduction's result is used along another axis")
            return node

        return self._keep(_Tree(codes, fixed, leaf=True))

    def _whole_mean(self, x: Node, dtype: DType) -> Node:
        """Returns the mean of integers: their int64 sum divided by the element count, rounded toward zero."""
        graph, wide = self.graph, dt.uint64 if dtype.kind == "u" else dt.int64
        count = math.prod(n for i, n in enumerate(graph.dims) if i in graph.reduced)
        if not count:
            raise Refused("the mean of integers requires at least one element")
        total = graph.reduce("sum", graph.convert(x, wide), wide)
        return graph.convert(graph.prim("div", wide, (total, graph.const(count, wide))), dtype)

    def _place(self, tree: _Tree) -> Node:
        """Returns the node of a value whose dims are those of the iteration space or of the reductions."""
        found = self.placed.get((id(tree), 0))
        if found is not None:
            return found
        dims = tuple(tree.shape.dims)
        if dims not in (self.graph.dims, self.kept) and not (tree.leaf and tree.shape.elements() == 1 and not dims):
            raise Refused(f"a value of dims {list(dims)} in a group over {list(self.graph.dims)}")
        node = tree.build(tree) if tree.leaf else tree.build(*(self._place(a) for a in tree.args))
        self.placed[(id(tree), 0)] = node
        return node


@lru_cache(1024)
def _view(op: Any, shape: Shape) -> Any:
    """Returns the op's view, cached since bodies repeat it."""
    return op.view(shape)


def _expression(
    graph: Graph, expr: Expr, nodes: Sequence[Node], stored: Sequence[DType], attributes: Any, result: DType
) -> Node:
    """Lowers an op's scalar expression as `mgx_core.ops.scalar.evaluate` does: numbers take the type of the other operand."""
    like = computed(stored[0]) if stored else dt.float32

    def as_node(value: Any, dtype: DType) -> Node:
        if isinstance(value, Node):
            return value
        return graph.const(np.asarray(value).astype(dtype.numpy).item(), dtype)

    def node(e: Call, args: list[Any]) -> Any:
        if not any(isinstance(a, Node) for a in args):
            given = 1 if e.primitive == "where" else 0
            with np.errstate(all="ignore"):
                value = NUMPY[e.primitive](*args[:given], *same(args[given:], like.numpy))
            return graph.const(np.asarray(value).item(), dt.of(np.asarray(value).dtype))
        choices = args[1:] if e.primitive == "where" else args
        known = next((a for a in reversed(choices) if isinstance(a, Node)), None)
        if known is not None:
            kind = computed(known.dtype)
        else:
            kind = dt.float32 if not like.is_float and any(isinstance(a, float) for a in choices) else like
        operands = tuple(as_node(a, kind) for a in choices)
        if e.primitive == "where":
            condition = args[0] if isinstance(args[0], Node) else graph.const(bool(args[0]), dt.bool_)
            return graph.prim("where", kind, (condition, *operands))
        if PRIMITIVES[e.primitive][1]:
            operands = tuple(map(graph.exact, operands))
            return graph.node(
                "prim", dt.bool_, operands, e.primitive, frozenset[int]().union(*(o.axes for o in operands)),
                max(o.level for o in operands),
            )  # fmt: skip
        return graph.prim(e.primitive, kind, operands)

    def cast(e: Cast, value: Any) -> Any:
        to = getattr(attributes, e.to) if isinstance(e.to, str) else e.to
        if not supported(to):
            raise Refused(f"loops do not support {to}")
        return graph.convert(as_node(value, like), to)

    made = fold(expr, lambda e: leaf_of(e, nodes, attributes), node, cast)
    out = as_node(made, computed(result))
    return out if computed(out.dtype) is computed(result) else graph.convert(out, result)
