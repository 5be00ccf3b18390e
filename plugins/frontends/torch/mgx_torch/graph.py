"""Converts FX graphs to modules, node by node; subgraphs become nested modules."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from mgx_core import Instruction, MgxError, Module, PluginError, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import divide_floor
from mgx_core.converting.converters import Converters
from mgx_core.converting.known import Known
from mgx_core.types.dim import Dim, Sym, Symbol, bounds

from .calls import ARITHMETIC, asserts, flat, is_complex, keywords_of, name_of
from .converter import COMPLEX
from .element_types import dtype_of
from .extents import DECIDED, Extents, asserted, undecided
from .node import Complex, Node, described
from .weights import shared_array

__all__ = ["GraphConverter"]

# arguments that the result's metadata repeats, or that do not affect values
LAYOUT = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"}
# raised by converters on malformed nodes, where a check is missing
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class GraphConverter:
    """Builds one module from one graph.

    converters: by namespace and operator, with or without overload.  The caller adds the module's parameters and passes them as
    `inputs` of `convert`.
    """

    def __init__(
        self, module: Module, converters: Converters, extents: Extents, outer: GraphConverter | None = None
    ) -> None:
        self.module = module
        self.converters = converters
        self.extents = extents
        self.outer = outer
        self.known = Known()
        self.values: dict[torch.fx.Node, Any] = {}
        self._absent: Instruction | None = None
        self._names = 0
        self._carriers: dict[str, tuple[Instruction, int]] = {}
        self._literals: dict[tuple[Any, ...], Instruction] = {}

    def absent(self) -> Instruction:
        """Returns the instruction that represents an omitted operand."""
        if self._absent is None:
            self._absent = self.module.add_absent()
        return self._absent

    def convert(self, graph: torch.fx.Graph, inputs: Sequence[Any]) -> Any:
        """Converts a graph for given placeholder values; returns its outputs.

        Errors: UnsupportedError for an operator without a converter, ParseError for a call that does not match its schema.
        """
        given = iter(inputs)
        with undecided(graph):
            for fx in graph.nodes:
                if fx.op == "placeholder":
                    self.values[fx] = next(given)
                    self.meet(self.values[fx])
                elif fx.op == "output":
                    return self.resolve(fx.args[0])
                else:
                    self.values[fx] = self.value_of(fx)
        raise UnsupportedError("the graph has no output")

    def value_of(self, fx: torch.fx.Node) -> Any:
        """Returns the value of a node whose operands were converted."""
        if fx.op == "get_attr":
            return self.attribute(fx)
        if fx.op != "call_function":
            raise UnsupportedError(f"node {fx.name!r} is a {fx.op}, an operator call is required")
        target = fx.target
        if target is operator.getitem:
            items, index = self.resolve(fx.args[0]), fx.args[1]
            return items[index]
        n = Node(self, fx)
        if isinstance(n.value, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)):
            found = self.number(n)
            if found is not NotImplemented:
                return found
        if n.value is None and not isinstance(target, torch._ops.HigherOrderOperator):
            return None  # an assertion, already evaluated by torch
        try:
            found = self.converted(n)
        except MgxError as error:
            if repr(n) not in str(error):
                error.located(repr(n))
            raise
        except DECIDED as error:
            n.unsupported(f"a size must be static here: {error}")
        except MALFORMED as error:
            if any(self.changes(a) for a in fx.all_input_nodes):
                n.unsupported(
                    f"a number that changes from call to call must be constant here: {type(error).__name__}: {error}"
                )
            raise PluginError(f"its converter failed: {type(error).__name__}: {error}").located(repr(n)) from error
        self.check(n, found, n.value)
        self.meet(found)
        return found

    def changes(self, fx: torch.fx.Node) -> bool:
        """Returns True for the value of a number that may differ from call to call, for which a converter may not be prepared."""
        number = isinstance(fx.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
        return number and isinstance(self.values[fx], (Sym, Instruction))

    def number(self, n: Node) -> Any:
        """Returns the value of a node that computes a number: an extent, or a constant."""
        target = n.fx.target
        if not isinstance(n.value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return n.value
        computed = not isinstance(target, torch._ops.OpOverload)
        if isinstance(n.value, torch.SymInt) and computed and asserts(n.fx):
            return None
        if target in ARITHMETIC and any(isinstance(v, Instruction) for v in self.resolve(n.fx.args)):
            return NotImplemented
        if target is torch.sym_ite and all(isinstance(described(u), torch.SymBool) for u in n.fx.users):
            return NotImplemented  # only compared, which needs no extent
        if isinstance(n.value, torch.SymInt) and (computed or self.extents.knows(n.value)) and not asserted(n.value):
            return self.extents.of(n.value)
        if isinstance(n.value, torch.SymBool):
            return None if all(asserts(u) for u in n.fx.users) else NotImplemented
        return NotImplemented

    def converted(self, n: Node) -> Any:
        namespace, packet, overload = name_of(n.fx.target)
        positional, keywords = self.arguments(n.fx)
        if any(isinstance(a, Complex) for a in flat((positional, list(keywords.values())))) or is_complex(n.value):
            namespace = COMPLEX + namespace
        found = self.converters.find(namespace, f"{packet}.{overload}", 1) or self.converters.find(namespace, packet, 1)
        if found is None:
            raise UnsupportedError(
                f"no converter for {namespace}::{packet}.{overload}; a package can add one with the hook "
                f"converters(frontend) for the frontend 'pt2'"
            )
        taken = keywords_of(found)
        for name in list(keywords):
            if name not in taken:
                if name not in LAYOUT and keywords[name] not in (None, False):
                    raise UnsupportedError(f"{name}={keywords[name]!r} is not supported")
                del keywords[name]
        return found(n, *positional, **keywords)

    def arguments(self, fx: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        """Returns positional and keyword-only arguments, with the schema's defaults."""
        args, kwargs = [self.resolve(a) for a in fx.args], {k: self.resolve(v) for k, v in fx.kwargs.items()}
        if not isinstance(fx.target, torch._ops.OpOverload):
            return args, kwargs
        keywords = {}
        for place, argument in enumerate(fx.target._schema.arguments):
            if argument.kwarg_only:
                keywords[argument.name] = kwargs.get(argument.name, argument.default_value)
            elif place >= len(args):
                args.append(kwargs.get(argument.name, argument.default_value))
        return args, keywords

    def resolve(self, arg: Any) -> Any:
        """Returns an argument with nodes replaced by their values."""
        if isinstance(arg, torch.fx.Node):
            return self.values[arg]
        if isinstance(arg, (list, tuple)):
            return [self.resolve(a) for a in arg]
        if isinstance(arg, slice):
            return slice(*map(self.resolve, (arg.start, arg.stop, arg.step)))
        if isinstance(arg, torch.SymInt):
            return self.extents.of(arg)
        return arg

    def attribute(self, fx: torch.fx.Node) -> Any:
        """Returns a tensor or subgraph attribute of the graph's module."""
        found: Any = fx.graph.owning_module
        for part in str(fx.target).split("."):
            found = found[int(part)] if isinstance(found, (list, tuple)) else getattr(found, part)
        if isinstance(found, torch.Tensor):
            return self.constant(found, str(fx.target))
        return found

    def constant(self, tensor: torch.Tensor, name: str) -> Any:
        """Returns a literal that shares a tensor's memory; one literal per memory."""
        if tensor.is_complex():
            parts = torch.view_as_real(tensor.detach().resolve_conj())
            return Complex(self.constant(parts[..., 0], name), self.constant(parts[..., 1], name))
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device))
        found = self._literals.get(key)
        if found is None:
            found = self._literals[key] = self.module.add_literal(shared_array(tensor, name))
            found.sources = (name,)
        return found

    def scalar(self, n: Node, d: Dim) -> Instruction:
        """Returns an extent as an int64 scalar."""
        if not isinstance(d, Sym):
            return n.literal(d, dt.int64)
        total: Instruction | None = None
        for atoms, coefficient in d.terms:
            term = n.literal(coefficient, dt.int64)
            for atom in atoms:
                term = n.add("mul", term, self._atom(n, atom))
            total = term if total is None else n.add("add", total, term)
        assert total is not None
        return total

    def _atom(self, n: Node, atom: Any) -> Instruction:
        if isinstance(atom, Symbol):
            found = self._carrier(atom.name)
            if found is None:
                n.unsupported(f"the size {atom.name} is needed as a number, and no tensor has it as an extent")
            x, axis = found
            return n.squeeze(n.add("dimensions_of", x, start=axis, end=axis + 1), [0])
        first, second = (self.scalar(n, a) for a in atom.args)
        match atom.function:
            case "floordiv":
                negative = min(bounds(a)[0] for a in atom.args) < 0
                return divide_floor(n, first, second) if negative else n.add("div", first, second)
            case "mod" | "max" | "min":
                return n.add(atom.function, first, second)
        one = n.literal(1, dt.int64)
        return n.add("where", n.add("equal", first, one), second, first)

    def _carrier(self, symbol: str) -> tuple[Instruction, int] | None:
        found = self._carriers.get(symbol)
        return found if found is not None or self.outer is None else self.outer._carrier(symbol)

    def meet(self, value: Any) -> None:
        """Records which tensors have which symbols as extents."""
        for x in flat(value):
            if isinstance(x, Complex):
                x = x.real
            if isinstance(x, Instruction) and isinstance(x.result, Shape) and x.shape.dynamic():
                for axis, d in enumerate(x.shape.dims):
                    lone = d.symbol if isinstance(d, Sym) else None
                    if lone is not None:
                        self._carriers.setdefault(lone.name, (x, axis))

    def check(self, n: Node, found: Any, value: Any) -> None:
        """Compares a used result with torch's metadata, and binds data-dependent sizes.

        Errors: PluginError if they differ, since the converter is wrong.
        """
        if isinstance(value, (list, tuple)):
            for index, (one, other) in enumerate(zip(found, value, strict=False)):
                if value is not n.value or n.output_used(index):
                    self.check(n, one, other)
            return
        if not isinstance(value, torch.Tensor) or found is None:
            return
        x = found.real if isinstance(found, Complex) else found
        if not isinstance(x, Instruction) or value.is_complex() != isinstance(found, Complex):
            raise PluginError(f"its converter returned {found!r}, where torch has a tensor of {value.dtype}").located(
                repr(n)
            )
        if x.shape.dtype is not dtype_of(value.dtype) or x.shape.rank != value.dim():
            raise PluginError(
                f"its converter returned {x.shape}, where torch has {value.dtype}{list(value.shape)}"
            ).located(repr(n))
        for ours, theirs in zip(x.shape.dims, value.shape, strict=True):
            self.extents.learn(theirs, ours)
            if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
                raise PluginError(f"its converter returned {x.shape}, where torch has {list(value.shape)}").located(
                    repr(n)
                )

    def subgraph(
        self, n: Node, module: torch.fx.GraphModule, name: str, shapes: Sequence[Any], operands: Sequence[Any]
    ) -> Any:
        """Converts a subgraph to a nested module; returns it and its outputs.

        shapes: of its own parameters, which are the subgraph's first inputs; operands: values of enclosing modules.
        """
        inner = Module(self.module_name(name))
        child = self.child(inner)
        made = [inner.add_parameter(f"{inner.name}_{i}", s) for i, s in enumerate(shapes)]
        found = child.convert(module.graph, [*made, *operands])
        return inner, [child.output(f) for f in found]

    def child(self, inner: Module) -> GraphConverter:
        """Returns a converter for a nested module."""
        return GraphConverter(inner, self.converters, self.extents, self)

    def output(self, value: Any) -> Any:
        """Converts a value to one that the module can return: numbers become scalars."""
        if isinstance(value, (Sym, int, float, bool)):
            return Unnamed(self).tensor(value)
        return value

    def transposed(self, x: Instruction, order: Sequence[int]) -> Instruction:
        """Returns a parameter or result with its axes in another order."""
        return Unnamed(self).transpose(x, order)

    def module_name(self, wanted: str) -> str:
        """Returns a unique module name."""
        if self.outer is not None:
            return self.outer.module_name(wanted)
        self._names += 1
        return f"{wanted}_{self._names}"


class Unnamed(Node):
    """A builder, without a node, for what a module takes and returns."""

    def __init__(self, graph: GraphConverter) -> None:
        super().__init__(graph, None)

    def sources(self) -> tuple[str, ...]:
        return ()

    def __repr__(self) -> str:
        return "an input or output"
