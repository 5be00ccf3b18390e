"""States that live from run to run, as the operators of a model's subgraphs see them."""

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

__all__ = ["EFFECTS", "Keeping"]

Made = TypeVar("Made")

# operators that are converted though nothing reads what they give
EFFECTS: Final = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE"})
# attributes that name the subgraphs that an operator runs
CALLS: Final = {
    "IF": ("ThenSubgraphIndex", "ElseSubgraphIndex"),
    "WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
    "STABLEHLO_WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
    "CALL": ("Subgraph",),
    "STABLEHLO_COMPOSITE": ("DecompositionSubgraphIndex",),
}


def _may_be(dims: Sequence[Dim], held: Sequence[Dim]) -> bool:
    """Returns False if extents differ; those that are known only at run time are compared there."""
    return len(dims) == len(held) and all(a == b or not isinstance(a, int) for a, b in zip(dims, held, strict=True))


class Keeping:
    """The part of a scope that reads and sets states."""

    context: Context

    def state(self, key: str, like: Callable[[], Array]) -> Instruction:
        """Returns the value of a state that lives from run to run: a parameter of the program."""
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
                raise UnsupportedError(f"state {key!r} begins with a value that is not constant")
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
        """Returns what `build` gives, and the states that it sets with their values; here they stay as they were."""
        return self.context.assigned.apart(build)

    def held(self, keys: Sequence[str], changed: Mapping[str, Instruction]) -> list[Instruction]:
        """Returns the values of states that are there already, after a part that changes some of them."""
        return [changed[k] if k in changed else self.state(k, lambda: np.zeros(())) for k in keys]

    def assign(self, keys: Sequence[str], values: list[Any]) -> list[Any]:
        """Returns all values but the last ones, which states are given."""
        count = len(values) - len(keys)
        for key, value in zip(keys, values[count:], strict=True):
            self.set_state(key, value)
        return values[:count]

    def stateful(self, subgraph: int) -> bool:
        """Returns True if a subgraph may set a state, itself or in those that it calls."""
        subgraphs, found = self.context.model.subgraphs, self.context.stateful
        if subgraph in found or not 0 <= subgraph < len(subgraphs):
            return found.get(subgraph, False)  # one that is not there is refused where it is called
        found[subgraph] = False  # while it is looked at: one that calls itself is refused later
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
        """Returns True if an operator runs a subgraph that may set a state."""
        words = CALLS.get(operator.name, ()) if operator.options is not None else ()
        return any(self.stateful(getattr(operator.options, word)()) for word in words)

    def initializing(self) -> bool:
        """Returns True inside the subgraph of a CALL_ONCE."""
        return self.context.initializing
