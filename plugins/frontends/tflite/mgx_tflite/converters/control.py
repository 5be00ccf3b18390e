"""Control flow, variables, tables, and custom operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mgx_core import Instruction, Module, Shape
from mgx_core import dtype as dt
from mgx_core.converting.composite import Composite, flattened, rebuilt
from mgx_core.converting.loops import carried
from mgx_core.errors import counted
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape
from mgx_core.types.strings import decoded

from ..converter import converts
from ..node import Node


def _inputs(n: Node, first: int = 0) -> list[Any]:
    """Returns the operands from an index on, including values other than tensors."""
    return [n.scope.any(i) for i in n.operator.inputs[first:]]


def _called(n: Node, place: int, given: Sequence[Any], count: int, module: Module | None = None) -> list[Any]:
    """Returns the results of a subgraph.  Errors: ParseError if their number differs from the operator's outputs."""
    found: list[Any] = n.scope.call(place, given, module)
    if len(found) != count:
        n.fail(f"subgraph {place} must return {counted(count, 'result')}, got {len(found)}")
    return found


@converts("IF")
def if_(n: Node, condition: Instruction, *_: Instruction | None) -> Any:
    xs = _inputs(n, 1)
    places = n.option("ThenSubgraphIndex", -1), n.option("ElseSubgraphIndex", -1)
    condition, count = n.reshape(condition, ()), len(n.operator.outputs)
    decided = n.constant(condition)
    if decided is not None:
        return results_of(n, _called(n, places[0 if decided[()] else 1], xs, count))
    ways = []
    for name, place in zip(("then", "else"), places, strict=True):
        module = n.scope.submodule(f"{n.name}:{name}")
        ways.append((module, *n.scope.apart(partial(_called, n, place, xs, count, module))))
    keys = sorted({k for _, _, changed in ways for k in changed})
    after: list[Any] = []
    for (module, values, changed), other_way in zip(ways, ways[::-1], strict=True):
        inner = Node(n.scope.within(module), n.operator)
        pairs = zip(values, other_way[1], strict=True)
        after = [v.fitted(inner, other) if isinstance(v, Composite) else v for v, other in pairs]
        after += n.scope.held(keys, changed)
        module.add_return(flattened(after))
    made = n.add("if", condition, modules=[m for m, _, _ in ways]) if after else None
    return results_of(n, n.scope.assign(keys, rebuilt(after, n.items(made)) if made is not None else []))


def results_of(n: Node, values: Sequence[Any]) -> list[Instruction | None]:
    """Returns results with values other than tensors stored for their consumers."""
    out: list[Instruction | None] = []
    for index, value in zip(n.operator.outputs, values, strict=False):
        if not isinstance(value, Instruction):
            n.scope.keep(index, value)
        out.append(value if isinstance(value, Instruction) else None)
    return out


@converts("WHILE")
def while_(n: Node, *_: Instruction | None) -> Any:
    xs = _inputs(n)
    test, body = n.option("CondSubgraphIndex", -1), n.option("BodySubgraphIndex", -1)
    fixed = n.scope.unchanged(body) if xs else []
    moving = [k for k in range(len(xs)) if k not in fixed]

    def whole(values: Sequence[Any]) -> list[Any]:
        now = dict(zip(moving, values, strict=True))
        return [now.get(k, x) for k, x in enumerate(xs)]

    def going(module: Module, values: Sequence[Any]) -> Instruction:
        (found,) = _called(n, test, whole(values), 1, module)
        if not isinstance(found, Instruction) or found.shape.dtype is not dt.bool_:
            n.fail(f"subgraph {test}, the condition of a loop, must return one boolean")
        if not found.shape.rank:
            return found
        from mgx_core import op

        return module.add(op("reshape", dims=()), found)

    states, keys = [xs[k] for k in moving], []
    if n.scope.stateful(body) or n.scope.stateful(test) or any(isinstance(v, Composite) and v.open() for v in states):
        # a discarded trial iteration infers unknown extents and the states that the body assigns
        trial = n.scope.submodule(f"{n.name}:trial")
        inside = [trial.add_parameter(f"state_{k}", x.result) for k, x in enumerate(flattened(states))]
        given = rebuilt(states, inside)
        now = [v if isinstance(v, Composite) and v.open() else g for v, g in zip(states, given, strict=True)]

        def trial_trip() -> None:
            after = _called(n, body, whole(now), len(xs), trial)
            if n.scope.stateful(test):
                going(trial, [after[k] for k in moving])

        keys = sorted(n.scope.apart(trial_trip)[1])
        states = [v.closed(n) if isinstance(v, Composite) else v for v in states]
    begins = going(n.module, states)
    states += n.scope.held(keys, {})

    def build(shapes: list[AnyShape]) -> Module:
        module = n.scope.submodule(f"{n.name}:body")
        module.add_parameter("iteration", Shape(dt.int64, ()))
        module.add_parameter("going", Shape(dt.bool_, ()))
        given = [module.add_parameter(f"state_{k}", s) for k, s in enumerate(shapes)]

        def trip() -> list[Any]:
            inside = n.scope.assign(keys, rebuilt(states, given))
            after = _called(n, body, whole(inside), len(xs), module)
            after = [after[k] for k in moving]
            return [going(module, after), *flattened(after), *n.scope.held(keys, {})]

        module.add_return(n.scope.apart(trip)[0])
        return module

    flat = flattened(states)
    module = carried([x.result for x in flat], build, 1)
    most = n.scope.options.limit_max_iterations
    made = n.add("loop", None, begins, *flat, modules=[module], max_iterations=most)
    return results_of(n, whole(n.scope.assign(keys, rebuilt(states, n.items(made)))))


