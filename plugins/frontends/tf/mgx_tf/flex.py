"""Converters for TensorFlow operators inside TFLite models (``Flex``), registered through the plugin hook.

The operator's attributes contain a NodeDef.  It is converted in a graph of its own, whose arguments are the operator's inputs.
Values other than tensors (lists, tables) are passed between operators as `Held`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from mgx_core import Instruction, Module, ParseError
from mgx_core.converting.builder import InstructionBuilder
from mgx_core.converting.composite import Composite
from mgx_core.converting.converters import Converters
from mgx_core.records import dataclass

from .context import Context
from .converters import load_for
from .graph import Functions, Graph
from .lists import allocated, fitted
from .model import Model
from .options import TfOptions
from .parser import all_converters
from .resources import Resources
from .scope import Scope
from .values import Complex, TensorList, Value, leaves, rebuilt
from .wire.messages import message

__all__ = ["Held", "add_to"]

PREFIX: Final = "CUSTOM:Flex"


@dataclass(frozen=True)
class Held(Composite):
    """A TensorFlow value other than a tensor, as a value of the TFLite frontend."""

    value: Value

    def tensors(self) -> Sequence[Instruction]:
        return leaves(self.value)

    def of(self, tensors: Sequence[Instruction]) -> Held:
        return Held(rebuilt(self.value, tensors))

    def open(self) -> bool:
        return isinstance(self.value, TensorList) and self.value.stacked is None

    def closed(self, n: InstructionBuilder) -> Held:
        if isinstance(self.value, TensorList) and self.value.stacked is None and self.value.seen:
            return Held(allocated(n, self.value, self.value.seen[0]))
        return self

    def fitted(self, n: InstructionBuilder, other: object) -> Held:
        return Held(fitted(n, self.value, other.value)) if isinstance(other, Held) else self


class _States(Resources):
    """Variables stored as states of the enclosing TFLite model.

    scope: a scope of that model, which holds their values.
    """

    def __init__(self, model: Model, main: Module, scope: Any) -> None:
        super().__init__(model, main)
        self._scope = scope

    def read(self, name: str) -> Instruction:
        found: Instruction = self._scope.state(f"tf {name}", lambda: np.asarray(self.initial(name)))
        return found

    def assign(self, name: str, value: Instruction) -> None:
        self.read(name)
        self._scope.set_state(f"tf {name}", value)


def _context(n: Any) -> Context:
    """Returns the state shared by the Flex operators of a model."""

    def make() -> Context:
        model = Model(Graph([], Functions(()).signatures), Functions(()))
        on_tensors, on_values = all_converters()
        main = n.scope.context.main  # the model's main module: the first Flex operator may be in a loop body
        return Context(
            main, TfOptions(), model.functions, on_tensors, on_values, _States(model, main, n.scope), load_for, n.known
        )

    found: Context = n.scope.shared("tf", make)
    return found


def _proto(n: Any) -> Any:
    """Returns the NodeDef from an operator's attributes.  Errors: ParseError if they do not contain one."""
    from flatbuffers import flexbuffers

    made = message("NodeDef")()
    try:
        made.ParseFromString(bytes(flexbuffers.GetRoot(n.operator.custom).AsVector[1].AsStringBytes))
    except (DecodeError, ValueError, IndexError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
        raise ParseError(f"the attributes do not contain a NodeDef: {error}") from None
    return made


def convert(n: Any, *xs: Instruction | None) -> Any:
    """Converts a Flex operator; n: its node in the TFLite frontend."""
    context, proto = _context(n), _proto(n)
    shared = proto.attr["shared_name"].s.decode("utf-8", "replace") if "shared_name" in proto.attr else ""
    proto.name = shared or n.name
    names = [f"input {k}" for k in range(len(xs))]
    given: dict[str, Value] = {}
    for k, (name, x) in enumerate(zip(names, xs, strict=True)):
        given[name] = _value(n, k, x)
    del proto.input[:]
    proto.input.extend(names)
    scope = Scope(context, Graph([proto], context.functions.signatures), n.module, given, None, n.scope.prefix)
    context.initializing = n.scope.initializing()
    scope.require([proto.name])
    results = scope.values[proto.name][: len(n.operator.outputs)]
    return tuple(_result(n, k, value) for k, value in enumerate(results))


def _value(n: Any, place: int, x: Instruction | None) -> Value:
    """Returns an operand: a tensor, a complex tensor (split along its last axis), or another operator's `Held` value."""
    if x is None:
        held = n.scope.handle(n.operator.inputs[place])
        return (
            held.value if isinstance(held, Held) else n.fail(f"input {place} must be a result of another Flex operator")
        )
    kind = n.input(place).dtype
    if kind is None or kind.kind != "c":
        return x
    axis = x.shape.rank - 1
    return Complex(*(n.squeeze(n.slice(x, [axis], [k], [k + 1]), [axis]) for k in range(2)))


def _result(n: Any, place: int, value: Value | None) -> Instruction | None:
    if value is None or isinstance(value, Instruction):
        return value
    if isinstance(value, Complex):
        rank = value.real.shape.rank
        parts = [n.unsqueeze(v, [rank]) for v in (value.real, value.imag)]
        made: Instruction = n.add("concat", *parts, axis=rank)
        return made
    n.scope.keep(n.operator.outputs[place], Held(value))
    return None


def add_to(table: Converters) -> None:
    """Adds converters for all TensorFlow operators."""
    on_tensors, on_values = all_converters()
    names = {name for found in (on_tensors, on_values) for _, name in found.names()}
    table.converts(*(PREFIX + name for name in sorted(names)))(convert)
