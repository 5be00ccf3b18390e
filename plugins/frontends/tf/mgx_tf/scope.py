"""Converts graphs to instructions on demand: a requested value after its inputs, each in the module to which it belongs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from mgx_core import DeviceError, Instruction, MgxError, Module, ParseError
from mgx_core.converting.converters import fitting, no_converter
from mgx_core.errors import counted

from .context import Context
from .control_graph import EXIT, MERGE, Frame, places_of
from .graph import FunctionGraph, Graph, GraphNode, Port
from .node import Node
from .values import Value

__all__ = ["MALFORMED", "Scope"]

# raised by converters on malformed nodes, where a check is missing
MALFORMED: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class Scope:
    """Builds values of one graph in one module, for one frame and one set of conditions.

    Scopes of a graph form a chain; a node is built in the outermost one with its frame and conditions.
    arguments: a function's argument values by name; attributes: those of the function call; prefix: of source names.
    wanted: the results that the caller reads; None: any.
    """

    def __init__(
        self,
        context: Context,
        graph: Graph,
        module: Module,
        arguments: Mapping[str, Value] | None = None,
        attributes: Mapping[str, Any] | None = None,
        prefix: str = "",
        calling: tuple[str, ...] = (),
        outer: Scope | None = None,
    ) -> None:
        self.context = context
        self.graph = graph
        self.module = module
        self.attributes = attributes or {}
        self.prefix = prefix
        self.calling = calling
        self.frame: Frame | None = None
        self.conditions: dict[Port, int] = {}
        self.chain: list[Scope] = [*(outer.chain if outer is not None else ()), self]
        self.values: dict[str, Sequence[Value | None]] = {n: (v,) for n, v in (arguments or {}).items()}
        self.places = places_of(graph)
        self.depth = len(calling) + len(self.chain)
        self.wanted: list[Port] | None = None
        self._read: dict[str, set[int]] | None = None
        self._absent: Instruction | None = None
        if self.depth > context.options.limit_depth:
            raise ParseError(
                f"functions, loops and branches nest deeper than {context.options.limit_depth} (option limit_depth)"
            )

    def within(self, module: Module, frame: Frame | None = None, conditions: Mapping[Port, int] | None = None) -> Scope:
        """Returns a nested scope of the same graph, in a loop or under additional conditions."""
        inner = Scope(self.context, self.graph, module, None, self.attributes, self.prefix, self.calling, self)
        inner.frame = frame if frame is not None else self.frame
        inner.conditions = {**self.conditions, **(conditions or {})}
        return inner

    def submodule(self, name: str) -> Module:
        """Creates a module for a part of this graph."""
        return Module(self.context.module_name(re.sub(r"[^A-Za-z0-9_.:]", "_", name)))

    def absent(self) -> Instruction:
        """Returns the instruction that represents an omitted input."""
        if self._absent is None or self._absent.parent is not self.module:
            self._absent = self.module.add_absent()
        return self._absent

    def value(self, port: Port) -> Value:
        """Returns the value of a port.  Errors: ParseError for unknown ports or nodes in a cycle."""
        self.require([port.node])
        found = self.place(port.node).values[port.node]
        value = found[port.place] if port.place < len(found) else None
        if value is None:
            raise ParseError(f"node {port.node!r} has no output {port.place}; it has {len(found)}")
        return value

    def all_values(self, ports: Iterable[Port]) -> list[Value]:
        return [self.value(p) for p in ports]

    def place(self, name: str) -> Scope:
        """Returns the scope of the chain in which a node is built."""
        if len(self.chain) == 1:
            return self
        frame, wanted = self.places.frame(name), self.places.conditions_of(name).items()
        for scope in self.chain:
            if name in scope.values or (scope.frame is frame and wanted <= scope.conditions.items()):
                return scope
        return self

    def require(self, names: Sequence[str]) -> None:
        """Builds nodes and their transitive producers, iteratively."""
        stack = list(reversed(names))
        begun: set[str] = set()
        while stack:
            name = stack[-1]
            scope = self.place(name)
            if name in scope.values:
                stack.pop()
                continue
            node = self.graph.node(name)
            missing = [n for n in scope.needs(node) if n not in scope.place(n).values]
            if not missing:
                scope.build(node)
                stack.pop()
                continue
            if name in begun:
                raise ParseError(f"the graph has a cycle through {node!r}")
            begun.add(name)
            stack += reversed(missing)

    def needs(self, node: GraphNode) -> list[str]:
        """Returns the names of the nodes that must be built before this one."""
        if node.op in MERGE or node.op in EXIT:
            return []  # their converters request the producers in each branch or loop themselves
        effects = self.context.effects(self.graph)
        return [p.node for p in node.inputs] + [c for c in node.controls if c in effects]

    def build(self, node: GraphNode) -> None:
        """Converts one node, whose operands have been built."""
        context = self.context
        context.nodes += 1
        if context.nodes > context.options.limit_nodes:
            raise ParseError(
                f"the model has more than {context.options.limit_nodes} nodes after inlining functions (option limit_nodes)"
            )
        n = Node(self, node)
        try:
            made = self._convert(n, node)
        except MgxError as error:
            if f"{node.name!r}" in str(error):
                raise
            raise error.located(repr(n)) from None
        except MemoryError as error:
            raise DeviceError(f"not enough memory while parsing: {error}").located(repr(n)) from None
        except RecursionError:
            raise ParseError("the model nests too deeply").located(repr(n)) from None
        except MALFORMED as e:
            raise ParseError(f"malformed node: {type(e).__name__}: {e}").located(repr(n)) from e
        self.values[node.name] = tuple(made) if isinstance(made, (tuple, list)) else (made,)

    def _convert(self, n: Node, node: GraphNode) -> Any:
        context = self.context
        if node.op in context.functions:
            return self.call_as_read(n, node.op, node.attributes, [self.value(p) for p in node.inputs])
        inputs: list[Any] = [self.value(p) for p in node.inputs] if node.op not in MERGE and node.op not in EXIT else []
        context.load_for(node.op)
        converter = context.on_values.find("", node.op, 1)
        if converter is not None:
            return converter(n, *fitting(converter, inputs))
        converter = context.on_tensors.find("", node.op, 1)
        if converter is None:
            raise no_converter(node.op)
        for place, value in enumerate(inputs):
            if not isinstance(value, Instruction):
                n.unsupported(f"input {place} of {node.op} is a {type(value).__name__}, a tensor is required")
        return converter(n, *fitting(converter, inputs))

    def function(self, name: str) -> FunctionGraph:
        found = self.context.functions.get(name)
        if found is None:
            raise ParseError(f"function {name!r} is called, but not defined")
        return found

    def call(
        self,
        n: Node,
        name: str,
        attributes: Mapping[str, Any],
        given: Sequence[Value],
        module: Module | None = None,
    ) -> list[Value]:
        """Inlines a function call into a module (by default this scope's); returns its results."""
        inner = self._entered(n, name, attributes, given, self.module if module is None else module)
        return inner.all_values(self.function(name).returned)

    def call_as_read(
        self, n: Node, name: str, attributes: Mapping[str, Any], given: Sequence[Value]
    ) -> list[Value | None]:
        """Inlines the call of a node as far as its results are read; returns them, None for the others.

        What only the others depend on needs no converter: models compute more than users ask of them.
        """
        read = self.chain[0].read_places(n.name)
        if read is None:
            return [*self.call(n, name, attributes, given)]
        inner = self._entered(n, name, attributes, given, self.module, read)
        return [inner.value(port) if k in read else None for k, port in enumerate(self.function(name).returned)]

    def _entered(
        self,
        n: Node,
        name: str,
        attributes: Mapping[str, Any],
        given: Sequence[Value],
        module: Module,
        read: Collection[int] | None = None,
    ) -> Scope:
        """Returns the scope of a function call whose side effects were built.  read: places of the results to be read."""
        function = self.function(name)
        if name in self.calling:
            raise ParseError(f"function {name!r} calls itself")
        if len(given) != len(function.arguments):
            raise n.error(f"function {name!r} takes {counted(len(function.arguments), 'argument')}, got {len(given)}")
        own = dict(function.proto.attr.items())
        inner = Scope(
            self.context,
            function,
            module,
            dict(zip(function.arguments, given, strict=True)),
            {**own, **attributes},
            f"{self.prefix}{n.name}/",
            (*self.calling, name),
        )
        effects = self.context.effects(function)
        kept = [c for c in function.proto.control_ret.values() if c in effects]
        if read is not None:
            inner.wanted = [*(p for k, p in enumerate(function.returned) if k in read), *map(Port, kept)]
        inner.require(kept)
        return inner

    def read_places(self, name: str) -> set[int] | None:
        """Returns which results of a node are read for `wanted`; None: any may be."""
        if self.wanted is None:
            return None
        if self._read is None:
            self._read = self._all_read(self.wanted)
        return self._read.get(name, set())

    def _all_read(self, wanted: Iterable[Port]) -> dict[str, set[int]]:
        effects = self.context.effects(self.graph)
        found: dict[str, set[int]] = {}
        stack = list(wanted)
        while stack:
            port = stack.pop()
            node = None if port.node in found else self.graph.nodes.get(port.node)
            found.setdefault(port.node, set()).add(port.place)
            if node is not None:
                stack += node.inputs
                stack += [Port(c) for c in node.controls if c in effects]
        return found

    def branch(self, n: Node, name: str, build: Callable[[Module], list[Value]]) -> tuple[Module, list[Value]]:
        """Creates a module for one branch; returns it with its results."""
        module = self.submodule(f"{n.name}:{name}")
        return module, build(module)
