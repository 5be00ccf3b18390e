"""One step of a module: an operation applied to the results of earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.operation import Operation
from ..types.argument import Argument
from ..types.dim import Sym
from ..types.shape import AnyShape, Shape
from ..types.tensor_shape import MAX_BYTES

if TYPE_CHECKING:
    from .module import Module

__all__ = ["Instruction", "exchanged", "infer_shape"]


class Instruction:
    """An op, its inputs and sub-modules, and the shape of its result.

    Created and edited through its `Module`.  `users` maps the instructions that read it (also those of nested modules) to how
    often they do; `sources` are the names of the model's nodes that it came from.  Compared by identity.
    """

    __match_args__ = ("op", "inputs")
    __slots__ = ("_next", "_prev", "_users", "inputs", "literal", "modules", "op", "parent", "result", "sources")

    op: Operation
    result: AnyShape
    inputs: tuple[Instruction, ...]
    modules: tuple[Module, ...]
    literal: Argument | None
    sources: tuple[str, ...]
    parent: Module | None
    _prev: Instruction | None
    _next: Instruction | None
    _users: dict[Instruction, int]

    def __init__(
        self,
        op: Operation,
        result: AnyShape,
        inputs: tuple[Instruction, ...] = (),
        modules: tuple[Module, ...] = (),
        literal: Argument | None = None,
        sources: tuple[str, ...] = (),
    ) -> None:
        self.op = op
        self.result = result
        self.inputs = inputs
        self.modules = modules
        self.literal = literal
        self.sources = sources
        self.parent = None
        self._prev = None
        self._next = None
        self._users = {}

    @property
    def name(self) -> str:
        """The op's name."""
        return self.op.name

    @property
    def shape(self) -> Shape:
        """The tensor shape of the result.  Errors: ShapeError if the result is a tuple, sequence or optional (see `result`)."""
        if not isinstance(self.result, Shape):
            raise ShapeError(f"{self.op!r} gives a {self.result}, where a tensor is required")
        return self.result

    @property
    def next(self) -> Instruction | None:
        """The next instruction of its module."""
        return self._next

    @property
    def previous(self) -> Instruction | None:
        """The previous instruction of its module."""
        return self._prev

    @property
    def users(self) -> tuple[Instruction, ...]:
        return tuple(self._users)

    @property
    def outputs(self) -> list[Instruction]:
        """MIGraphX's name of `users`."""
        return list(self._users)

    @property
    def is_param(self) -> bool:
        return isinstance(self.op, Param)

    @property
    def is_literal(self) -> bool:
        return isinstance(self.op, Literal)

    @property
    def is_return(self) -> bool:
        return isinstance(self.op, Return)

    @property
    def is_absent(self) -> bool:
        return isinstance(self.op, Undefined)

    def get_literal(self) -> Argument:
        """Returns the constant value.  Errors: ShapeError if this is not a literal."""
        if self.literal is None:
            raise ShapeError(f"{self.op!r} is not a literal")
        return self.literal

    def __repr__(self) -> str:
        args = ", ".join("-" if i.is_absent else i.name for i in self.inputs)
        return f"{self.op!r}({args}) -> {self.result}"

    # links and caches maintained by Module

    def _use(self) -> None:
        for i in self.inputs:
            i._users[self] = i._users.get(self, 0) + 1
        for m in self.modules:
            m.runners += 1

    def _unuse(self) -> None:
        for i in self.inputs:
            count = i._users.get(self, 0) - 1
            if count > 0:
                i._users[self] = count
            else:
                i._users.pop(self, None)
        for m in self.modules:
            m.runners -= 1


def infer_shape(op: Operation, inputs: Sequence[Instruction], modules: Sequence[Any] = ()) -> AnyShape:
    """Returns the result's shape by the op's shape inference (absent inputs are passed as None)."""
    found = op.result([None if isinstance(i.op, Undefined) else i.result for i in inputs], modules)
    if type(found) is Shape and found.ranked:
        count = 1
        for d in found.dims:
            if isinstance(d, Sym):
                return found
            count *= d
        if count * found.dtype.size > MAX_BYTES:
            raise ShapeError(
                f"{op!r} would give {found}: {count * found.dtype.size} bytes, more than the limit for one tensor"
            )
    return found


def exchanged(inputs: tuple[Instruction, ...], old: Instruction, new: Instruction) -> tuple[Instruction, ...]:
    """Returns inputs with one instruction replaced by another; a return may have thousands of inputs."""
    if len(inputs) < 8:
        return tuple([new if i is old else i for i in inputs])
    changed, at = list(inputs), -1
    try:
        while True:
            at = changed.index(old, at + 1)
            changed[at] = new
    except ValueError:
        return tuple(changed)
