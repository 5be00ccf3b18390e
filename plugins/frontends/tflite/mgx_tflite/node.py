"""The operator that is passed to converters: attributes with defaults, and instruction builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from mgx_core import Instruction, Module
from mgx_core.converting.channels_last import ChannelsLastBuilder, Padding
from mgx_core.converting.known import Known
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from .model import Operator, Tensor
from .options import TfliteOptions

__all__ = ["Node", "Surroundings"]

Made = TypeVar("Made")


class Surroundings(Protocol):
    """The interface of the enclosing scope that nodes use."""

    module: Module
    known: Known
    options: TfliteOptions
    prefix: str

    def absent(self) -> Instruction: ...
    def tensor(self, index: int) -> Tensor: ...
    def handle(self, index: int) -> Any: ...
    def keep(self, index: int, handle: Any) -> None: ...
    def raw(self, index: int) -> Instruction: ...
    def any(self, index: int) -> Any: ...
    def shared(self, key: str, make: Callable[[], Any]) -> Any: ...
    def call(self, subgraph: int, given: Sequence[Any], module: Module | None = None) -> list[Any]: ...
    def submodule(self, name: str) -> Module: ...
    def within(self, module: Module) -> Surroundings: ...
    def variable(self, index: int) -> str: ...
    def initialize(self, subgraph: int) -> None: ...
    def initializing(self) -> bool: ...
    def tables(self) -> dict[str, tuple[Array, Array]]: ...
    def unchanged(self, subgraph: int) -> list[int]: ...
    def reducer(self, subgraph: int) -> str: ...
    def state(self, key: str, like: Callable[[], Array]) -> Instruction: ...
    def set_state(self, key: str, value: Instruction) -> None: ...
    def apart(self, build: Callable[[], Made]) -> tuple[Made, dict[str, Instruction]]: ...
    def held(self, keys: Sequence[str], changed: Mapping[str, Instruction]) -> list[Instruction]: ...
    def assign(self, keys: Sequence[str], values: list[Any]) -> list[Any]: ...
    def stateful(self, subgraph: int) -> bool: ...


class Node(ChannelsLastBuilder):
    """A TFLite operator under conversion."""

    def __init__(self, scope: Surroundings, operator: Operator) -> None:
        self.scope = scope
        self.operator = operator
        self.op_type = operator.name
        self.name = scope.tensor(operator.outputs[0]).name if operator.outputs else f"operator_{operator.place}"

    @property
    def module(self) -> Module:
        return self.scope.module

    @property
    def known(self) -> Known:
        return self.scope.known

    def absent(self) -> Instruction:
        return self.scope.absent()

    def sources(self) -> tuple[str, ...]:
        return (self.scope.prefix + self.name,)

    def __repr__(self) -> str:
        return f"operator {self.operator.place} {self.op_type} of {self.name!r}"

    def option(self, name: str, default: Any) -> Any:
        """Returns an attribute; `default` if the operator has no attributes."""
        if self.operator.options is None:
            return default
        return getattr(self.operator.options, name)()

    def options(self, name: str) -> list[int]:
        """Returns an attribute that is a list of numbers."""
        if self.operator.options is None or not self.option(name + "Length", 0):
            return []
        return [int(v) for v in self.option(name + "AsNumpy", None)]

    def input(self, place: int) -> Tensor | None:
        """Returns the tensor record of an input; None if it is omitted."""
        if place >= len(self.operator.inputs) or self.operator.inputs[place] < 0:
            return None
        return self.scope.tensor(self.operator.inputs[place])

    def output(self, place: int = 0) -> Tensor:
        """Returns the tensor record of an output."""
        if place >= len(self.operator.outputs):
            self.fail(f"output {place} is required, there are {len(self.operator.outputs)}")
        return self.scope.tensor(self.operator.outputs[place])

    def kind(self, place: int = 0) -> DType:
        """Returns the element type of an output."""
        found = self.output(place).dtype
        if found is None:
            self.fail(f"output {place} must be a tensor")
        return found

    def rank(self, x: Instruction) -> int:
        """Returns the rank of the first operand in the file, without the axis that complex numbers have for their parts."""
        given = self.input(0)
        return x.shape.rank - (given is not None and given.dtype is not None and given.dtype.kind == "c")

    def padding(self) -> Padding:
        return "valid" if self.option("Padding", 0) else "same"

    def activated(self, x: Instruction) -> Instruction:
        """Applies the operator's fused activation to x."""
        match self.option("FusedActivationFunction", 0):
            case 0:
                return x
            case 1:
                return self.pointwise("relu", x)
            case 2:
                return self.pointwise("clip", x, self.literal(-1, x.shape.dtype), self.literal(1, x.shape.dtype))
            case 3:
                return self.pointwise("clip", x, self.literal(0, x.shape.dtype), self.literal(6, x.shape.dtype))
            case 4:
                return self.pointwise("tanh", x)
            case other:
                return self.unsupported(f"activation {other}")

    def zero(self, x: Instruction) -> int:
        """Returns the representation of 0 in the first operand: its zero point if it is quantized and not dequantized."""
        given = self.input(0)
        if given is None or given.quantization is None or x.shape.dtype is not given.dtype:
            return 0
        return int(given.quantization.zero_point[0])

    def dequantized(self, x: Instruction, place: Tensor) -> Instruction:
        """Returns the dequantized values of a tensor."""
        given = place.quantization
        if given is None:
            return x
        zero = given.zero_point
        scale = self.literal(given.scale[0] if given.scale.size == 1 else given.scale)
        if x.shape.dtype.bits > 32:
            x = self.convert(x, np.float64)
            wide = given.scale if given.scale.size > 1 else given.scale[0]
            return self.convert(self.pointwise("mul", x, self.literal(np.asarray(wide, np.float64))), np.float32)
        point = None if not zero.any() else self.literal(zero[0] if zero.size == 1 else zero, x.shape.dtype)
        if given.scale.size > 1:
            return self.add("dequantizelinear", x, scale, point, axis=given.axis)
        return self.apply_before_transpose(x, lambda inner: self.add("dequantizelinear", inner, scale, point, axis=0))

    def quantized(self, x: Instruction, place: Tensor) -> Instruction:
        """Returns real values quantized by a tensor's parameters."""
        given = place.quantization
        if given is None or place.dtype is None:
            return x
        if given.scale.size > 1:
            self.unsupported("an activation quantized per axis")
        scale = self.literal(given.scale[0])
        point = self.literal(given.zero_point[0], place.dtype)
        return self.apply_before_transpose(
            x, lambda inner: self.add("quantizelinear", inner, scale, point, out_type=place.dtype)
        )
