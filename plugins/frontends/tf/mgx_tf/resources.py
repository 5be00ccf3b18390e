"""Variables and tables of a model, with their initial contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from mgx_core import Instruction, Module, ParseError, UnsupportedError
from mgx_core.converting.states import States, state_parameter
from mgx_core.types.argument import Array

from .graph import FunctionGraph, Graph, GraphNode, Port
from .model import Model
from .objects import captured
from .wire.bundle import Bundle
from .wire.tensors import dims_of, tensor_array

__all__ = ["Resources", "Table"]

FORWARDING = ("Identity", "Cast", "ReadVariableOp")
ASSIGN = ("Assign", "AssignVariableOp")
Lists: TypeAlias = dict[str, tuple[list[str], list[str]]]  # checkpoint keys and slices by RestoreV2 node


class Table:
    """The keys and values of a lookup table."""

    def __init__(self, keys: Array, values: Array) -> None:
        if len(keys) != len(values):
            raise ParseError(f"a table has {len(keys)} keys and {len(values)} values")
        self.keys = keys
        self.values = values

    def joined(self, more: Table) -> Table:
        """Returns the union of both tables; on equal keys the other table's values win."""
        kept = ~np.isin(self.keys, more.keys)
        return Table(np.concatenate([self.keys[kept], more.keys]), np.concatenate([self.values[kept], more.values]))


class Resources:
    """The variables of a model by node name in the main graph, as literals created on first read; and its tables.

    changing: variables that the program assigns; they are states, i.e. parameters that persist between runs.
    assigned: variables that have been assigned so far.
    """

    def __init__(self, model: Model, main: Module, changing: frozenset[str] = frozenset()) -> None:
        self.folder = model.folder
        self.changing = changing
        self.assigned: set[str] = set()
        self._main = main
        self._model = model
        self._bundle: Bundle | None = None
        self._keys = dict(restored(model)) if model.folder is not None else {}
        self._literals: dict[str, Instruction] = {}
        self._states: dict[str, tuple[Instruction, Array]] = {}
        self.states = States()
        self._initial: dict[str, Array] = {}
        self.tables: dict[str, Table] = {}

    def read(self, name: str) -> Instruction:
        """Returns a variable's current value.  Errors: ParseError if the checkpoint lacks it."""
        if name in self.states.current:
            return self.states.current[name]
        if name in self.changing:
            if name not in self._states:
                start = np.asarray(self.initial(name))
                self._states[name] = state_parameter(self._main, name, start), start
            return self._states[name][0]
        if name not in self._literals:
            self._literals[name] = self._main.add_literal(self.initial(name))
            self._literals[name].sources = (name,)
        return self._literals[name]

    def initial(self, name: str) -> Array:
        """Returns a variable's value before the first run.  Errors: ParseError or UnsupportedError if it has none."""
        if name in self._initial:
            return self._initial[name]
        if self._model.folder is None:
            raise UnsupportedError(
                f"variable {name!r} has no value: a graph in one file must be frozen (variables turned into constants)"
            )
        bundle = self._checkpoint()
        if name not in self._keys:
            self._keys = {**{node: (key, "") for node, key in captured(self._model, bundle)}, **self._keys}
        if name not in self._keys:
            raise ParseError(f"variable {name!r} has no value: the checkpoint of the SavedModel does not restore it")
        key, part = self._keys[name]
        array = bundle.read(key)
        return array[_slices(part, array, key)] if part else array

    def table(self, name: str) -> Table | None:
        """Returns a table that the graph has initialized or that the checkpoint stores; None if there is neither."""
        if name not in self.tables and self._model.folder is not None:
            parts = dict(restored_tables(self._model)).get(name)
            if parts is not None:
                keys, values = (np.asarray(self._checkpoint().read(key)) for key in parts)
                if keys.size != len(keys):
                    raise UnsupportedError(
                        f"table {name!r} has keys of extents {list(keys.shape[1:])}: keys must be scalars"
                    )
                attributes = self._model.graph.node(name).attributes
                value = dims_of(attributes["value_shape"].shape) if "value_shape" in attributes else None
                self.tables[name] = Table(keys.reshape(-1), values.reshape((keys.size, *(value or ()))))
        return self.tables.get(name)

    def _checkpoint(self) -> Bundle:
        if self._bundle is None:
            assert self._model.folder is not None
            self._bundle = Bundle(self._model.folder / "variables" / "variables")
        return self._bundle

    def assign(self, name: str, value: Instruction) -> None:
        """Assigns a variable.  Errors: UnsupportedError if type or extents change."""
        self.assigned.add(name)
        if name in self._states and value.shape != self._states[name][0].shape:
            raise UnsupportedError(f"variable {name!r} of {self._states[name][0].shape} is assigned {value.shape}")
        self.states.current[name] = value

    def begin(self, name: str, value: Array) -> None:
        """Sets a variable's value before the first run."""
        self._initial[name] = value

    def kept(self) -> list[tuple[Instruction, Array, Instruction]]:
        """Returns the parameter, the initial value and the value after a run of each state."""
        return [(made, start, self.states.current.get(name, made)) for name, (made, start) in self._states.items()]

    def asset(self, node: str) -> str:
        """Returns the path of the asset file of a constant of the main graph; empty if it is not an asset.

        Errors: ParseError for a path outside the model's folder.
        """
        file = self._model.assets.get(node)
        if file is None or self._model.folder is None:
            return ""
        folder = (self._model.folder / "assets").resolve()
        if not file or "\0" in file:
            raise ParseError(f"asset {file!r} is not a file name")
        path = (folder / file).resolve()
        if not path.is_relative_to(folder):
            raise ParseError(f"asset {file!r} is outside the model's folder")
        return str(path)


