"""Puts a native program together: values, steps, their memory, and the literals that it keeps alive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mgx_core import Instruction, Launch, Module, No, Operation, Reference, Shape, TupleShape, UnsupportedError
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from .concat_sharing import Chain
from .emission_cache import Tape, situation
from .kernel import CpuKernel, Declined, Results
from .kernel_cache import alike
from .packing import constant, contiguous, is_multiplied, packed
from .values import Buffer, Value, view_of

if TYPE_CHECKING:
    from .jit import JitKernel
    from .tuning import Tuning

MISSING: Final = object()

__all__ = ["APART", "Emitter", "Step", "Trial"]

APART: Final = "apart"  # a choice of tuning: the members of a group one by one


@dataclass(eq=False, slots=True)
class Step:
    """One native step before its buffers have addresses.

    install: adds it to the native program, given how to name a buffer.
    """

    name: str
    reads: list[Buffer]
    writes: list[Buffer]
    install: Callable[[Any, Callable[[Buffer], int]], None]
    sources: tuple[str, ...] = ()
    flops: int = 0
    bytes: int = 0
    host: str = ""  # why it runs on the host, if it does
    instruction: Instruction | None = None  # of the lowered module, that it was made for


class Trial:
    """Steps that are taken back unless they are kept."""

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        self.kept = True


@dataclass
class Emitter:
    """Collects steps in order.

    threads: for how many threads the program is made; fast_math: whether approximations are allowed; tuning: asked which plan to
    take, if there is one; choices: what it answered, by problem.
    """

    threads: int
    fast_math: bool = True
    steps: list[Step] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    current: Instruction | None = None
    chains: dict[Instruction, Chain] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    literals: dict[int, Value] = field(default_factory=dict)  # by the array's id
    packs: dict[int, Buffer] = field(default_factory=dict)  # packed constants, by id
    tuning: Tuning | None = None
    choices: dict[str, str] = field(default_factory=dict)
    _turned: dict[int, tuple[Array, Value]] = field(default_factory=dict)  # by the array's id
    _made: dict[Any, Any] = field(default_factory=dict)
    _looked_at: tuple[Value, Array] | None = None
    _tapes: dict[Any, Tape] = field(default_factory=dict)
    _tape: Tape | None = None  # of the instruction being emitted

    @cached_property
    def engine(self) -> Any:
        """The process's loop compiler for this machine."""
        from .jit import default_engine

        return default_engine()

    def label(self, kind: str) -> str:
        """A name for a step, after its sources."""
        return f"{kind} {self.sources[-1]}" if self.sources else kind

    def finish(self) -> None:
        """Forget what only emitting needs."""
        self.current = None
        self._looked_at = None
        for kept in (self.chains, self._made, self._tapes, self._turned):
            kept.clear()  # type: ignore[attr-defined]

    # buffers and values

    def allocate(self, dtype: DType, lens: Sequence[int], strides: Sequence[int] | None = None) -> Value:
        """A new value in the arena, row-major unless `strides` say otherwise."""
        return self.allocate_as(Shape(dtype, lens, strides))

    def allocate_as(self, shape: Shape) -> Value:
        """A new value in the arena of this shape, strides included."""
        space = shape.elements() if shape.standard() else shape.element_space()
        made = Value(shape, self.room(max(space * shape.dtype.size, 1)))
        if self._tape is not None:
            self._tape.allocated(made.buffer)
        return made

    def room(self, size: int) -> Buffer:
        """So many bytes in the arena."""
        buffer = Buffer("arena", size)
        self.buffers.append(buffer)
        return buffer

    def literal(self, array: Array, owner: Any = None) -> Value:
        """A constant; the array (or `owner`) is kept alive with the program."""
        found = self._literal(array, owner)
        if self._tape is not None:
            self._tape.literal(found.buffer)
        return found

    def _literal(self, array: Array, owner: Any) -> Value:
        if not array.flags.c_contiguous:
            owner = contiguous(array)
            array = owner.array
        found = self.literals.get(id(array))
        if found is None:
            found = self.literals[id(array)] = Value(_plain_shape(array.dtype, array.shape), constant(array, owner))
        return found

    def literal_as_it_lies(self, array: Array) -> Value:
        """A constant whose axes lie in another order, not copied."""
        known = self._turned.get(id(array))
        if known is not None:
            if self._tape is not None:
                self._tape.literal(known[1].buffer)
            return known[1]
        outermost_first = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        rows = array.transpose(outermost_first)
        if not rows.flags.c_contiguous:
            return self.literal(array)
        steps = [s // array.itemsize for s in array.strides]
        found = self.literal(rows).seen_as(0, Shape(array.dtype, array.shape, steps))
        self._turned[id(array)] = array, found
        return found

    @staticmethod
    def is_constant(value: Value) -> bool:
        """Whether it is a literal, or a view of one."""
        return value.buffer.kind == "literal" and value.buffer.array is not None

    def memory(self, value: Value) -> Array | None:
        """The whole array behind a literal value."""
        self._spoil_tape()
        return value.buffer.array if value.buffer.kind == "literal" else None

    def constant(self, value: Value) -> Array | None:
        """The array of a literal value, views of one included."""
        array = self.memory(value)
        if array is None:
            return None
        if self._looked_at is None or self._looked_at[0] is not value:  # plans ask for one several times in a row
            size = array.dtype.itemsize
            flat = array.reshape(-1)[value.offset :]
            steps = [s * size for s in value.strides]
            seen = np.lib.stride_tricks.as_strided(flat, value.lens, steps, writeable=False)
            self._looked_at = value, seen
        return self._looked_at[1]

    def may_overwrite(self, value: Value, dtype: DType) -> bool:
        """Whether a step may write its result over this value: nobody reads its memory after the current instruction."""
        return (
            value.buffer.kind == "arena"
            and value.buffer.readers <= 1
            and value.whole()
            and value.shape.dtype is dtype
            and not value.shape.broadcasted()
        )

    # instructions

    def emit(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        """An instruction's steps; its inputs' values are looked up in `env`."""
        args = [self.value_of(i, env) for i in ins.inputs]
        if len(args) == 1 and isinstance(ins.op, Launch) and ins.op.plan == "view":  # as most instructions are
            seen = view_of(ins.op.of, args[0]) if ins.op.of.view is not None else None
            if seen is not None:
                return seen
        if ins.literal is not None:
            return self.literal(ins.get_literal().to_numpy())
        before, self.sources = self.sources, ins.sources or self.sources
        try:
            if isinstance(ins.op, Launch):
                if not isinstance(ins.op.kernel, CpuKernel):
                    own = isinstance(ins.op.kernel, Reference)
                    why = "; ".join(ins.op.kernel.reasons) if own else "a Python function"
                    return self.host(ins.op.of, ins.modules, args, why, ins.op)
                kernel = ins.op.kernel
            else:
                from .plans import PLANS

                shapes = [None if i.is_absent else i.result for i in ins.inputs]
                try:
                    picked = PLANS.pick(ins.op, shapes, None, ins.modules).kernel
                except UnsupportedError as error:
                    return self.host(ins.op, ins.modules, args, error.message)
                assert isinstance(picked, CpuKernel)
                kernel = picked
            key = None if self._tape is not None or ins is not self.current else situation(args)
            if key is None:
                return self.run_kernel(kernel, ins.modules, args)
            return self._as_before(kernel, ins, args, key)
        finally:
            self.sources = before

    def _as_before(self, kernel: CpuKernel, ins: Instruction, args: Sequence[Any], key: Hashable) -> Results:
        """A kernel's steps, as they were for an instruction that is alike if there was one."""
        key = (kernel, ins.modules, key)
        tape = self._tapes.get(key)
        if tape is not None:
            return tape.play(self, args)
        tape = self._tape = Tape(args)
        try:
            results = self.run_kernel(kernel, ins.modules, args)
            tape.gave(results)
        finally:
            self._tape = None
        if not tape.spoiled:
            self._tapes[key] = tape
        return results

    def _spoil_tape(self) -> None:
        """What is done now depends on more than the op and how its operands lie."""
        if self._tape is not None:
            self._tape.spoiled = True

    def chain(self, operands: int) -> Chain | None:
        """What the current instruction, if it has so many operands, shares memory with."""
        self._spoil_tape()
        ins = self.current
        return None if ins is None or operands != len(ins.inputs) else self.chains.get(ins)

    def value_of(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        found = env.get(ins, MISSING)
        if found is not MISSING:
            return found
        if ins.is_absent:
            return None
        array = ins.get_literal().to_numpy()
        if not array.flags.c_contiguous and is_multiplied(ins):
            return self.literal_as_it_lies(array)
        return self.literal(array)

    def run_kernel(self, kernel: CpuKernel, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        """A kernel's steps, or those of the next plan that does not decline; else the op runs on the host, with every reason."""
        marks = self._marks()
        reasons = []
        candidates: Iterable[CpuKernel] = self.candidates(kernel, modules, args)
        if self.tuning is not None:
            ways = list(candidates)
            best = self.tuning.choice(self, ways, modules, args)
            if best == APART:
                return self.apart(kernel.op, modules, args, "its members one by one are faster")
            candidates = sorted(ways, key=lambda k: k.name != best)
        for candidate in candidates:
            try:
                return candidate.emit(self, kernel.op, modules, args)
            except Declined as why:
                self._take_back(marks)
                self.note(f"{candidate.name}: {why}")
                reasons.append(str(why))
        return self.apart(kernel.op, modules, args, "; ".join(dict.fromkeys(reasons)))

    def candidates(self, kernel: CpuKernel, modules: Sequence[Module], args: Sequence[Any]) -> Iterator[CpuKernel]:
        """The kernel that was picked, then what the other plans offer for its op."""
        from .plans import PLANS

        yield kernel
        shapes = [None if a is None else _type(a) for a in args]
        for _, other in PLANS.offers(kernel.op, shapes, None, modules):
            if isinstance(other, CpuKernel) and other.emit is not kernel.emit:
                yield other

    def _marks(self) -> tuple[int, int, int, int]:
        return len(self.steps), len(self.buffers), len(self.literals), len(self.packs)

    def _take_back(self, marks: tuple[int, int, int, int]) -> None:
        """Undo all since there were so many steps, buffers, literals and packed ones."""
        self._spoil_tape()
        steps, buffers, literals, packs = marks
        del self.steps[steps:]
        del self.buffers[buffers:]
        while len(self.literals) > literals:
            self.literals.popitem()
        while len(self.packs) > packs:
            self.packs.popitem()

    def apart(self, op: Operation, modules: Sequence[Module], args: Sequence[Any], why: str) -> Results:
        """A declined op: a group member by member, anything else on the host."""
        if op.name in ("group", "pointwise", "fused_reduce") and len(modules) == 1:
            body = modules[0]
            members = [i for i in body if not (i.is_param or i.is_return)]
            if len(members) > 1 or members[0].op.name != op.name or members[0].modules:
                env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
                for ins in members:
                    env[ins] = self.emit(ins, env)
                results = [env[o] for o in body.outputs]
                return results[0] if len(results) == 1 else tuple(results)
        return self.host(op, modules, args, why)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Steps that are taken back unless `keep` is called, also when the plan declines."""
        marks = self._marks()
        trial = Trial()
        try:
            yield trial
        except Declined as why:
            self.note(str(why))
        if not trial.kept:
            self._take_back(marks)

    def note(self, text: str) -> None:
        """Keep a refusal for the report."""
        self._spoil_tape()
        self.notes.append(f"{', '.join(self.sources)}: {text}" if self.sources else text)

    # steps

    def step(
        self,
        name: str,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
        install: Callable[[Any, Callable[[Buffer], int]], None],
        flops: int = 0,
        bytes: int = 0,
        host: str = "",
    ) -> None:
        self._spoil_tape()
        self._step(name, list(reads), list(writes), install, flops, bytes, host)

    def _step(
        self,
        name: str,
        reads: list[Buffer],
        writes: list[Buffer],
        install: Callable[[Any, Callable[[Buffer], int]], None],
        flops: int,
        bytes: int,
        host: str = "",
    ) -> None:
        self.steps.append(Step(name, reads, writes, install, self.sources, flops, bytes, host, self.current))

    def made(self, builder: str, *args: Any, **keywords: Any) -> Any:
        """A oneDNN primitive from the native module's builder of this name; those that are asked for alike are one."""
        from .native_library import native

        key = _frozen((builder, args, *sorted(keywords.items())))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = getattr(native(), builder)(*args, **keywords)
        return found

    def primitive(
        self, name: str, made: Any, bound: Mapping[int, Value], flops: int = 0, writes_to: Collection[int] = ()
    ) -> None:
        """A oneDNN primitive with its arguments by number; `writes_to` are the numbers it writes (default: its result)."""
        from .native_library import native

        _native = native()

        outputs = writes_to or {_native.ARG_DST}
        reads = [v.buffer for n, v in bound.items() if n not in outputs]
        writes = [v.buffer for n, v in bound.items() if n in outputs]

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            program.add_primitive(name, made, {n: (ident(v.buffer), v.byte_offset) for n, v in bound.items()})

        moved = sum(v.shape.elements() * v.shape.dtype.size for v in bound.values())
        self.step(name, reads, writes, install, flops, moved)

    def loop(self, kernel: JitKernel, inputs: Sequence[Value], outputs: Sequence[Value], kind: str = "") -> None:
        """A compiled loop on its operands; kind: what to call it together with its sources, else by the kernel's name."""
        if self._tape is not None:
            self._tape.loop(kernel, kind, inputs, outputs)
        workspace = self.room(kernel.workspace_bytes) if kernel.workspace_bytes else None
        values = [*inputs, *outputs]
        reads = [v.buffer for v in inputs]
        writes = [v.buffer for v in outputs]
        if workspace is not None:
            writes.append(workspace)
        label = self.label(kind) if kind else kernel.name
        for part in (kernel, *kernel.after):
            name = label + part.name.removeprefix(kernel.name)

            def install(program: Any, ident: Callable[[Buffer], int], part: JitKernel = part, name: str = name) -> None:
                operands = [(ident(v.buffer), v.offset * v.shape.dtype.size) for v in values]
                if workspace is not None:
                    operands.append((ident(workspace), 0))
                program.add_loop(
                    name,
                    part.address,
                    part.owner,
                    operands,
                    part.args,
                    part.work,
                    part.grain,
                    part.scratch_bytes,
                )

            self._step(name, reads, writes, install, part.flops, part.bytes)

    def copy_into(self, source: Value, target: Value) -> None:
        """The elements of one value into another of the same extents."""
        from .jit import compile_copy

        shapes = (source.shape, target.shape)
        kernel = alike(self.engine, None, "copy", shapes, lambda: compile_copy(*shapes, self.engine))
        if isinstance(kernel, No):
            raise Declined(kernel.why)
        self.loop(kernel, [source], [target])

    def copy(self, value: Value, strides: Sequence[int] | None = None) -> Value:
        """A copy that lies row-major, or by `strides`."""
        out = self.allocate(value.shape.dtype, value.lens, strides)
        if value.shape.elements():
            self.copy_into(value, out)
        return out

    def row_major(self, value: Value) -> Value:
        """The value without gaps in row-major order: itself or a copy."""
        wanted = Shape(value.shape.dtype, value.lens)
        same = all(n == 1 or a == b for n, a, b in zip(value.lens, value.strides, wanted.strides(), strict=True))
        return Value(wanted, value.buffer, value.offset) if same else self.copy(value)

    def packed(self, value: Value, plain: Any, wanted: Any, bfloat16: bool = False) -> Value:
        """A constant in the layout that a primitive chose, made once now.

        bfloat16: its numbers are of that type and are stored in it, though the layouts are given in float32.
        """
        if plain == wanted and not bfloat16:
            return value
        made = self.pack(value.buffer, value.offset, plain, wanted, bfloat16)
        if self._tape is not None:
            self._tape.packed(value, made, plain, wanted, bfloat16)
        return Value(Shape("uint8", [made.bytes]), made)

    def pack(self, source: Buffer, offset: int, plain: Any, wanted: Any, bfloat16: bool) -> Buffer:
        """The packed buffer of what begins at an element of a constant."""
        made = packed(source, offset, plain, wanted, bfloat16)
        self.packs[id(made)] = made
        return made

    def reordered(self, value: Value, plain: Any, wanted: Any) -> Value:
        """A value that is no constant in the layout that a primitive chose."""
        from .native_library import native

        _native = native()

        if plain == wanted:
            return value
        out = self.allocate(value.shape.dtype, [-(-wanted.nbytes // value.shape.dtype.size)])
        made = _native.reorder(plain, wanted)

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            bound = {
                _native.ARG_SRC: (ident(value.buffer), value.byte_offset),
                _native.ARG_DST: (ident(out.buffer), 0),
            }
            program.add_primitive("reorder", made, bound)

        self.step("reorder", [value.buffer], [out.buffer], install)
        return out

    def host(
        self, op: Operation, modules: Sequence[Module], args: Sequence[Any], why: str = "", launch: Any = None
    ) -> Results:
        """The op's own definition on the host, as a visible step."""
        from mgx_core.ir.interpreter import Interpreter

        flat = [None if a is None else self._rows(a) for a in args]
        shapes = [None if a is None else _type(a) for a in flat]
        result = op.result(shapes, modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        if any(not isinstance(r, Shape) or r.dynamic() for r in items):
            raise UnsupportedError(f"{op!r} on the host gives {result}, whose extents are known only while running")
        outputs = [self.allocate(r.dtype, r.lens()) for r in items]
        given = [v for a in flat if a is not None for v in (a if isinstance(a, tuple) else (a,))]

        def call(arrays: Sequence[Array]) -> Any:
            left = iter(arrays)
            values = [
                None if a is None else tuple(next(left) for _ in a) if isinstance(a, tuple) else next(left)
                for a in flat
            ]
            found = (op if launch is None else launch).evaluate(values, modules, Interpreter().run)
            return list(found) if isinstance(result, TupleShape) else [found]

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            program.add_host(
                f"host {op.name}",
                call,
                [(ident(v.buffer), v.byte_offset, v.shape.dtype.numpy, v.lens) for v in given],
                [(ident(v.buffer), v.byte_offset, v.shape.dtype.numpy, v.lens) for v in outputs],
            )

        name = f"host {op.name}"
        self.step(name, [v.buffer for v in given], [v.buffer for v in outputs], install, host=why or "no plan takes it")
        return outputs[0] if not isinstance(result, TupleShape) else tuple(outputs)

    def _rows(self, value: Any) -> Any:
        return tuple(map(self.row_major, value)) if isinstance(value, tuple) else self.row_major(value)

    def move(self, op: Operation, x: Value) -> Value:
        """A movement op with neither a view nor a plan of its own."""
        out = self.host(op, (), [x], "no view and no plan")
        assert isinstance(out, Value)
        return out


@lru_cache(1024)
def _plain_shape(dtype: np.dtype[Any], lens: tuple[int, ...]) -> Shape:
    return Shape(dtype, lens)


def _frozen(value: Any) -> Any:
    """Lists as tuples, so that they can be looked up."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _type(value: Any) -> Any:
    if isinstance(value, tuple):
        return TupleShape(map(_type, value))
    return Shape(value.shape.dtype, value.lens)
