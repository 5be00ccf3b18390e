"""A builder of instructions for one node of a model, with what is known of its operands while the model is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import ParseError, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.axes import normalize_all
from ..ops.operation import Operation
from ..plugins.operations import make_op
from ..types.argument import Array
from ..types.dim import Dim
from ..types.dim import broadcast as broadcast_dims
from ..types.dtype import DType, int32, int64, of
from .known import Known

__all__ = ["InstructionBuilder"]


class InstructionBuilder:
    """Adds instructions to a module on behalf of one node; a frontend derives its node from it.

    Required: `module`, `known`, `absent` and `sources`; errors name the node by its `repr`.
    """

    @property
    def module(self) -> Module:
        """The module that is built."""
        raise NotImplementedError

    @property
    def known(self) -> Known:
        """Values known so far."""
        raise NotImplementedError

    def absent(self) -> Instruction:
        """Returns the stand-in for an input that is not given."""
        raise NotImplementedError

    def sources(self) -> tuple[str, ...]:
        """Returns names of the node for the instructions that it becomes."""
        raise NotImplementedError

    # errors

    def error(self, message: str) -> ParseError:
        """Returns an error that names the node, to be raised."""
        error = ParseError(message)
        error.located(repr(self))
        return error

    def fail(self, message: str) -> NoReturn:
        """Refuses the node as damaged or contradictory.  Errors: ParseError."""
        raise self.error(message)

    def unsupported(self, message: str) -> NoReturn:
        """Refuses the node as valid but not covered.  Errors: UnsupportedError."""
        raise UnsupportedError(message).located(repr(self))

    # what is known of its inputs

    def constant(self, x: Instruction | None) -> Array | None:
        """Returns the value of `x` if it is known at parse time."""
        return None if x is None else self.known.constant(x)

    def dims(self, x: Instruction | None) -> tuple[Dim, ...] | None:
        """Returns the value of an integer scalar or vector as extents, symbolic where they depend on inputs' extents."""
        found = None if x is None else self.known.extents(x)
        return None if found is None else tuple(found.reshape(-1))

    def require(self, x: Instruction, what: str) -> Array:
        """Returns the value of an operand that must be known while the model is read.  Errors: UnsupportedError."""
        found = self.constant(x)
        if found is None:
            self.unsupported(f"{what} must be known while the model is read; it depends on the model's inputs")
        return found

    def extents(self, x: Instruction, what: str) -> tuple[Dim, ...]:
        """Returns an integer operand as extents.  Errors: UnsupportedError if it is known only at run time."""
        found = self.dims(x)
        if found is None:
            self.unsupported(f"{what} must be known while the model is read; it depends on the model's inputs")
        return found

    def is_true(self, x: Instruction) -> bool:
        """Returns True if a truth value is known to be true."""
        known = self.constant(x)
        return known is not None and bool(known.reshape(()))

    def whole(self, x: Instruction, what: str) -> list[int]:
        """Returns the numbers of an integer operand that must be known.  Errors: UnsupportedError."""
        return [int(v) for v in self.require(x, what).reshape(-1)]

    # building

    def add(
        self, op: Operation | str, /, *inputs: Instruction | None, modules: Sequence[Module] = (), **attributes: Any
    ) -> Instruction:
        """Returns an instruction; None stands for an absent input.  An op may be named, with attributes as keywords."""
        if isinstance(op, str):
            op = make_op(op, **attributes)
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        return self.insert(op, [self.absent() if i is None else i for i in given], modules)

    def insert(self, op: Operation, args: Sequence[Instruction], modules: Sequence[Module]) -> Instruction:
        """Returns an instruction where the next one belongs."""
        return self.module.add(op, *args, modules=modules, sources=self.sources())

    def get(self, x: Instruction, index: int) -> Instruction:
        """Returns one item of a tuple."""
        return self.add("get_tuple_elem", x, index=index)

    def items(self, x: Instruction) -> tuple[Instruction, ...]:
        """Returns all items of a tuple."""
        return tuple(self.get(x, i) for i in range(len(x.result.items)))  # type: ignore[union-attr]

    def literal(self, value: Any, dtype: Any = None) -> Instruction:
        """Returns a constant from a number, a list or an array; numbers are float32 or int64 unless `dtype` says otherwise."""
        if dtype is not None:
            kind = of(dtype)
            array = np.asarray(value, dtype=object if kind.kind == "s" else None)
            if array.dtype != kind.numpy:
                array = array.astype(kind.numpy)
        else:
            array = np.asarray(value)
            if not isinstance(value, (np.ndarray, np.generic)) and array.dtype == np.float64:
                array = array.astype(np.float32)
        made = self.module.add_literal(array)
        made.sources = self.sources()
        return made

    def full_like(self, x: Instruction, value: Any) -> Instruction:
        """`value` in the element type and extents of `x`."""
        return self.broadcast_to(self.literal(value, x.shape.dtype), x.shape.dims)

    def broadcast_to(self, x: Instruction, dims: Iterable[Dim]) -> Instruction:
        """`x` repeated to extents `dims` by numpy's rule."""
        out = tuple(dims)
        return x if x.shape.dims == out else self.add("multibroadcast", x, out_lens=out)

    def broadcast(self, *xs: Instruction) -> list[Instruction]:
        """Returns all brought to common extents by numpy's rule.  Errors: ShapeError if they do not broadcast."""
        rank = max(x.shape.rank for x in xs)
        out: list[Dim] = [1] * rank
        for x in xs:
            for axis, d in enumerate(x.shape.dims, rank - x.shape.rank):
                out[axis] = broadcast_dims(out[axis], d)
        return [self.broadcast_to(x, out) for x in xs]

    def pointwise(self, op: Operation | str, *xs: Instruction, **attributes: Any) -> Instruction:
        """Returns a pointwise op on operands brought to common extents."""
        return self.add(op, *self.broadcast(*xs), **attributes)

    def convert(self, x: Instruction, dtype: Any) -> Instruction:
        """`x` in another element type."""
        to: DType = of(dtype)
        return x if x.shape.dtype is to else self.add("convert", x, target_type=to)

    def indices(self, x: Instruction) -> Instruction:
        """Returns integers in a type that every op takes as positions."""
        return x if x.shape.dtype in (int32, int64) else self.convert(x, int64)

    def reshape(self, x: Instruction, dims: Iterable[Dim]) -> Instruction:
        out = tuple(dims)
        if x.shape.dims == out:
            return x
        return self.add("reshape", x, dims=out, allowzero=any(isinstance(d, int) and d == 0 for d in out))

    def transpose(self, x: Instruction, permutation: Sequence[int]) -> Instruction:
        if list(permutation) == list(range(len(permutation))):
            return x
        return self.add("transpose", x, permutation=tuple(permutation))

    def axes(self, values: Iterable[int], rank: int) -> tuple[int, ...]:
        """Returns axes made non-negative.  Errors: ShapeError outside the rank or named twice."""
        return normalize_all(values, rank)

    def squeeze(self, x: Instruction, axes: Iterable[int]) -> Instruction:
        return self.add("squeeze", x, axes=tuple(axes))

    def unsqueeze(self, x: Instruction, axes: Iterable[int]) -> Instruction:
        return self.add("unsqueeze", x, axes=tuple(axes))

    def slice(self, x: Instruction, axes: Sequence[int], starts: Sequence[Dim], ends: Sequence[Dim]) -> Instruction:
        return self.add("slice", x, axes=tuple(axes), starts=tuple(starts), ends=tuple(ends))

    def along_axes(self, op: type[Operation], x: Instruction, axes: Sequence[int], **attributes: Any) -> Instruction:
        """Returns an op with an attribute `axes` that keeps the rank: a reduction."""
        return self.add(op(axes=self.axes(axes, x.shape.rank), **attributes), x)
