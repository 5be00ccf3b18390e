"""Conditionals and loops over values of any kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from mgx_core import Instruction, Module, ParseError, Shape
from mgx_core import dtype as dt
from mgx_core.converting.loops import carried
from mgx_core.types.dim import Dim
from mgx_core.types.shape import AnyShape

from .lists import allocated, fitted
from .node import Node
from .values import TensorList, Value, leaves, rebuilt

__all__ = ["conditional", "loop"]

Part = Callable[[Module, list[Value]], list[Value]]  # emits instructions into a module; returns its results


def conditional(n: Node, condition: Instruction, branches: Sequence[Callable[[Module], list[Value]]]) -> list[Value]:
    """Builds a conditional and returns its results.  branches: builders for true and false."""
    known = n.constant(condition)
    if known is not None and known.size == 1:
        return branches[0 if known.reshape(()) else 1](n.module)
    resources = n.scope.context.resources
    modules, results, assigned = [], [], []
    for name, branch in zip(("then", "else"), branches, strict=True):
        (module, values), changed = resources.states.apart(partial(n.scope.branch, n, name, branch))
        modules.append(module)
        results.append(values)
        assigned.append(changed)
    _match_structures(n, modules, results)
    names = sorted({name for changed in assigned for name in changed})
    first, second = ([*v, *_variable_values(n, names, changed)] for v, changed in zip(results, assigned, strict=True))
    for module, values in zip(modules, (first, second), strict=True):
        module.add_return([leaf for v in values for leaf in leaves(v)])
    if [len(leaves(v)) for v in first] != [len(leaves(v)) for v in second]:
        n.fail("the branches must return values of the same kinds")
    if condition.shape.rank:
        condition = n.reshape(condition, ())
    count = sum(len(leaves(v)) for v in first)
    parts = list(n.items(n.add("if", condition, modules=modules))) if count else []
    return _assign_variables(n, names, [rebuilt(v, [parts.pop(0) for _ in leaves(v)]) for v in first])


def _variable_values(n: Node, names: Sequence[str], changed: Mapping[str, Instruction]) -> list[Value]:
    """Returns the values of variables after a region that assigns some of them."""
    return [changed[name] if name in changed else n.scope.context.resources.read(name) for name in names]


def _assign_variables(n: Node, names: Sequence[str], values: list[Value]) -> list[Value]:
    """Assigns the trailing values to variables; returns the others."""
    count = len(values) - len(names)
    for name, value in zip(names, values[count:], strict=True):
        assert isinstance(value, Instruction)
        n.scope.context.resources.assign(name, value)
    return values[:count]


def loop(n: Node, states: Sequence[Value], condition: Part, body: Part, fixed: Collection[int] = ()) -> list[Value]:
    """Builds a loop; returns the loop-carried values after it.

    condition: returns one bool for the states; body: returns the next iteration's states; fixed: indices of loop-invariant
    states, which are captured instead of carried.
    """
    if fixed:
        every = list(states)
        moving = [k for k in range(len(every)) if k not in fixed]

        def whole(values: list[Value]) -> list[Value]:
            now = dict(zip(moving, values, strict=True))
            return [now.get(k, v) for k, v in enumerate(every)]

        final = loop(
            n,
            [every[k] for k in moving],
            lambda m, values: condition(m, whole(values)),
            lambda m, values: [v for k, v in enumerate(body(m, whole(values))) if k not in fixed],
        )
        return whole(final)
    states = list(states)
    begins = _truth(n, condition(n.module, list(states)))
    known = n.constant(begins)
    if known is not None and not known.reshape(()):
        return states
    states, names = _prepare_states(n, states, condition, body)
    states += _variable_values(n, names, {})
    flat = [leaf for v in states for leaf in leaves(v)]

    def build(shapes: list[AnyShape]) -> Module:
        module = n.scope.submodule(f"{n.name}:body")
        module.add_parameter("iteration", Shape(dt.int64, ()))
        module.add_parameter("going", Shape(dt.bool_, ()))
        parameters = [module.add_parameter(f"state_{k}", s) for k, s in enumerate(shapes)]
        given = list(parameters)
        inside = [rebuilt(v, [given.pop(0) for _ in leaves(v)]) for v in states]

        def iterate() -> tuple[list[Value], Instruction]:
            after = body(module, _assign_variables(n, names, inside))
            going = _truth(n, condition(module, after))  # the condition may assign variables, too
            return [*after, *_variable_values(n, names, {})], going

        (after, going), _ = n.scope.context.resources.states.apart(iterate)
        results = [leaf for v in after for leaf in leaves(v)]
        if len(results) != len(parameters):
            raise ParseError(f"the loop body must return {len(parameters)} tensors, got {len(results)}")
        module.add_return([going, *results])
        return module

    module = carried([x.result for x in flat], build, 1)
    made = n.add(
        "loop",
        None,
        begins,
        *flat,
        modules=[module],
        max_iterations=n.scope.context.options.limit_max_iterations,
    )
    parts = list(n.items(made))
    return _assign_variables(n, names, [rebuilt(v, [parts.pop(0) for _ in leaves(v)]) for v in states])


def _truth(n: Node, values: Sequence[Value]) -> Instruction:
    if len(values) != 1 or not isinstance(values[0], Instruction):
        n.fail("the condition of a loop must return one bool")
    found = values[0]
    if found.shape.dtype is not dt.bool_:
        n.fail(f"the condition of a loop must be bool, got {found.shape}")
    return found


def _match_structures(n: Node, modules: Sequence[Module], results: Sequence[list[Value]]) -> None:
    """Converts the results of each branch to the structure of the other's."""
    for place, pair in enumerate(zip(*results, strict=False)):
        for branch, (one, other) in enumerate((pair, pair[::-1])):
            results[branch][place] = fitted(Node(n.scope.within(modules[branch]), n.node), one, other)


def _prepare_states(n: Node, states: list[Value], condition: Part, body: Part) -> tuple[list[Value], list[str]]:
    """Returns the states, with storage for all lists, and the names of the variables that an iteration assigns.

    Both are found by building one iteration, body and condition, in a module that is discarded.
    """
    resources = n.scope.context.resources
    if not resources.changing and not any(_open(v) for v in states):
        return states, []
    module = n.scope.submodule(f"{n.name}:trial")
    inside: list[Value] = []
    for v in states:
        parts = [module.add_parameter(f"state_{len(inside)}_{k}", x.result) for k, x in enumerate(leaves(v))]
        inside.append(v if _open(v) else rebuilt(v, parts))

    def iterate() -> None:
        after = body(module, inside)
        if resources.changing:
            condition(module, after)

    _, changed = resources.states.apart(iterate)
    found: list[Value] = []
    for v in states:
        if isinstance(v, TensorList) and v.stacked is None and v.seen:
            dims: tuple[Dim, ...] = v.seen[0]
            v = allocated(n, v, dims)
        found.append(v)
    return found, sorted(changed)


def _open(v: Value) -> bool:
    return isinstance(v, TensorList) and v.stacked is None