@converts("CALL")
def call(n: Node, *_: Instruction | None) -> Any:
    return results_of(n, _called(n, n.option("Subgraph", -1), _inputs(n), len(n.operator.outputs)))


@converts("CALL_ONCE")
def call_once(n: Node) -> Any:
    n.scope.initialize(n.option("InitSubgraphIndex", -1))
    return ()


@converts("VAR_HANDLE")
def var_handle(n: Node) -> Any:
    words = [decoded(n.option(w, b"") or b"") for w in ("Container", "SharedName")]
    n.scope.keep(n.operator.outputs[0], "/".join(w for w in words if w) or n.name)
    return (None,)


@converts("READ_VARIABLE")
def read_variable(n: Node, handle: Instruction | None = None) -> Instruction:
    key = n.scope.handle(n.operator.inputs[0])
    value = n.scope.state(key, lambda: n.fail(f"variable {key!r} is read before it has a value"))
    asked = n.scope.tensor(n.operator.outputs[0]).dtype
    if asked is not None and asked.kind != "c" and asked is not value.shape.dtype:
        n.fail(f"variable {key!r} of {value.shape} is read as {asked.name}")
    return value


@converts("ASSIGN_VARIABLE")
def assign_variable(n: Node, handle: Instruction | None, value: Instruction) -> Any:
    def begins() -> Array:
        return np.zeros([d if isinstance(d, int) else 1 for d in value.shape.dims], value.shape.dtype.numpy)

    if not n.scope.initializing():
        n.scope.state(n.scope.handle(n.operator.inputs[0]), begins)
    n.scope.set_state(n.scope.handle(n.operator.inputs[0]), value)
    return ()


@converts("HASHTABLE")
def table(n: Node) -> Any:
    n.scope.keep(n.operator.outputs[0], f"table {n.option('TableId', 0)}")
    return (None,)


@converts("HASHTABLE_IMPORT")
def import_table(n: Node, handle: Instruction | None, keys: Instruction, values: Instruction) -> Any:
    n.scope.tables()[n.scope.handle(n.operator.inputs[0])] = (n.require(keys, "keys"), n.require(values, "values"))
    return ()


def _table(n: Node) -> tuple[Array, Array]:
    found: tuple[Array, Array] | None = n.scope.tables().get(n.scope.handle(n.operator.inputs[0]))
    return n.unsupported("a table that is never initialized") if found is None else found


@converts("HASHTABLE_FIND")
def find(n: Node, handle: Instruction | None, x: Instruction, default: Instruction) -> Instruction:
    keys, values = _table(n)
    return n.add(
        "tflite_table_find", x, n.literal(keys, x.shape.dtype), n.literal(values, default.shape.dtype), default
    )


@converts("HASHTABLE_SIZE")
def size(n: Node, handle: Instruction | None = None) -> Instruction:
    return n.literal([len(_table(n)[0])], dt.int64)
