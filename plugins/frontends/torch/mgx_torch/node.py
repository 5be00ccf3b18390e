"""The node that is passed to converters: arguments, result type and instruction builder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from mgx_core import DType, Instruction, Module
from mgx_core import dtype as dt
from mgx_core.converting.builder import InstructionBuilder
from mgx_core.converting.known import Known
from mgx_core.types.dim import Dim, Sym

from .element_types import dtype_of
from .extents import Extents

NAME = "mgx name"  # metadata key of a node's name in the whole graph, since partitioning may rename nodes

__all__ = ["NAME", "Complex", "Node", "Scalar", "described", "place_of"]

Scalar: TypeAlias = "Instruction | Sym | int | float | bool"  # possible values of a number in a graph


class Complex(NamedTuple):
    """A complex tensor as a pair of real ones."""

    real: Instruction
    imag: Instruction


class Surroundings(Protocol):
    """The interface of the enclosing graph converter that nodes use."""

    module: Module
    known: Known
    extents: Extents

    def absent(self) -> Instruction: ...

    def scalar(self, n: Node, d: Dim) -> Instruction:
        """Returns an extent as an int64 scalar."""

    def meet(self, value: Any) -> None:
        """Records which tensors have which symbols as extents."""

    def convert(self, graph: torch.fx.Graph, inputs: Sequence[Any]) -> Any:
        """Converts a graph for given placeholder values; returns its outputs."""

    def child(self, inner: Module) -> Surroundings:
        """Returns a converter for a nested module."""

    def subgraph(self, n: Node, module: Any, name: str, shapes: Sequence[Any], operands: Sequence[Any]) -> Any:
        """Converts a subgraph to a nested module; returns it and its outputs."""

    def output(self, value: Any) -> Any:
        """Returns a value that the module can return: numbers become scalars."""

    def module_name(self, wanted: str) -> str:
        """Returns a unique module name."""


class Node(InstructionBuilder):
    """An operator call under conversion."""

    def __init__(self, graph: Surroundings, fx: torch.fx.Node | None) -> None:
        self.graph = graph
        self.fx: Any = fx
        self.value: Any = None if fx is None else fx.meta.get("val")
        self._sources: tuple[str, ...] | None = None

    @property
    def module(self) -> Module:
        return self.graph.module

    @property
    def known(self) -> Known:
        return self.graph.known

    def absent(self) -> Instruction:
        return self.graph.absent()

    def sources(self) -> tuple[str, ...]:
        if self._sources is None:
            path = module_path(self.fx)
            self._sources = (f"{path}/{self.fx.name}" if path else self.fx.name,)
        return self._sources

    def __repr__(self) -> str:
        return f"node {self.fx.meta.get(NAME, self.fx.name)!r} ({self.fx.target}){place_of(self.fx)}"

    @property
    def dtype(self) -> DType:
        """The element type of the (first) result."""
        return dtype_of(self.result().dtype)

    def result(self, index: int = 0) -> Any:
        """Returns torch's metadata of a result: type, sizes, strides."""
        value = self.value
        if isinstance(value, (tuple, list)):
            value = value[index]
        if not isinstance(value, torch.Tensor):
            self.unsupported(f"result {index} is a {type(value).__name__}, a tensor is required")
        return value

    def result_dims(self, index: int = 0) -> tuple[Dim, ...]:
        """Returns the extents of a result.  Errors: UnsupportedError for an extent that this result defines."""
        sizes = self.result(index).shape
        for size in sizes:
            if not self.graph.extents.computable(size):
                self.unsupported(
                    f"the size {self.graph.extents.text(size)} depends on data that no earlier value contains"
                )
        return tuple(self.graph.extents.of(s) for s in sizes)

    def output_used(self, index: int) -> bool:
        """Returns True if one of several results is used."""
        return any(u.args[1] == index for u in self.fx.users if len(u.args) > 1)

    def given(self, index: int) -> Any:
        """Returns torch's metadata of an argument: a fake tensor, or the number itself."""
        return described(self.fx.args[index]) if index < len(self.fx.args) else None

    def common_dtype(self, *indices: int) -> DType:
        """Returns torch's promoted type of some arguments."""
        args = [self.given(i) for i in indices]
        args = [a for a in args if isinstance(a, (torch.Tensor, int, float, bool, torch.SymInt, torch.SymFloat))]
        _, found = elementwise_dtypes(*args, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
        return dtype_of(found)

    def tensor(self, x: Scalar, dtype: DType | None = None) -> Instruction:
        """Returns a tensor, or a number as a scalar, in an element type."""
        if isinstance(x, Instruction):
            return x if dtype is None else self.convert(x, dtype)
        if isinstance(x, Sym):
            made = self.graph.scalar(self, x)
            return made if dtype is None else self.convert(made, dtype)
        if dtype is None:
            dtype = dt.bool_ if isinstance(x, bool) else dt.int64 if isinstance(x, int) else dt.float32
        if dtype.is_integer and isinstance(x, float):
            x = int(x)
        if dtype.is_integer and not isinstance(x, bool):
            x = (int(x) - dtype.lowest) % (1 << dtype.bits) + dtype.lowest
        return self.literal(x, dtype)

    def filled(self, dims: Iterable[Dim], value: Scalar, dtype: DType) -> Instruction:
        """Returns a tensor of one value."""
        return self.broadcast_to(self.tensor(value, dtype), dims)

    def rounded_once(self) -> DType:
        """Returns the type in which torch computes an operator of several steps before it rounds: float32 for narrow floats."""
        return dt.float32 if self.dtype.is_float and self.dtype.bits < 32 else self.dtype

    def tensors(self, xs: Iterable[Scalar], dtype: DType) -> list[Instruction]:
        """Returns tensors and numbers converted to one element type and broadcast."""
        return self.broadcast(*(self.tensor(x, dtype) for x in xs))

    def axis(self, axis: int, rank: int) -> int:
        """Returns a nonnegative axis; a scalar has the axes 0 and -1."""
        return self.axes([axis], max(rank, 1))[0]

    def reduced_axes(self, x: Instruction, axes: Sequence[int] | int | None) -> tuple[int, ...]:
        """Returns the axes of a reduction; all if none are given."""
        if axes is None or (not isinstance(axes, int) and not axes):
            return tuple(range(x.shape.rank))
        return self.axes([axes] if isinstance(axes, int) else axes, max(x.shape.rank, 1))

    def reduce(self, op: str, x: Instruction, axes: Sequence[int], keep: bool) -> Instruction:
        """Returns a reduction over axes, kept with extent 1 or removed."""
        if not x.shape.rank:
            return self.squeeze(self.add(op, self.unsqueeze(x, [0]), axes=(0,)), [0])
        if not axes:
            return x
        out = self.add(op, x, axes=tuple(axes))
        return out if keep else self.squeeze(out, axes)

    def size(self, x: Instruction, axes: Iterable[int]) -> Dim:
        """Returns the product of some extents."""
        count: Dim = 1
        for axis in axes:
            count = count * x.shape.dims[axis]
        return count

    def fixed_number(self, x: Scalar, what: str) -> float:
        """Returns a number that must not change from call to call.  Errors: UnsupportedError for one that may."""
        if isinstance(x, (Instruction, Sym)):
            self.unsupported(f"{what} must be constant here; it changes from call to call")
        return float(x)

    def static(self, d: Dim, what: str) -> int:
        """Returns an extent that must be static.  Errors: UnsupportedError for a symbolic one."""
        if isinstance(d, Sym):
            self.unsupported(f"{what} must be static here, got {d}")
        return d


def described(arg: Any) -> Any:
    """Returns torch's metadata of a node's argument."""
    if isinstance(arg, torch.fx.Node):
        return arg.meta.get("val")
    if isinstance(arg, (list, tuple)):
        return [described(a) for a in arg]
    return arg


def module_path(fx: torch.fx.Node) -> str:
    """Returns the path of a node's module, as in a state_dict; empty if unknown."""
    stack = fx.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    path = re.sub(r"^L\['self'\]\.?|^self\.?", "", path)
    path = re.sub(r"\['?([^'\]]*)'?\]", r".\1", path).replace("._modules.", ".").replace("._modules", "")
    return path.strip(".")


def place_of(fx: torch.fx.Node) -> str:
    """Returns a node's module and source line, for messages; empty if unknown."""
    parts = []
    path = module_path(fx)
    if path:
        parts.append(f" of module {path!r}")
    trace = fx.meta.get("stack_trace") or fx.stack_trace
    if trace:
        lines = re.findall(r'File "([^"]+)", line (\d+)', str(trace))
        if lines:
            parts.append(f" at {lines[-1][0]}:{lines[-1][1]}")
    return "".join(parts)
