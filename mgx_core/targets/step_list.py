"""Values and steps during emission: buffers, constants, copies, tentative emission with rollback, and recording for replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ..errors import Refused
from ..ops.operation import Operation
from ..types.argument import Array
from ..types.dtype import DType
from ..types.shape import Shape
from ..types.traced_int import int_or_traced
from .emission_cache import Recording
from .schedule import Call, Step
from .values import Buffer, Value, view_of

__all__ = ["StepList", "Trial"]

S = TypeVar("S", bound=Step)
T = TypeVar("T")


class Trial:
    """Tentative emission: rolled back unless `keep` is called."""

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        self.kept = True


class StepList(ABC):
    """Steps in order, their values, and the constants that they keep alive.

    reuse: a step may overwrite memory that it reads last.
    """

    def __init__(self, reuse: bool = True) -> None:
        self.reuse = reuse
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self.sources: tuple[str, ...] = ()  # of the current op
        self.call: Call | None = None  # the current kernel
        self.literals: dict[int, tuple[Array, Value]] = {}  # by the id of the array, which is kept alive
        self._made: dict[Hashable, Any] = {}
        # views of shapes by unary ops, by the ids of both, which are kept alive
        self._views: dict[tuple[int, int], tuple[Operation, Shape, tuple[int, Shape] | None]] = {}
        self._looked_at: tuple[Value, Array] | None = None
        self._recording: Recording | None = None  # of the current instruction

    @abstractmethod
    def copy_into(self, source: Value, target: Value) -> None:
        """Adds steps that copy the elements of one value to another of the same extents, converting their type."""

    def literal_buffer(self, array: Array, owner: Any) -> Buffer:
        """Returns a buffer for a row-major constant.  Default: a buffer on the array."""
        return Buffer("literal", array.nbytes, array=array, owner=owner)

    # buffers and values

    def allocate(self, dtype: DType, lens: Sequence[int], strides: Sequence[int] | None = None) -> Value:
        """Allocates a value in the arena, row-major or with `strides`."""
        return self.allocate_as(Shape(dtype, lens, strides))

    def allocate_as(self, shape: Shape) -> Value:
        """Allocates a value in the arena with this shape and its strides."""
        space = shape.elements() if shape.standard() else shape.element_space()
        made = Value(shape, self.scratch(max(int_or_traced(space * shape.dtype.size), 1)))
        if self._recording is not None:
            self._recording.allocated(made.buffer)
        return made

    def scratch(self, size: int) -> Buffer:
        """Allocates scratch memory in the arena; size in bytes."""
        return Buffer("arena", int_or_traced(size))

    def literal(self, array: Array, owner: Any = None) -> Value:
        """Returns a constant; the array (or `owner`) is kept alive with the schedule."""
        known = self.literals.get(id(array))
        if known is None:
            known = self.literals[id(array)] = array, self.make_literal(array, owner)
        found = known[1]
        if self._recording is not None:
            self._recording.literal(found.buffer)
        return found

    def make_literal(self, array: Array, owner: Any) -> Value:
        """Creates the value of a new constant.  Default: on `literal_buffer` of a row-major array."""
        rows = array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)
        return Value(Shape(array.dtype, array.shape), self.literal_buffer(rows, array if owner is None else owner))

    @staticmethod
    def is_constant(value: Value) -> bool:
        """Returns True for a literal, or a view of one."""
        return value.buffer.kind == "literal" and value.buffer.array is not None

    def memory(self, value: Value) -> Array | None:
        """Returns the whole array of a literal value, None for others; makes the emission uncacheable."""
        if value.buffer.kind != "literal":
            return None
        if self._recording is not None:
            self._recording.cacheable = False
        return value.buffer.array

    def constant(self, value: Value) -> Array | None:
        """Returns the array of a literal value, views of one included; None for others."""
        array = self.memory(value)
        if array is None:
            return None
        if self._looked_at is None or self._looked_at[0] is not value:  # plans often request the same one repeatedly
            size = array.dtype.itemsize
            flat = array.reshape(-1)[value.offset :]
            steps = [s * size for s in value.strides]
            if value.shape.standard() and flat.size == value.shape.elements():
                seen = flat.reshape(value.lens)
                seen.flags.writeable = False
            elif array.dtype.kind == "f" and size == 1:  # as_strided mistakes float8_e5m2 for one of numpy's types
                seen = np.ndarray(value.lens, array.dtype, flat, 0, steps)
                seen.flags.writeable = False
            else:
                seen = np.lib.stride_tricks.as_strided(flat, value.lens, steps, writeable=False)
            self._looked_at = value, seen
        return self._looked_at[1]

    def may_overwrite(self, value: Value, dtype: DType) -> bool:
        """Returns True if a step may overwrite this value: its memory is not read after the current instruction."""
        return (
            self.reuse
            and value.buffer.kind in ("arena", "given")
            and value.buffer.readers <= 1
            and value.whole()
            and value.shape.dtype is dtype
            and not value.shape.broadcasted()
        )

    def copy(self, value: Value, strides: Sequence[int] | None = None) -> Value:
        """Returns a copy, row-major or with `strides`."""
        out = self.allocate(value.shape.dtype, value.lens, strides)
        if value.shape.elements():
            self.copy_into(value, out)
        return out

    def row_major(self, value: Value) -> Value:
        """Returns the value if it is dense and row-major, otherwise a copy that is."""
        return Value(value.plain, value.buffer, value.offset) if value.dense() else self.copy(value)

    def view_of(self, op: Operation, value: Value, others: Sequence[Value | None] = ()) -> Value | None:
        """Returns an op's result as a view of a value; None if elements would have to be moved."""
        if others or op.view is None:
            return view_of(op, value, others)
        key, shape = (id(op), id(value.shape)), value.shape
        known = self._views.get(key)
        if known is None:
            known = self._views[key] = op, shape, op.view(shape)
        return None if known[2] is None else value.view_at(*known[2])

    # caches and notes

    def uncacheable(self) -> None:
        """Marks the current emission as dependent on more than the op and its operands' layouts: it is not cached."""
        if self._recording is not None:
            self._recording.cacheable = self._recording.numbers = False

    def repeatable(self, add: Callable[[Any, Sequence[Value]], None], values: Sequence[Value]) -> None:
        """Adds steps by ``add(emitter, values)``, which the emission cache calls again with the corresponding values."""
        recording = self._recording
        if recording is None:
            add(self, values)
            return
        recording.repeat(add, values, self.call)
        self._recording = None
        try:
            add(self, values)
        finally:
            self._recording = recording

    def derived(self, source: Buffer, key: Hashable, make: Callable[[Any, Buffer], Buffer]) -> Buffer:
        """Returns the buffer that ``make(emitter, source)`` derives from a constant, cached by `key`; repeatable."""
        recording, self._recording = self._recording, None
        try:
            made = make(self, source)
        finally:
            self._recording = recording
        if recording is not None:
            recording.derived(source, made, key, make)
        return made

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the result of `make`, cached by key, since layers of a model repeat requests."""
        try:
            found: T | None = self._made.get(key)
        except TypeError:  # an unhashable attribute
            return make()
        if found is None:
            found = self._made[key] = make()
        return found

    def note(self, text: str) -> None:
        """Records a refusal for the report."""
        if self._recording is not None:
            self._recording.noted(text)
        self.notes.append(f"{', '.join(self.sources)}: {text}" if self.sources else text)

    def label(self, kind: str) -> str:
        """Returns a name for a step, after its sources."""
        return f"{kind} {self.sources[-1]}" if self.sources else kind

    def finish(self) -> None:
        """Releases data that only emission needs."""
        self.call = self._looked_at = None
        self._made.clear()
        self._views.clear()
        self.literals.clear()

    # steps

    def add(self, step: S) -> S:
        """Adds a step of the current kernel."""
        self.uncacheable()
        step.call = self.call
        self.steps.append(step)
        return step

    def marks(self) -> tuple[int, ...]:
        """Returns the current position, for `rollback`."""
        recorded = (0, 0) if self._recording is None else self._recording.marks()
        return len(self.steps), len(self.literals), *recorded

    def rollback(self, marks: tuple[int, ...]) -> None:
        """Rolls back to a position returned by `marks`."""
        if self._recording is not None:
            self._recording.rollback(*marks[2:4])
        del self.steps[marks[0] :]
        while len(self.literals) > marks[1]:
            self.literals.popitem()

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Context manager: rolls back steps unless `keep` is called, also after a refusal."""
        marks = self.marks()
        trial = Trial()
        try:
            yield trial
        except Refused as error:
            self.note(error.no.why)
        if not trial.kept:
            self.rollback(marks)