def _slices(part: str, array: Array, key: str) -> tuple[slice, ...]:
    """Parses a slice specification such as ``64 5 0,22:0,5``."""
    words = part.rsplit(maxsplit=1)[-1].split(":")
    if len(words) != array.ndim:
        raise ParseError(f"{part!r} is not a slice of {key!r} with extents {list(array.shape)}")
    found = []
    for word, n in zip(words, array.shape, strict=True):
        if word == "-":
            found.append(slice(None))
            continue
        try:
            start, length = (int(w) for w in word.split(","))
        except ValueError:
            raise ParseError(f"{part!r} is not a slice of {key!r}") from None
        if start < 0 or length < 0 or start + length > n:
            raise ParseError(f"slice {part!r} is out of range for {key!r} with extents {list(array.shape)}")
        found.append(slice(start, start + length))
    return tuple(found)


def _restore_function(model: Model) -> tuple[GraphNode | None, FunctionGraph | None, dict[str, str]]:
    """Returns the node that restores the model, the function that it calls, and the argument nodes in the main graph by name."""
    start = model.graph.nodes.get(model.restore)
    if start is None:
        return None, None, {}
    function = model.functions.get(start.attributes["f"].func.name if "f" in start.attributes else start.op)
    arguments = function.arguments if function is not None else []
    return start, function, {name: p.node for name, p in zip(arguments, start.inputs, strict=False)}


def restored_tables(model: Model) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the name of each restored table's node with the checkpoint keys of its keys and its values."""
    _, function, by_argument = _restore_function(model)
    lists: Lists = {}
    for node in function.nodes.values() if function is not None else ():
        if node.op != "LookupTableImportV2" or len(node.inputs) != 3:
            continue
        assert function is not None
        found = [key for port in node.inputs[1:] for _, (key, _) in _assigned(function, node.name, port, lists)]
        table = by_argument.get(node.inputs[0].node)
        if table is not None and len(found) == 2:
            yield table, (found[0], found[1])


def restored(model: Model) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the name of each restored variable's node with its checkpoint key and slice."""
    start, function, by_argument = _restore_function(model)
    lists: Lists = {}
    if function is not None:
        for node in function.nodes.values():
            if node.op in ASSIGN and len(node.inputs) > 1:
                variable = by_argument.get(node.inputs[0].node)
                yield from _assigned(function, variable, node.inputs[1], lists)
    if start is None or function is not None:
        return
    seen, stack = {start.name}, [start]
    while stack:
        node = stack.pop()
        if node.op in ASSIGN and len(node.inputs) > 1:
            yield from _assigned(model.graph, node.inputs[0].node, node.inputs[1], lists)
        for name in node.controls:
            other = model.graph.nodes.get(name)
            if other is not None and name not in seen:
                seen.add(name)
                stack.append(other)


def _assigned(graph: Graph, variable: str | None, source: Port, lists: Lists) -> Iterator[tuple[str, tuple[str, str]]]:
    if variable is None:
        return
    for _ in range(16):
        node = graph.nodes.get(source.node)
        if node is None:
            return
        if node.op == "RestoreV2":
            if node.name not in lists:
                lists[node.name] = _strings(graph, node, 1), _strings(graph, node, 2)
            names, parts = lists[node.name]
            if source.place < len(names):
                yield variable, (names[source.place], parts[source.place] if source.place < len(parts) else "")
            return
        if node.op not in FORWARDING or not node.inputs:
            return
        source = node.inputs[0]


def _strings(graph: Graph, node: GraphNode, place: int) -> list[str]:
    if place >= len(node.inputs):
        return []
    constant = graph.nodes.get(node.inputs[place].node)
    if constant is None or "value" not in constant.attributes:
        return []
    return [str(w) for w in np.asarray(tensor_array(constant.attributes["value"].tensor)).reshape(-1)]
