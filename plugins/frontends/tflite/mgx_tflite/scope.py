"""Converts subgraphs to instructions; quantized operators become dequantize, float op, quantize (QDQ form).

In QDQ form the passes fuse them into integer kernels, as for other formats.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final

import numpy as np

from mgx_core import DeviceError, Instruction, MgxError, Module, ParseError, UnsupportedError
from mgx_core.converting.converters import fitting
from mgx_core.errors import counted
from mgx_core.types.argument import Array

from .context import Context
from .model import Subgraph, Tensor
from .node import Node
from .state_access import EFFECTS, StateAccess

__all__ = ["Scope"]

MALFORMED: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, struct.error)

# operators that only move elements: they work on quantized values directly if all scales are equal
EXACT: Final = frozenset({
    "RESHAPE", "TRANSPOSE", "CONCATENATION", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "PACK", "UNPACK", "GATHER",
    "GATHER_ND",
    "MAX_POOL_2D", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "REVERSE_SEQUENCE", "TILE", "EXPAND_DIMS", "SQUEEZE", "BROADCAST_TO",
    "SELECT", "SELECT_V2", "REDUCE_MAX", "REDUCE_MIN", "MAXIMUM", "MINIMUM", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "ARG_MAX",
    "ARG_MIN", "SHAPE", "RANK", "EMBEDDING_LOOKUP", "TOPK_V2", "EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS",
    "LESS_EQUAL", "BATCH_TO_SPACE_ND", "DYNAMIC_UPDATE_SLICE", "PAD", "PADV2", "MIRROR_PAD", "CALL", "SCATTER_ND",
})  # fmt: skip
# of these, operators that copy bytes unchanged, regardless of scales
COPIED: Final = frozenset({
    "BROADCAST_TO", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "GATHER", "GATHER_ND", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR",
    "REVERSE_V2", "SLICE", "STRIDED_SLICE", "TILE", "TRANSPOSE",
})  # fmt: skip
# operators that support complex numbers, stored as pairs along an additional last axis
ON_COMPLEX: Final = frozenset({
    "ADD", "SUB", "MUL", "NEG", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "REAL", "IMAG", "COMPLEX_ABS", "WHILE", "IF", "CALL",
})  # fmt: skip
# operators that handle quantization themselves or copy values unchanged, such as assignments to variables
OWN: Final = frozenset({
    "QUANTIZE", "DEQUANTIZE", "WHILE", "IF", "CALL_ONCE", "READ_VARIABLE", "ASSIGN_VARIABLE",
    "CUSTOM:TFLite_Detection_PostProcess",
})  # fmt: skip


class Scope(StateAccess):
    """Converts one subgraph into a module."""

    def __init__(
        self, context: Context, subgraph: int, module: Module, prefix: str = "", calling: tuple[int, ...] = ()
    ) -> None:
        if not 0 <= subgraph < len(context.model.subgraphs):
            raise ParseError(f"subgraph {subgraph} is called, there are {len(context.model.subgraphs)}")
        if subgraph in calling:
            raise ParseError(f"subgraph {subgraph} calls itself")
        if len(calling) >= context.options.limit_depth:
            raise ParseError(f"subgraphs nest deeper than {context.options.limit_depth} (option limit_depth)")
        self.context = context
        self.place = subgraph
        self.graph: Subgraph = context.model.subgraphs[subgraph]
        self.module = module
        self.known = context.known
        self.options = context.options
        self.prefix = prefix
        self.calling = (*calling, subgraph)
        self.values: dict[int, Instruction] = {}
        self.handles: dict[int, Any] = {}
        self._absent: Instruction | None = None

    def absent(self) -> Instruction:
        """Returns the instruction that represents an omitted input."""
        if self._absent is None or self._absent.parent is not self.module:
            self._absent = self.module.add_absent()
        return self._absent

    def tensor(self, index: int) -> Tensor:
        return self.graph.tensors[index]

    def handle(self, index: int) -> Any:
        """Returns the resource of a tensor.  Errors: ParseError if it is not one."""
        if index not in self.handles:
            raise ParseError(f"tensor {self.tensor(index).name!r} must be a resource")
        return self.handles[index]

    def keep(self, index: int, handle: Any) -> None:
        self.handles[index] = handle

    def any(self, index: int) -> Any:
        """Returns a tensor's value in its own type, or its resource."""
        return self.handles[index] if index in self.handles else self.raw(index)

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Returns a plugin converter's storage for the whole model."""
        if key not in self.context.shared:
            self.context.shared[key] = make()
        return self.context.shared[key]

    def raw(self, index: int) -> Instruction:
        """Returns a tensor's value in its own type."""
        found = self.values.get(index)
        if found is None:
            tensor = self.tensor(index)
            if tensor.variable:
                return self._variable(index, tensor)
            if tensor.value is None:
                raise ParseError(f"tensor {tensor.name!r} is read before an operator defines it")
            value = tensor.value
            if value.dtype.kind == "c":  # complex numbers are stored as pairs along a last axis
                value = np.stack([value.real, value.imag], -1)
            found = self.module.add_literal(value)
            found.sources = (self.prefix + tensor.name,)
            self.values[index] = found
        return found

    def _variable(self, index: int, tensor: Tensor) -> Instruction:
        """Returns the state of a variable tensor: zeros before the first run."""
        if tensor.dtype is None or any(d < 0 for d in tensor.dims):
            raise ParseError(f"variable {tensor.name!r} must have known extents, got {tensor.dims}")
        kind, dims = tensor.dtype.numpy, tensor.dims
        zero = 0 if tensor.quantization is None else int(tensor.quantization.zero_point[0])
        return self.state(self.variable(index), lambda: np.full(dims, zero, kind))

    def variable(self, index: int) -> str:
        """Returns the key of a variable tensor's state."""
        return f"variable_{self.place}_{index}"

    def tables(self) -> dict[str, tuple[Array, Array]]:
        return self.context.tables

    def initialize(self, subgraph: int) -> None:
        """Converts an initialization subgraph (CALL_ONCE) in a temporary module and records its assignments as initial values."""
        context = self.context
        context.initializing = True
        try:
            Scope(context, subgraph, Module("initial"), self.prefix, self.calling).build([])
        finally:
            context.initializing = False

    def submodule(self, name: str) -> Module:
        """Returns a new module for a branch or body of this subgraph."""
        word = re.sub(r"[^A-Za-z0-9_.:]", "_", name)
        count = self.context.names.get(word, 0)
        self.context.names[word] = count + 1
        return Module(word if not count else f"{word}_{count}")

    def within(self, module: Module) -> Scope:
        """Returns a copy of this scope that builds into another module."""
        inner = copy(self)
        inner.module, inner._absent = module, None
        return inner

    def call(self, subgraph: int, given: Sequence[Any], module: Module | None = None) -> list[Any]:
        """Inlines another subgraph on some values into a module (by default this scope's); returns its results."""
        inner = Scope(self.context, subgraph, self.module if module is None else module, self.prefix, self.calling)
        return inner.build(given)

    def reducer(self, subgraph: int) -> str:
        """Returns the name of the only operator of a reduction body, which combines its two inputs."""
        if not 0 <= subgraph < len(self.context.model.subgraphs):
            raise ParseError(f"subgraph {subgraph} is referenced, there are {len(self.context.model.subgraphs)}")
        graph = self.context.model.subgraphs[subgraph]
        names = [o.name for o in graph.operators]
        if len(names) == 1 and len(set(graph.inputs)) == 2:
            (only,) = graph.operators
            if sorted(only.inputs) == sorted(graph.inputs) and only.outputs == graph.outputs:
                return only.name
        raise UnsupportedError(f"a reduction by {names}: the body must be a single operator on both inputs")

    def unchanged(self, subgraph: int) -> list[int]:
        """Returns the indices of a subgraph's results that are its inputs, unchanged."""
        graph = self.context.model.subgraphs[subgraph]
        return [k for k, (a, b) in enumerate(zip(graph.inputs, graph.outputs, strict=False)) if a == b]

    def build(self, given: Sequence[Any]) -> list[Any]:
        """Converts the subgraph for given input values; returns its outputs."""
        if len(given) != len(self.graph.inputs):
            raise ParseError(
                f"subgraph {self.graph.name!r} takes {counted(len(self.graph.inputs), 'value')}, got {len(given)}"
            )
        for index, value in zip(self.graph.inputs, given, strict=True):
            if isinstance(value, Instruction):
                self.values[index] = value
            else:
                self.handles[index] = value
        self.run()
        return [self.any(i) for i in self.graph.outputs]

    def run(self, wanted: Sequence[int] | None = None) -> None:
        """Converts the operators that the results depend on."""
        needed = None if wanted is None else self._needed(wanted)
        for k, operator in enumerate(self.graph.operators):
            if needed is None or k in needed:
                self.convert(Node(self, operator))

    def _needed(self, wanted: Sequence[int]) -> set[int]:
        maker = {i: k for k, o in enumerate(self.graph.operators) for i in o.outputs}
        effects = [
            k
            for k, o in enumerate(self.graph.operators)
            if not o.outputs or o.name in EFFECTS or self.calls_stateful(o)
        ]
        stateful = [
            k for k, o in enumerate(self.graph.operators) if any(i >= 0 and self.tensor(i).variable for i in o.inputs)
        ]
        stack = [maker[i] for i in wanted if i in maker] + effects + stateful
        seen: set[int] = set()
        while stack:
            k = stack.pop()
            if k not in seen:
                seen.add(k)
                stack += [maker[i] for i in self.graph.operators[k].inputs if i in maker]
        return seen

    def convert(self, n: Node) -> None:
        """Converts an operator.  Errors: those of its converter, located at the operator."""
        context = self.context
        context.nodes += 1
        if context.nodes > context.options.limit_nodes:
            raise ParseError(
                f"the model has more than {context.options.limit_nodes} operators after inlining (option limit_nodes)"
            )
        try:
            made = self._converted(n)
        except MgxError as error:
            raise error.located(repr(n)) from None
        except MemoryError as error:
            raise DeviceError(f"not enough memory while parsing: {error}").located(repr(n)) from None
        except RecursionError:
            raise ParseError("the model nests too deeply").located(repr(n)) from None
        except MALFORMED as e:
            raise ParseError(f"malformed operator: {type(e).__name__}: {e}").located(repr(n)) from e
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        for index, value in zip(n.operator.outputs, results, strict=False):
            if value is not None:
                self.values[index] = value

    def _converted(self, n: Node) -> Any:
        operator = n.operator
        converter = self.context.converter(operator.name)
        places = [None if i < 0 or self.tensor(i).dtype is None else i for i in operator.inputs]
        kinds = [self.tensor(i).dtype for i in operator.inputs if i >= 0]
        of_complex = any(k is not None and k.kind == "c" for k in kinds)
        if of_complex and operator.name not in ON_COMPLEX and not operator.name.startswith("CUSTOM:"):
            raise UnsupportedError(f"{operator.name} of complex numbers")
        if operator.name in OWN:
            inputs = [None if i is None else self.raw(i) for i in places]
            return converter(n, *fitting(converter, inputs))
        quantized = [
            i for i in (*places, *operator.outputs) if i is not None and self.tensor(i).quantization is not None
        ]
        if not quantized or (operator.name in EXACT and self._one_scale(operator)):
            inputs = [None if i is None else self.raw(i) for i in places]
            return converter(n, *fitting(converter, inputs))
        inputs = [None if i is None else n.dequantized(self.raw(i), self.tensor(i)) for i in places]
        made = converter(n, *fitting(converter, inputs))
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        out = []
        for index, value in zip(operator.outputs, results, strict=False):
            tensor = self.tensor(index)
            keeps = value is None or tensor.quantization is None or not value.shape.dtype.is_float
            out.append(value if keeps else n.quantized(value, tensor))
        return out

    def _one_scale(self, operator: Any) -> bool:
        """Returns True if an operator's quantized tensors share scale and zero point, or if it copies bytes unchanged."""
        tensors = [self.tensor(i) for i in (*operator.inputs, *operator.outputs) if i >= 0]
        found = [
            t.quantization for t in tensors if t.quantization is not None and t.dtype is not None and t.dtype.bits <= 16
        ]
        if operator.name in ("ARG_MAX", "ARG_MIN", "SHAPE", "RANK"):
            return True
        mixed = any(t.dtype is not None and t.dtype.is_float for t in tensors)
        if mixed or any(q.scale.size != 1 for q in found):
            return False
        if operator.name in COPIED:
            return len({t.dtype for t in tensors if t.quantization is not None}) == 1
        return all(q == found[0] for q in found)
