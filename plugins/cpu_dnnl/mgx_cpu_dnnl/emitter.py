"""Emits native programs, whose steps are oneDNN primitives, compiled loops and functions of the native module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from mgx_core import DeviceError, Instruction, Kernels, MgxError, Module, No, Shape, UnsupportedError
from mgx_core.errors import Refused
from mgx_core.records import dataclass
from mgx_core.targets.cut import border, emitted_at_run_time
from mgx_core.targets.emission import Emitter
from mgx_core.targets.kernel import Launch
from mgx_core.targets.kernel_emission import HostFunction, Tuning
from mgx_core.targets.loops import LoopSteps, Trips
from mgx_core.targets.schedule import Schedule, Step
from mgx_core.targets.static_part import Split
from mgx_core.targets.values import Buffer, Value
from mgx_core.types.argument import Array
from mgx_core.types.dtype import int64
from mgx_core.types.traced_int import TracedInt, value_of

from .concat_sharing import Chain, Place, chains_of, places_of
from .native_library import native
from .packing import Derived, is_multiplied
from .shared import Shared, shared

if TYPE_CHECKING:
    from mgx_core.types.dtype import DType
    from mgx_core.types.traced_int import Trace

    from .jit.kernel import JitKernel

__all__ = ["CpuEmitter", "NativeStep", "NotOpen", "is_traced"]

# beginnings of the kinds of primitives that compiled loops replace, perhaps of parts of the op
LOOPS_TOO: Final = ("matmul", "convolution")
LEAST_COUNTED: Final = 4096  # numbers of a constant that is longer than needed

Install: TypeAlias = Callable[[Any, Callable[[Buffer], int]], None]


class NotOpen(MgxError):
    """A step takes no extents as arguments."""


@dataclass(eq=False)
class NativeStep(Step):
    """One step of a native program.

    install: adds the step to a native program, given a function that numbers buffers.
    """

    install: Install = field(kw_only=True)


class CpuEmitter(Emitter):
    """Collects the steps of a native program.

    threads: number of threads, 0 for all; fast_math: allows approximations; guarded: runs third-party C functions on guarded
    buffers.
    """

    branches = True
    loops = True
    overwrites = True

    def __init__(
        self,
        kernels: Kernels,
        context: Any = None,
        reuse: bool = True,
        tuning: Tuning | None = None,
        threads: int = 0,
        fast_math: bool = True,
        guarded: bool = False,
    ) -> None:
        super().__init__(kernels, context, reuse, tuning)
        self.threads = threads
        self.fast_math = fast_math
        self.guarded = guarded
        self.chains: dict[Instruction, Chain] = {}
        self.places: dict[Instruction, Place] = {}
        self.packs: dict[int, Buffer] = {}  # packed constants, by id; they keep them alive
        self._permuted: dict[int, tuple[Array, Value]] = {}  # by the array's id
        self.trace: Trace | None = None  # of the extents, if they are traced
        self.sizes: dict[Buffer, int] = {}  # traced sizes of buffers
        self.replaced = False  # True once a loop has replaced a primitive because extents are traced

    @property
    def settings(self) -> Hashable:
        return self.threads, self.fast_math, self.guarded

    def fresh(self, tuning: bool = True) -> CpuEmitter:
        chosen = self.tuning if tuning else None
        return CpuEmitter(self.kernels, self.context, self.reuse, chosen, self.threads, self.fast_math, self.guarded)

    @property
    def shared(self) -> Shared:
        """The process-wide caches."""
        return shared()

    @cached_property
    def features(self) -> frozenset[str]:
        """Instruction sets of the processor, by Linux flag names."""
        return frozenset(native().cpu_features())

    @cached_property
    def engine(self) -> Any:
        """The process-wide loop compiler."""
        return self.shared.engine

    def schedule(self, module: Any) -> Schedule:
        made = super().schedule(module)
        self.finish()
        if self.tuning is not None:
            self.tuning.save()
        return made

    def planned(self, module: Module, outputs: list[Value], parts: Split | None = None) -> Schedule:
        """Returns the schedule; buffers of traced sizes are placed with their current ones."""
        for step in self.steps if self.trace is not None else ():
            for buffer in (*step.reads, *step.writes):
                if buffer.kind == "arena" and type(buffer.bytes) is TracedInt:
                    self.sizes[buffer] = buffer.bytes
                    buffer.bytes = value_of(buffer.bytes)
        return super().planned(module, outputs, parts)

    def emit_counted(
        self, module: Module, parts: Split, env: dict[Instruction, Any]
    ) -> dict[Instruction, tuple[int, tuple[Value, ...]]]:
        found = super().emit_counted(module, parts, env)
        for ins, (axis, _) in border(module, parts.static).counted.items() if parts.rest else ():
            if not _bounded_by_constants(ins):
                continue
            self.read_parameters(module, ins.inputs, env)
            assert isinstance(ins.op, Launch)
            self.current, self.sources = ins, ins.sources
            args = [self.value_of(i, env) for i in ins.inputs]
            values = self.attempt(ins.op.kernel, ins.op.of, ins.modules, args, ins.op.refused)
            if isinstance(values, tuple):
                found[ins] = axis, tuple(v for v in values if isinstance(v, Value))
        self.current, self.sources = None, ()
        return found

    def emit_static(self, module: Any, static: Any, wanted: Any) -> dict[Instruction, Any]:
        self.chains = chains_of(module, static)
        self.places = places_of(module, static, self.chains)
        return super().emit_static(module, static, wanted)

    def finish(self) -> None:
        super().finish()
        for cache in (self.chains, self.places, self.packs, self._permuted):
            cache.clear()

    def marks(self) -> tuple[int, ...]:
        return (*super().marks(), len(self.packs))

    def rollback(self, marks: tuple[int, ...]) -> None:
        super().rollback(marks)
        while len(self.packs) > marks[-1]:
            self.packs.popitem()

    def decided_at_run_time(self, ins: Instruction) -> No | None:
        return None if emitted_at_run_time(ins) else super().decided_at_run_time(ins)

    # values

    def make_literal(self, array: Array, owner: Any) -> Value:
        """Returns a constant, shared by all programs of the process."""
        if not array.flags.c_contiguous:
            owner = self.shared.weights.contiguous(array)
            array = owner.array
        return Value(_plain_shape(array.dtype, array.shape), self.shared.weights.constant(array, owner))

    def constant_value(self, ins: Instruction) -> Value:
        array = ins.get_literal().to_numpy()
        if not array.flags.c_contiguous and is_multiplied(ins):
            return self._permuted_literal(array)
        return self.literal(array)

    def _permuted_literal(self, array: Array) -> Value:
        """Returns a constant with permuted axes without copying it."""
        known = self._permuted.get(id(array))
        if known is None:
            outermost_first = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
            rows = array.transpose(outermost_first)
            if not rows.flags.c_contiguous:
                return self.literal(array)
            steps = [s // array.itemsize for s in array.strides]
            value = self.literal(rows).view_at(0, Shape(array.dtype, array.shape, steps))
            known = self._permuted[id(array)] = array, value
        elif self._recording is not None:
            self._recording.literal(known[1].buffer)
        return known[1]

    def chain(self, operands: int) -> Chain | None:
        """Returns the sharing chain of the current concatenation, if it has this many operands."""
        if self.chains:
            self.uncacheable()
        ins = self.current
        return None if ins is None or operands != len(ins.inputs) else self.chains.get(ins)

    def storage_of_concat(self) -> Value | None:
        """Returns the memory of the current concatenation, if a kernel has already written an operand to it."""
        if self.places:
            self.uncacheable()
        place = None if self.current is None else self.places.get(self.current)
        return None if place is None else place.storage

    def place_in_concat(self, dtype: DType, lens: Sequence[int], order: Sequence[int]) -> Value | None:
        """Returns memory for the current result inside its only reader, a concatenation; strides follow the given axis order.

        None if there is no such reader, its other operands use another order, or type or extents differ from the result's.
        The caller must write the result there.
        """
        if self.places:
            self.uncacheable()
        ins = self.current
        place = None if ins is None else self.places.get(ins)
        if ins is None or place is None or ins is place.concat:
            return None
        if ins.shape.dtype is not dtype or list(ins.shape.lens()) != list(lens):
            return None  # that of a group member emitted on its own: sums before requantization
        return place.inside(ins, self.allocate, dtype, lens, order)

    def counting(self, count: int, dtype: DType = int64) -> Value:
        """Returns the constant [0, 1, .., count - 1]; for a traced count, the beginning of a longer one."""
        room = count if type(count) is not TracedInt else max(LEAST_COUNTED, 4 << value_of(count).bit_length())
        if count > room:  # always false here; the steps are not valid for counts that are larger
            raise Refused(f"at most {room} numbers are counted, got {count}")
        return self.literal(_counted(dtype, room)).view_at(0, Shape(dtype, [count]))

    def packed(self, value: Value, plain: Any, wanted: Any, bfloat16: bool = False) -> Value:
        """Packs a constant into a primitive's layout, once.

        bfloat16: the values are bfloat16 and are stored as such, although the layouts are given as float32.
        """
        if plain == wanted and not bfloat16:
            return value
        offset = value.offset

        def pack(e: CpuEmitter, source: Buffer) -> Buffer:
            made = e.shared.weights.packed(source, offset, plain, wanted, bfloat16)
            e.packs[id(made)] = made
            return made

        made = self.derived(value.buffer, (offset, plain, wanted, bfloat16), pack)
        return Value(Shape("uint8", [made.bytes]), made)

    def made_of(self, value: Value, key: Hashable, make: Callable[[Array], Derived]) -> Value:
        """Returns the array that `make` derives from a constant, as bytes; cached under `key` for all programs."""
        shape, offset = value.shape, value.offset

        def derive(e: CpuEmitter, source: Buffer) -> Derived:
            array = e.constant(Value(shape, source, offset))
            assert array is not None
            return e.shared.weights.derived([array], key, lambda: make(array))

        def of(e: CpuEmitter, source: Buffer) -> Buffer:
            made = e.shared.weights.made(source, (key, shape, offset), lambda: derive(e, source))
            e.packs[id(made)] = made
            return made

        made = self.derived(value.buffer, (key, shape, offset), of)
        return Value(Shape("uint8", [made.bytes]), made)

    def derived_literals(
        self, sources: Sequence[Array | None], key: Hashable, make: Callable[[], Sequence[Array]]
    ) -> list[Value]:
        """Returns the arrays that `make` derives from constants; cached under `key` for all programs."""
        held = self.shared.weights.derived(sources, key, lambda: Derived(sources, *make()))
        return [self.literal(a, owner=held) for a in held.arrays]

    def reordered(self, value: Value, plain: Any, wanted: Any) -> Value:
        """Reorders a non-constant value into a primitive's layout."""
        _native = native()
        if plain == wanted:
            return value
        out = self.allocate(value.shape.dtype, [-(-wanted.nbytes // value.shape.dtype.size)])
        made = _native.reorder(plain, wanted)
        self.primitive("reorder", made, {_native.ARG_SRC: value, _native.ARG_DST: out})
        return out

    # steps

    def step(
        self,
        name: str,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
        install: Install,
        flops: int = 0,
        bytes: int = 0,
    ) -> None:
        """Adds a step, given the function that installs it."""
        self.add(NativeStep(name, reads, writes, install=install, flops=flops, bytes=bytes))

    def made(self, builder: str, *args: Any, **keywords: Any) -> Any:
        """Creates a oneDNN primitive with the native module's builder of this name; cached by arguments.

        Errors: Refused if oneDNN does not support it, or only by its reference implementation, hundreds of times slower.
        """
        key = _hashable((builder, args, *sorted(keywords.items())))
        try:
            found = self.once(key, lambda: getattr(native(), builder)(*args, **keywords))
        except (UnsupportedError, DeviceError) as error:
            raise Refused(f"oneDNN: {error}") from None
        if found.is_reference:
            raise Refused(f"oneDNN has only a reference implementation of this {builder}")
        return found

    def primitive(
        self, name: str, made: Any, bound: Mapping[int, Value], flops: int = 0, writes_to: Collection[int] = ()
    ) -> None:
        """Adds a oneDNN primitive.  Arguments by oneDNN's numbers; writes_to: those written (default: DST)."""
        outputs, numbers = writes_to or {native().ARG_DST}, list(bound)
        self.require_fixed(name, made.kind, bound.values())

        def add(e: CpuEmitter, values: Sequence[Value]) -> None:
            places = list(zip(numbers, values, strict=True))

            def install(program: Any, ident: Callable[[Buffer], int]) -> None:
                program.add_primitive(name, made, {n: (ident(v.buffer), v.byte_offset) for n, v in places})

            moved = sum(v.shape.elements() * v.shape.dtype.size for v in values)
            reads = [v.buffer for n, v in places if n not in outputs]
            e.step(name, reads, [v.buffer for n, v in places if n in outputs], install, flops, moved)

        self.repeatable(add, list(bound.values()))

    def require_fixed(self, name: str, kind: str, values: Iterable[Value]) -> None:
        """Checks that no operand of a primitive has traced extents.

        Errors: Refused if one has, NotOpen if no loop replaces primitives of this kind.
        """
        if self.trace is not None and any(is_traced(v.shape) for v in values):
            self.replaced = True
            why = f"oneDNN compiles {name} for fixed extents"
            raise Refused(why) if kind.startswith(LOOPS_TOO) else NotOpen(why)

    def loop(self, kernel: JitKernel, inputs: Sequence[Value], outputs: Sequence[Value], kind: str = "") -> None:
        """Adds a compiled loop; kind: its name in reports, default: the kernel's name."""
        count = len(inputs)
        self.repeatable(lambda e, values: e.add_loop(kernel, values, count, kind), [*inputs, *outputs])

    def add_loop(self, kernel: JitKernel, values: Sequence[Value], inputs: int, kind: str) -> None:
        """Adds the steps of a compiled loop; the first `inputs` values are read."""
        reads = [v.buffer for v in values[:inputs]]
        writes = [v.buffer for v in values[inputs:]]
        workspace = self.scratch(kernel.workspace_bytes) if kernel.workspace_bytes else None
        if workspace is not None:
            writes.append(workspace)
        label = self.label(kind) if kind else kernel.name
        for part in (kernel, *kernel.after):
            name = label + part.name.removeprefix(kernel.name)

            def install(program: Any, ident: Callable[[Buffer], int], part: JitKernel = part, name: str = name) -> None:
                operands = [(ident(v.buffer), v.offset * v.shape.dtype.size) for v in values]
                if workspace is not None:
                    operands.append((ident(workspace), 0))
                numbers = part.args, part.work, part.grain, part.scratch_bytes
                program.add_loop(name, part.address, part.owner, operands, *numbers, part.deferred, part.then)

            self.step(name, reads, writes, install, part.flops, part.bytes)

    def branch_steps(self, condition: Value) -> tuple[Step, Step, Step]:
        def begin(program: Any, ident: Callable[[Buffer], int]) -> None:
            program.begin_branch(name, (ident(condition.buffer), condition.byte_offset))

        name = self.label("branch")
        parts: list[tuple[list[Buffer], Install]] = [
            ([condition.buffer], begin),
            ([], lambda program, ident: program.begin_other(name)),
            ([], lambda program, ident: program.end_branch(name)),
        ]
        first, second, third = (NativeStep(name, reads, [], install=install) for reads, install in parts)
        return first, second, third

    def loop_steps(self) -> LoopSteps:
        return LoopSteps(self._loop_around, self._store_row)

    def _loop_around(self, trips: Trips) -> tuple[Step, Step]:
        read = [v for v in (trips.counter, trips.bound, trips.going) if v is not None]
        name = self.label("loop")

        def begin(program: Any, ident: Callable[[Buffer], int]) -> None:
            def place(value: Value | None) -> tuple[int, int] | None:
                return None if value is None else (ident(value.buffer), value.byte_offset)

            program.begin_loop(name, *map(place, trips[:3]), trips.sure, trips.most)

        buffers = [v.buffer for v in read]
        first = NativeStep(name, buffers, [], install=begin)
        return first, NativeStep(name, buffers, [], install=lambda program, ident: program.end_loop(name))

    def _store_row(self, row: Value, counter: Value, rows: Value, backwards: bool) -> None:
        values, size = (rows, counter, row), row.shape.elements() * row.shape.dtype.size
        numbers = [size, rows.lens[0] - 1 if backwards else 0, -1 if backwards else 1]
        address, label = native().native_loop("put_row"), self.label("put row")

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            program.add_loop(label, address, None, [(ident(v.buffer), v.byte_offset) for v in values], numbers)

        self.step(label, [v.buffer for v in values], [rows.buffer], install, bytes=2 * size)

    def copy_into(self, source: Value, target: Value) -> None:
        from .jit.pointwise import compile_copy

        shapes = (source.shape, target.shape)
        kernel = self.shared.kernels.kernel(None, "copy", shapes, lambda: compile_copy(*shapes, self.engine))
        self.loop(kernel, [source], [target])

    def host_step(self, name: str, function: HostFunction, given: Sequence[Value], outputs: Sequence[Value]) -> None:
        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            def described(values: Sequence[Value]) -> list[Any]:
                return [(ident(v.buffer), v.byte_offset, v.shape.dtype.numpy, v.lens) for v in values]

            program.add_host(name, function, described(given), described(outputs))

        self.step(name, [v.buffer for v in given], [v.buffer for v in outputs], install)


def _bounded_by_constants(ins: Instruction) -> bool:
    """Returns True if the operands that bound the result's extents (max_output_boxes) are constants."""
    if any(not i.is_absent and not i.shape.elements() for i in ins.inputs):
        return False
    return all(
        i.is_absent or i.literal is not None or i.shape.elements() > 1 or not i.shape.dtype.is_integer
        for i in ins.inputs[1:]
    )


@lru_cache(64)
def _counted(dtype: DType, count: int) -> Array:
    return np.arange(count).astype(dtype.numpy)


@lru_cache(1024)
def _plain_shape(dtype: np.dtype[Any], lens: tuple[int, ...]) -> Shape:
    return Shape(dtype, lens)


def is_traced(shape: Shape) -> bool:
    """Returns True if extents or strides are traced."""
    return any(type(n) is TracedInt for n in (*shape.dims, *shape.strides()))


def _hashable(value: Any) -> Any:
    """Converts lists to tuples, to make a value hashable."""
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value
