"""Parses ONNX graphs into modules: converts nodes, inlines functions, nests subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from mgx_core import Argument, DeviceError, Instruction, MgxError, Module, ParseError, TupleShape, UnrankedError
from mgx_core.converting.converters import converted, no_converter
from mgx_core.converting.known import Known
from mgx_core.errors import counted
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from .functions import function_body, standard_body
from .graph_inputs import input_shape, word
from .messages import onnx
from .model_context import Defer, ModelContext
from .node import Node
from .node_order import in_order, names_read
from .options import OnnxOptions
from .tensors import DataFolder, sparse_array, tensor_array

GraphProto = onnx.GraphProto
NodeProto = onnx.NodeProto

__all__ = ["GraphParser"]

DEFAULT = ("", "ai.onnx")
# raised by converters on malformed nodes, where a check is missing
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class GraphParser:
    """Builds one module from one graph, or from the nodes of an inlined function.

    scope: instructions by name; unknown names are looked up in enclosing graphs.
    """

    def __init__(
        self,
        context: ModelContext,
        module: Module,
        outer: GraphParser | None = None,
        opsets: Mapping[str, int] | None = None,
        isolated: bool = False,
        prefix: str = "",
        inlining: tuple[str, ...] = (),
    ) -> None:
        self.context = context
        self.module = module
        self.outer = outer
        self.isolated = isolated  # function bodies do not see their caller's names
        self.opsets = context.opsets if opsets is None else opsets
        self.scope: dict[str, Instruction | None] = {}
        self.initializers: dict[str, Any] = {}
        self.prefix = prefix
        self.inlining = inlining
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._absent: Instruction | None = None
        if self.depth > context.options.limit_depth:
            raise ParseError(
                f"subgraphs and functions nest deeper than {context.options.limit_depth} (option limit_depth)"
            )

    @property
    def options(self) -> OnnxOptions:
        return self.context.options

    @property
    def known(self) -> Known:
        return self.context.known

    @property
    def folder(self) -> DataFolder:
        return self.context.folder

    @property
    def channel_block(self) -> int:
        return self.context.channel_block

    # names

    def lookup(self, name: str) -> Instruction | None:
        """Returns the instruction of a name; initializers become literals on first use.

        Errors: ParseError for an undefined name.
        """
        found = self.find(name)
        if found is None and not self.defines(name):
            raise ParseError(f"{name!r} is read, but not defined by an input, an initializer or a node")
        return found

    def find(self, name: str) -> Instruction | None:
        if name in self.scope:
            return self.scope[name]
        if name in self.initializers:
            found = self.scope[name] = self._literal(self.initializers[name])
            return found
        return None if self.outer is None or self.isolated else self.outer.find(name)

    def defines(self, name: str) -> bool:
        """Returns True if the name is defined, even as absent."""
        if name in self.scope or name in self.initializers:
            return True
        return self.outer is not None and not self.isolated and self.outer.defines(name)

    def _literal(self, proto: Any) -> Instruction:
        limit = self.options.limit_bytes
        if isinstance(proto, onnx.SparseTensorProto):
            array = sparse_array(proto, self.folder, limit)
        else:
            tensor, raw = proto if isinstance(proto, tuple) else (proto, None)
            array = tensor_array(tensor, self.folder, limit, raw)
        return self.module.add_literal(Argument(array))

    def absent(self) -> Instruction:
        """Returns the instruction that represents an omitted input."""
        if self._absent is None or self._absent.parent is not self.module:
            self._absent = self.module.add_absent()
        return self._absent

    def sources(self, node: Node) -> tuple[str, ...]:
        return (self.prefix + node.name,) if node.name or self.prefix else ()

    def parse_graph(
        self,
        graph: GraphProto,
        inputs: Sequence[Instruction] | None = None,
        weights: Mapping[int, Array] | None = None,
    ) -> list[Instruction]:
        """Parses a graph; returns its outputs' instructions in order.

        inputs: instructions for the graph's inputs (default: parameters of the module); weights: raw data of initializers by
        position, if it is not in the graph.
        """
        for position, tensor in enumerate(graph.initializer):
            raw = weights.get(position) if weights else None
            self._initializer(tensor.name, tensor if raw is None else (tensor, raw))
        for sparse in graph.sparse_initializer:
            self._initializer(sparse.values.name, sparse)
        if inputs is None:
            self._declare(graph)
        else:
            self.scope.update(zip((info.name for info in graph.input), inputs, strict=True))
        self.parse_nodes(graph.node)
        return [self._output(graph, info.name) for info in graph.output]

    def _output(self, graph: GraphProto, name: str) -> Instruction:
        found = self.lookup(name)
        if found is None:
            raise ParseError(f"output {name!r} of graph {graph.name!r} is absent")
        return found

    def _initializer(self, name: str, proto: Any) -> None:
        if not name:
            raise ParseError("an initializer has no name")
        if name in self.initializers:
            raise ParseError(f"several initializers are named {name!r}")
        self.initializers[name] = proto

    def _declare(self, graph: GraphProto) -> None:
        for info in graph.input:
            if info.name in self.initializers and info.name not in self.options.override:
                continue
            if info.name in self.scope:
                raise ParseError(f"several inputs are named {info.name!r}")
            try:
                shape = input_shape(info, self.options)
            except MgxError as error:
                raise error.located(f"input {info.name!r}") from None
            self.scope[info.name] = self.module.add_parameter(info.name, shape)

    def parse_nodes(self, nodes: Iterable[NodeProto]) -> None:
        for proto in in_order(list(nodes)):
            self.parse_node(proto)

    def parse_node(self, proto: NodeProto) -> None:
        """Parses a node: converts it, inlines its function, or defers it until its ranks are known."""
        context = self.context
        context.nodes += 1
        if context.nodes > context.budget:
            raise ParseError(
                f"the model has more than {context.budget} nodes after inlining, loops' bodies counted as often as they are "
                "parsed (option limit_nodes)"
            )
        domain = "" if proto.domain in DEFAULT else proto.domain
        version = self.opsets.get(domain, 1)
        node = Node(self, proto, version)
        mark = self.module.last if self.module.returned is None else None
        try:
            results = self._convert(node, domain, version)
        except UnrankedError as error:
            if context.defer is None:
                raise error.located(repr(node)) from None
            self._roll_back(mark)
            results = self._defer(context.defer, node, error)
        except MgxError as error:
            raise error.located(repr(node)) from None
        except MemoryError as error:
            raise DeviceError(f"not enough memory while parsing: {error}").located(repr(node)) from None
        except RecursionError:
            raise ParseError("the model nests too deeply").located(repr(node)) from None
        except MALFORMED as e:
            raise ParseError(f"malformed node: {type(e).__name__}: {e}").located(repr(node)) from e
        if len(results) < node.outputs:
            several = any(r is not None and isinstance(r.result, TupleShape) for r in results)
            raise node.error(
                f"has {counted(len(results), 'output')}, {node.outputs} are named"
                + ("; its converter must return `n.items(x)`, the results of the op x" if several else "")
            )
        for name, result in zip(proto.output, results, strict=False):
            if name:
                if name in self.scope:
                    raise node.error(f"output {name!r} is already defined")
                self.scope[name] = result

    def _defer(self, defer: Defer, node: Node, error: UnrankedError) -> Sequence[Instruction | None]:
        """Returns the node, deferred until its ranks are known."""
        try:
            return defer(self, node, error)
        except MgxError as refused:
            raise refused.located(repr(node)) from None
        except MALFORMED as e:
            raise ParseError(f"malformed node: {type(e).__name__}: {e}").located(repr(node)) from e

    def _roll_back(self, mark: Instruction | None) -> None:
        """Removes the instructions that a failed converter added."""
        while self.module.last is not None and self.module.last is not mark and not self.module.last.users:
            last = self.module.last
            if last.is_param or self._names(last):
                break
            self.module.remove(last)

    def _names(self, value: Instruction) -> bool:
        """Returns True if a name of this graph or of one around it refers to the value."""
        return any(found is value for found in self.scope.values()) or (
            self.outer is not None and self.outer._names(value)
        )

    def _convert(self, node: Node, domain: str, version: int) -> Sequence[Instruction | None]:
        proto = node.proto
        if self.context.functions:
            function = self.context.functions.get((domain, proto.op_type, getattr(proto, "overload", "")))
            if function is not None:
                return self._inline(node, function_body(function, proto, self.opsets))
        inputs = [self.lookup(name) if name else None for name in proto.input]
        converter = self.context.converters.find(domain, proto.op_type, version)
        if converter is None and domain == "" and onnx_lacks(proto.op_type, version):
            converter = self.context.converters.find("com.microsoft", proto.op_type, 1)
        if converter is not None:
            results = converted(converter, node, inputs, __package__)
            self.context.warn_of_undefined_attributes(node)
            return results
        body = standard_body(node, domain, version, inputs)
        return self._unknown(node, domain, version, inputs) if body is None else self._inline(node, body)

    def _unknown(self, node: Node, domain: str, version: int, inputs: list[Instruction | None]) -> list[Instruction]:
        if self.options.skip_unknown_operators:
            made = node.add("unknown", *inputs, op=node.op_type)
            return [made] * max(node.outputs, 1)
        operator = f"{domain or 'ai.onnx'}::{node.op_type} (opset {version})"
        known = [name for of, name in self.context.converters.names() if of == domain]
        import difflib  # used only in messages

        near = difflib.get_close_matches(node.op_type, known, 1)
        raise no_converter(operator, ", or the model defines it as a local function", near)

    def _inline(self, node: Node, body: Any) -> list[Instruction | None]:
        """Inlines a function's nodes into this module, in a new scope."""
        key = f"{node.domain}::{node.op_type}"
        if body.local and key in self.inlining:
            raise ParseError(f"function {key} calls itself")
        inner = GraphParser(
            self.context,
            self.module,
            self,
            body.opsets,
            isolated=True,
            prefix=f"{self.prefix}{node.name}/" if node.name else self.prefix,
            inlining=(*self.inlining, key),
        )
        for formal, actual in body.inputs.items():
            inner.scope[formal] = self.lookup(actual) if actual else None
        if not body.local:
            self._pass_captured(node, body, inner)
        inner.parse_nodes(body.nodes)
        return [inner.lookup(name) if name else None for name in body.outputs]

    def _pass_captured(self, node: Node, body: Any, inner: GraphParser) -> None:
        """Gives a function's scope the values that the call's own sub-graphs (SequenceMap's body) read from outside."""
        reading = NodeProto(attribute=node.proto.attribute)
        captured = {name for name in names_read(reading) if name and self.defines(name)}
        taken = {name for made in body.nodes for name in made.output} | body.inputs.keys()
        for name in captured:
            if name in taken:
                raise node.error(
                    f"its sub-graph reads {name!r}, which the operator's definition calls another value; rename it"
                )
            inner.scope[name] = self.lookup(name)

    # sub-graphs

    def inline_graph(self, node: Node, graph: GraphProto) -> list[Instruction]:
        """Inlines a subgraph without inputs into this module (the taken branch of an If)."""
        if graph.input:
            raise node.error(f"subgraph {graph.name!r} must not have inputs, got {len(graph.input)}")
        inner = GraphParser(self.context, self.module, self, self.opsets, prefix=self.prefix, inlining=self.inlining)
        return inner.parse_graph(graph, [])

    def subgraph(self, node: Node, graph: GraphProto, name: str, inputs: Sequence[AnyShape] = ()) -> Module:
        """Parses a subgraph into a module with parameters of the given shapes."""
        if len(graph.input) != len(inputs):
            raise node.error(
                f"subgraph {graph.name!r} must have {counted(len(inputs), 'input')}, got {len(graph.input)}"
            )
        module = Module(self.context.module_name(f"{word(node.name) or 'node'}:{name}"))
        inner = GraphParser(self.context, module, self, self.opsets, prefix=self.prefix, inlining=self.inlining)
        given = [module.add_parameter(info.name, shape) for info, shape in zip(graph.input, inputs, strict=True)]
        try:
            module.add_return(inner.parse_graph(graph, given))
        except MgxError:
            module.clear()  # an `If` goes on without an invalid branch: values outside must not have users in it
            raise
        return module


@cache
def onnx_lacks(name: str, version: int) -> bool:
    """Returns True if ONNX itself has no operator of this name at this opset."""
    return not onnx.defs.has(name, version, "")
