"""The instruction builder for one node of a model, with access to operand values known at parse time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

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

UNKNOWN: Final = (
    "must be known at parse time, but depends on the model's inputs: fix the extents that determine it (dim_params), "
    "or make it a constant of the model"
)


class InstructionBuilder:
    """Adds the instructions of one node to a module; each frontend derives its node class from it.

    Subclasses define `module`, `known`, `absent` and `sources`; errors locate the node by its `repr`.
    """

    @property
    def module(self) -> Module:
        """The module under construction."""
        raise NotImplementedError

    @property
    def known(self) -> Known:
        """The evaluator of values known at parse time."""
        raise NotImplementedError

    def absent(self) -> Instruction:
        """Returns the instruction that represents an omitted optional input."""
        raise NotImplementedError

    def sources(self) -> tuple[str, ...]:
        """Returns the source names to attach to the node's instructions."""
        raise NotImplementedError

    # errors

    def error(self, message: str) -> ParseError:
        """Returns a ParseError located at this node, for the caller to raise."""
        error = ParseError(message)
        error.located(repr(self))
        return error

    def fail(self, message: str) -> NoReturn:
        """Rejects the node as invalid.  Errors: ParseError."""
        raise self.error(message)

    def unsupported(self, message: str) -> NoReturn:
        """Rejects the node as valid but not supported.  Errors: UnsupportedError."""
        raise UnsupportedError(message).located(repr(self))

    # operand values at parse time

    def constant(self, x: Instruction | None) -> Array | None:
        """Returns the value of `x` if it is known at parse time, else None."""
        return None if x is None else self.known.constant(x)

    def dims(self, x: Instruction | None) -> tuple[Dim, ...] | None:
        """Returns an integer scalar or vector as extents, symbolic if they depend on input extents; None if unknown."""
        found = None if x is None else self.known.extents(x)
        return None if found is None else tuple(found.reshape(-1))

    def require(self, x: Instruction, what: str) -> Array:
        """Returns the value of an operand that must be known at parse time.  Errors: UnsupportedError."""
        found = self.constant(x)
        if found is None:
            self.unsupported(f"{what} {UNKNOWN}")
        return found

    def extents(self, x: Instruction, what: str) -> tuple[Dim, ...]:
        """Returns an integer operand as extents.  Errors: UnsupportedError if its value is not known at parse time."""
        found = self.dims(x)
        if found is None:
            self.unsupported(f"{what} {UNKNOWN}")
        return found

    def is_true(self, x: Instruction) -> bool:
        """Returns True if a boolean is known to be true at parse time."""
        known = self.constant(x)
        return known is not None and bool(known.reshape(()))

    def whole(self, x: Instruction, what: str) -> list[int]:
        """Returns an integer operand, which must be known at parse time, as a list.  Errors: UnsupportedError."""
        return [int(v) for v in self.require(x, what).reshape(-1)]

    # building

    def add(
        self, op: Operation | str, /, *inputs: Instruction | None, modules: Sequence[Module] = (), **attributes: Any
    ) -> Instruction:
        """Adds and returns an instruction; None is an omitted input. `op` may be a name, with attributes as keywords."""
        if isinstance(op, str):
            op = make_op(op, **attributes)
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        return self.insert(op, [self.absent() if i is None else i for i in given], modules)

    def insert(self, op: Operation, args: Sequence[Instruction], modules: Sequence[Module]) -> Instruction:
        """Adds and returns an instruction at the insertion point."""
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
        """Returns a tensor filled with `value`, with the dtype and extents of `x`."""
        return self.broadcast_to(self.literal(value, x.shape.dtype), x.shape.dims)

    def broadcast_to(self, x: Instruction, dims: Iterable[Dim]) -> Instruction:
        """Returns `x` broadcast to `dims` (numpy rules)."""
        out = tuple(dims)
        return x if x.shape.dims == out else self.add("multibroadcast", x, out_lens=out)

    def broadcast(self, *xs: Instruction) -> list[Instruction]:
        """Returns all operands broadcast to common extents (numpy rules).  Errors: ShapeError if they do not broadcast."""
        rank = max(x.shape.rank for x in xs)
        out: list[Dim] = [1] * rank
        for x in xs:
            for axis, d in enumerate(x.shape.dims, rank - x.shape.rank):
                out[axis] = broadcast_dims(out[axis], d)
        return [self.broadcast_to(x, out) for x in xs]

    def pointwise(self, op: Operation | str, *xs: Instruction, **attributes: Any) -> Instruction:
        """Returns a pointwise op on broadcast operands."""
        return self.add(op, *self.broadcast(*xs), **attributes)

    def convert(self, x: Instruction, dtype: Any) -> Instruction:
        """Returns `x` converted to another element type."""
        to: DType = of(dtype)
        return x if x.shape.dtype is to else self.add("convert", x, target_type=to)

    def indices(self, x: Instruction) -> Instruction:
        """Returns integers in a type that every op accepts as indices."""
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
        """Returns normalized (non-negative) axes.  Errors: ShapeError if out of range or repeated."""
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
