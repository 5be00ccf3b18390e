"""Control flow: functions, branches and loops of TensorFlow 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgx_core import Instruction, Module
from mgx_core import dtype as dt

from ..control_graph import EXIT
from ..converter import converts_values
from ..graph import Port
from ..loops import conditional, loop
from ..node import Node, Surroundings
from ..values import Value


@converts_values("PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "BatchFunction")
def partitioned_call(n: Node, *xs: Value) -> Any:
    called = n.function("f")
    return n.scope.call_as_read(n, called.name, called.attr, xs)


def truth(n: Node, x: Value) -> Instruction:
    """Returns a condition as bool: a scalar is true if nonzero, other tensors if not empty."""
    if not isinstance(x, Instruction):
        n.fail("a condition must be a tensor")
    if x.shape.rank:
        total = 1
        for d in x.shape.dims:
            if not isinstance(d, int):
                n.unsupported("a condition of unknown extents")
            total *= d
        return n.literal(total != 0, dt.bool_)
    if x.shape.dtype is dt.bool_:
        return x
    if x.shape.dtype.kind == "s":
        return n.pointwise("not", n.add("tf_string_equal", x, n.literal("", dt.string)))
    return n.pointwise("not_equal", x, n.literal(0, x.shape.dtype))


@converts_values("If", "StatelessIf")
def if_(n: Node, condition: Value, *xs: Value) -> Any:
    ways = []
    for name in ("then_branch", "else_branch"):
        called = n.function(name)
        ways.append(lambda m, c=called: n.scope.call(n, c.name, c.attr, xs, m))
    return conditional(n, truth(n, condition), ways)


@converts_values("Case", "StatelessCase")
def case(n: Node, index: Value, *xs: Value) -> Any:
    functions = n.functions("branches")
    if not functions or not isinstance(index, Instruction):
        n.fail("branches and an index are required")

    def way(m: Module, k: int) -> list[Value]:
        called = functions[k]
        return n.scope.call(n, called.name, called.attr, xs, m)

    return _chosen(n, index, len(functions), way)


def _chosen(n: Node, index: Instruction, count: int, way: Callable[[Module, int], list[Value]]) -> list[Value]:
    """Returns the results of branch `index`; an index out of range selects the last branch."""
    known = n.constant(index)
    if known is not None:
        at = int(known.reshape(()))
        return way(n.module, at if 0 <= at < count else count - 1)

    def rest(m: Module, k: int) -> list[Value]:
        if k == count - 1:
            return way(m, k)
        inner = n if m is n.module else Node(_into(n.scope, m), n.node)
        here = inner.pointwise("equal", index, inner.literal(k, index.shape.dtype))
        return conditional(inner, here, [lambda t: way(t, k), lambda e: rest(e, k + 1)])

    return rest(n.module, 0)


def _into(scope: Surroundings, module: Module) -> Surroundings:
    """Returns the scope for building into a module nested in its own."""
    return scope.within(module)


@converts_values("While", "StatelessWhile")
def while_(n: Node, *xs: Value) -> Any:
    condition, body = n.function("cond"), n.function("body")
    graph = n.scope.function(body.name)
    if len(graph.returned) != len(xs) or len(graph.arguments) != len(xs):
        n.fail(f"function {body.name!r} must take and return {len(xs)} values")
    return loop(
        n,
        xs,
        lambda m, values: n.scope.call(n, condition.name, condition.attr, values, m),
        lambda m, values: n.scope.call(n, body.name, body.attr, values, m),
        [k for k, p in enumerate(graph.returned) if graph.origin(p) == Port(graph.arguments[k])],
    )


@converts_values("For")
def for_(n: Node, start: Instruction, limit: Instruction, delta: Instruction, *xs: Value) -> Any:
    body = n.function("body")

    def condition(m: Module, values: list[Value]) -> list[Value]:
        inner = Node(_into(n.scope, m), n.node)
        return [inner.pointwise("less", _tensor(n, values[0]), limit)]

    def trip(m: Module, values: list[Value]) -> list[Value]:
        inner = Node(_into(n.scope, m), n.node)
        after = n.scope.call(n, body.name, body.attr, values, m)
        return [inner.pointwise("add", _tensor(n, values[0]), delta), *after]

    return loop(n, [start, *xs], condition, trip)[1:]


def _tensor(n: Node, value: Value) -> Instruction:
    return value if isinstance(value, Instruction) else n.fail("a tensor is required")


# control flow of TensorFlow 1


@converts_values("Switch", "RefSwitch")
def switch(n: Node, x: Value, condition: Value) -> Any:
    return x, x


@converts_values("_SwitchN")
def switch_n(n: Node, x: Value, index: Value) -> Any:
    return (x,) * n.int("num_outs")


@converts_values("Enter", "RefEnter", "LoopCond", "NextIteration", "RefNextIteration")
def through(n: Node, x: Value) -> Value:
    return x


@converts_values("Merge", "RefMerge")
def merge(n: Node) -> Any:
    scope, ports = n.scope, n.node.inputs
    places = scope.places
    along = [places.along(scope.graph, p) for p in ports]
    deciding = [p for p in along[0] if all(p in a for a in along) and len({a[p] for a in along}) == len(along)]
    if len(ports) < 2 or not deciding:
        return n.fail("the merged branches must come from the same Switch")
    decides = deciding[-1]
    by_branch = {a[decides]: port for a, port in zip(along, ports, strict=True)}
    index = scope.value(decides)
    if not isinstance(index, Instruction):
        n.fail("the predicate of a Switch must be a tensor")

    def way(m: Module, branch: int) -> list[Value]:
        return [scope.within(m, conditions={decides: branch}).value(by_branch[branch])]

    if index.shape.dtype is dt.bool_ and set(by_branch) == {0, 1}:
        (made,) = conditional(n, index, [lambda m: way(m, 1), lambda m: way(m, 0)])
        return made, n.convert(index, dt.int32)
    if sorted(by_branch) != list(range(len(ports))):
        n.fail(f"branches {list(range(len(ports)))} are required, got {sorted(by_branch)}")
    (made,) = _chosen(n, index, len(ports), way)
    return made, index


@converts_values("Exit", "RefExit")
def exit_(n: Node) -> Any:
    scope = n.scope
    source = n.node.inputs[0].node
    frame = scope.places.frame(source)
    if frame is None or source not in frame.switches:
        return n.fail("an Exit must read a Switch")
    merges = frame.merges
    conditions = scope.places.conditions_of(frame.enters[merges[0].name].name)

    def inside(m: Module, values: list[Value]) -> Surroundings:
        inner = scope.within(m, frame, conditions)
        for each, value in zip(merges, values, strict=True):
            inner.values[each.name] = (value, None)
        return inner

    def condition(m: Module, values: list[Value]) -> list[Value]:
        return [inside(m, values).value(Port(frame.condition))]

    def trip(m: Module, values: list[Value]) -> list[Value]:
        inner = inside(m, values)
        by_name = {each.name: value for each, value in zip(merges, values, strict=True)}
        for name, each in frame.switches.items():
            inner.values[name] = (by_name[each], by_name[each])
        return [inner.value(frame.nexts[each.name].inputs[0]) for each in merges]

    initial = [scope.value(frame.enters[each.name].inputs[0]) for each in merges]
    fixed = []
    for k, each in enumerate(merges):
        back = scope.graph.origin(frame.nexts[each.name].inputs[0])
        if frame.switches.get(back.node) == each.name:
            fixed.append(k)
    final = dict(zip((each.name for each in merges), loop(n, initial, condition, trip, fixed), strict=True))
    for node in scope.graph.nodes.values():
        if node.op in EXIT and node.inputs[0].node in frame.switches:
            scope.values[node.name] = (final[frame.switches[node.inputs[0].node]],)
    return final[frame.switches[source]]
