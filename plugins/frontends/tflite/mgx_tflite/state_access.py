"""Access to states, which persist between runs, from operators of subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from mgx_core import Instruction, UnsupportedError
from mgx_core.converting.states import state_parameter
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim

from .context import Context
from .model import Operator

__all__ = ["EFFECTS", "StateAccess"]

Made = TypeVar("Made")

# operators with side effects, converted even if their results are unused
EFFECTS: Final = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE"})
# attributes that reference the subgraphs that an operator runs
CALLS: Final = {
    "IF": ("ThenSubgraphIndex", "ElseSubgraphIndex"),
    "WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
    "STABLEHLO_WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
    "CALL": ("Subgraph",),
    "STABLEHLO_COMPOSITE": ("DecompositionSubgraphIndex",),
}


def _may_be(dims: Sequence[Dim], held: Sequence[Dim]) -> bool:
    """Returns False if extents are known to differ; symbolic ones are compared at run time."""
    return len(dims) == len(held) and all(a == b or not isinstance(a, int) for a, b in zip(dims, held, strict=True))


class StateAccess:
    """The part of a scope that reads and assigns states."""

    context: Context

    def state(self, key: str, like: Callable[[], Array]) -> Instruction:
        """Returns the parameter of the program that represents a state."""
        context = self.context
        if key in context.assigned.current:
            return context.assigned.current[key]
        if key not in context.states:
            value = context.initial[key] if key in context.initial else like()
            context.states[key] = (state_parameter(context.main, key, value), value)
        return context.states[key][0]

    def set_state(self, key: str, value: Instruction) -> None:
        context = self.context
        if context.initializing:
            found = context.known.constant(value)
            if found is None:
                raise UnsupportedError(f"the initial value of state {key!r} is not constant")
            context.initial[key] = found
            return
        if key in context.states:
            held = context.states[key][0].shape
            if value.shape.dtype is not held.dtype or not _may_be(value.shape.dims, held.dims):
                raise UnsupportedError(
                    f"variable {key!r} of {held} is assigned {value.shape}: it must keep its type and extents"
                )
        context.assigned.current[key] = value

    def apart(self, build: Callable[[], Made]) -> tuple[Made, dict[str, Instruction]]:
        """Returns the result of `build` and the states it assigned; the current states are restored."""
        return self.context.assigned.apart(build)

    def held(self, keys: Sequence[str], changed: Mapping[str, Instruction]) -> list[Instruction]:
        """Returns the values of existing states, for branches or loops that assign some of them."""
        return [changed[k] if k in changed else self.state(k, lambda: np.zeros(())) for k in keys]

    def assign(self, keys: Sequence[str], values: list[Any]) -> list[Any]:
        """Assigns the last values to states and returns the others."""
        count = len(values) - len(keys)
        for key, value in zip(keys, values[count:], strict=True):
            self.set_state(key, value)
        return values[:count]

    def stateful(self, subgraph: int) -> bool:
        """Returns True if a subgraph may assign a state, directly or in a subgraph that it calls."""
        subgraphs, found = self.context.model.subgraphs, self.context.stateful
        if subgraph in found or not 0 <= subgraph < len(subgraphs):
            return found.get(subgraph, False)  # an invalid index is rejected at the call
        found[subgraph] = False  # during the traversal; recursion is rejected later
        graph = subgraphs[subgraph]
        found[subgraph] = any(
            o.name in EFFECTS
            or o.name.startswith("CUSTOM:Flex")
            or any(0 <= i < len(graph.tensors) and graph.tensors[i].variable for i in o.inputs)
            or self.calls_stateful(o)
            for o in graph.operators
        )
        return found[subgraph]

    def calls_stateful(self, operator: Operator) -> bool:
        """Returns True if an operator runs a subgraph that may assign a state."""
        words = CALLS.get(operator.name, ()) if operator.options is not None else ()
        return any(self.stateful(getattr(operator.options, word)()) for word in words)

    def initializing(self) -> bool:
        """Returns True inside the subgraph of a CALL_ONCE."""
        return self.context.initializing
