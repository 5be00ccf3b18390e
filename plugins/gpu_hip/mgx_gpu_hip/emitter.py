"""Puts a device program together: values, launches of kernels and of library plans, the memory they need."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from mgx_core import (
    CompileOptions,
    Instruction,
    Kernel,
    Kernels,
    Launch,
    Module,
    No,
    Operation,
    Shape,
    TupleShape,
    UnsupportedError,
)
from mgx_core import dtype as dt
from mgx_core.compile.extensions import kernels_of
from mgx_core.ops.movement import Contiguous
from mgx_core.targets.kernel import Reference, op_of
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from .codegen.movement import window
from .codegen.source import KernelSource
from .codegen.writing import Write, source_of
from .context import GpuContext
from .kernel import Declined, GpuKernel
from .values import Buffer, Value, packed_strides

__all__ = ["AnyStep", "Emitter", "HostStep", "KernelStep", "LibraryStep"]


@dataclass(eq=False)
class KernelStep:
    """One generated kernel (one or several launches) on its operands."""

    source: KernelSource
    inputs: list[Value | None]
    outputs: list[Value]
    scratch: list[Buffer]
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def reads(self) -> list[Buffer]:
        return [v.buffer for v in self.inputs if v is not None]

    @property
    def writes(self) -> list[Buffer]:
        return [v.buffer for v in self.outputs] + self.scratch


@dataclass(eq=False)
class LibraryStep:
    """One library plan; operands by the names that its launch takes."""

    plan: Any
    operands: dict[str, Value]
    result: str
    workspace: Buffer | None
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.plan.name)

    @property
    def reads(self) -> list[Buffer]:
        return [v.buffer for k, v in self.operands.items() if k != self.result]

    @property
    def writes(self) -> list[Buffer]:
        return [self.operands[self.result].buffer, *([self.workspace] if self.workspace else [])]


@dataclass(eq=False)
class HostStep:
    """A kernel on the host: operands are copied there and results back; such programs are not captured.

    kernel: the op's own definition, or one of another package that is a Python function.
    """

    op: Operation
    kernel: Kernel
    modules: Sequence[Module]
    inputs: list[Value | None]
    outputs: list[Value]
    nodes: tuple[str, ...]
    why: str

    @property
    def name(self) -> str:
        return f"host {self.op.name}"

    @property
    def reads(self) -> list[Buffer]:
        return [v.buffer for v in self.inputs if v is not None]

    @property
    def writes(self) -> list[Buffer]:
        return [v.buffer for v in self.outputs]


AnyStep = KernelStep | LibraryStep | HostStep


@dataclass
class Emitter:
    """Collects steps in order for one device.

    kernels: the plans that are asked where a kernel declines, and for members of groups.
    tf32: products and convolutions of float32 may round their operands to 10 bits of mantissa.
    """

    context: GpuContext
    kernels: Kernels
    tf32: bool = False
    steps: list[AnyStep] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    _literals: dict[Any, Value] = field(default_factory=dict)
    _made: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, context: GpuContext, options: CompileOptions) -> Emitter:
        """An emitter with the plans of this target and of plugins for it."""
        kernels = kernels_of(context.target, context)
        return cls(context, kernels, tf32=options.aggressiveness >= 2 and options.fast_math)

    # buffers and values

    def allocate(self, dtype: DType, lens: Sequence[int], strides: Sequence[int] | None = None) -> Value:
        """A new value in the arena, row-major unless `strides` say otherwise."""
        shape = Shape(dtype, lens, strides)
        return Value(shape, self.scratch(max(shape.element_space() * dtype.size, 1)))

    def scratch(self, size: int) -> Buffer:
        buffer = Buffer("arena", int(size))
        self.buffers.append(buffer)
        return buffer

    def literal(self, array: Array) -> Value:
        """A constant, copied to the device once."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.__array_interface__["data"][0] if array.size else id(array), str(array.dtype), array.shape)
        found = self._literals.get(key)
        if found is None:
            buffer = Buffer("literal", array.nbytes, array=array)
            self.buffers.append(buffer)
            found = self._literals[key] = Value(Shape(array.dtype, array.shape), buffer)
        return found

    def constant(self, value: Value) -> Array | None:
        """The array of a literal value, views of one included."""
        array = value.buffer.array
        if value.buffer.kind != "literal" or array is None:
            return None
        size = array.dtype.itemsize
        flat = array.reshape(-1)[value.offset :]
        return np.lib.stride_tricks.as_strided(flat, value.lens, [s * size for s in value.strides], writeable=False)

    def derived(self, value: Value, how: Sequence[Hashable], make: Callable[[Array], Array]) -> Value | None:
        """A constant made from a constant, once for all instances of the program; None for what is no constant.

        how: names the way, so that it is not done twice.
        """
        array, source = self.constant(value), value.buffer.array
        if array is None or source is None:
            return None
        key = (*how, value.offset, tuple(value.lens), tuple(value.strides))
        made = self.context.constants.derived(source, key, lambda: np.ascontiguousarray(make(array)))
        found = self.literal(made.array)
        found.buffer.kept = made
        return found

    def packed(self, value: Value, strides: Sequence[int]) -> Value:
        """A constant laid out by dense strides, made once now; anything else is copied while running."""
        order = tuple(sorted(range(len(strides)), key=lambda a: -strides[a]))
        made = self.derived(value, ("packed", order), lambda array: array.transpose(order))
        if made is None:
            return self.copy(value, strides)
        return Value(Shape(value.shape.dtype, value.lens, strides), made.buffer)

    # instructions

    def emit(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        """An instruction's steps; its inputs' values are looked up in `env`."""
        if ins.is_literal:
            return self._constant_of(ins)
        args = [self.value_of(i, env) for i in ins.inputs]
        before, self.sources = self.sources, ins.sources or self.sources
        try:
            if isinstance(ins.op, Launch):
                return self.run_kernel(ins.op.kernel, ins.op.of, ins.modules, args)
            try:
                picked = self.kernels.pick(ins.op, _types(args), self.context, ins.modules)
            except UnsupportedError as error:
                return self.host(Reference(ins.op, (error.message,)), ins.op, ins.modules, args, error.message)
            return self.run_kernel(picked.kernel, ins.op, ins.modules, args)
        finally:
            self.sources = before

    def run_kernel(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Any:
        """A kernel's steps, or those of the next plan that does not decline; else the op runs on the host, with every reason.

        Errors: UnsupportedError for a kernel that can be neither emitted nor called.
        """
        marks = len(self.steps), len(self.buffers)
        reasons: list[str] = []
        for candidate in self.candidates(kernel, op, modules, args):
            if not isinstance(candidate, GpuKernel):
                return self.host(candidate, op, modules, args, _why_on_host(candidate))
            try:
                return candidate.emit(self, op, modules, args)
            except Declined as why:
                self.withdraw(*marks)
                self.note(f"{candidate.name}: {why}")
                reasons.append(str(why))
        why = "; ".join(dict.fromkeys(reasons))
        return self.host(Reference(op, reasons), op, modules, args, why)

    def candidates(
        self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> Iterator[Kernel]:
        """The kernel that was picked, then those that the other plans offer for its op."""
        yield kernel
        asked = {kernel.name}
        for _, other in self.kernels.offers(op, _types(args), self.context, modules):
            if not isinstance(other, No) and other.name not in asked:
                asked.add(other.name)
                yield other

    def withdraw(self, steps: int, buffers: int) -> None:
        """Take back all but the first steps and buffers."""
        del self.steps[steps:]
        del self.buffers[buffers:]
        there = set(map(id, self.buffers))
        self._literals = {k: v for k, v in self._literals.items() if id(v.buffer) in there}

    def value_of(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        if ins.is_absent:
            return None
        if ins.literal is not None and ins not in env:
            return self._constant_of(ins)
        return env[ins]

    def _constant_of(self, ins: Instruction) -> Value:
        """A literal with the extents of its instruction, which may be open."""
        value = self.literal(ins.get_literal().to_numpy())
        same = isinstance(ins.result, Shape) and ins.result.dims == value.shape.dims
        return Value(Shape.of(value.shape.dtype, ins.shape.dims), value.buffer) if same else value

    def note(self, text: str) -> None:
        """Keep a refusal for the report."""
        self.notes.append(f"{', '.join(self.sources)}: {text}" if self.sources else text)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for a key: layers of a model ask for the same many times."""
        try:
            found = self._made.get(key)
        except TypeError:  # an attribute of an op that has no hash
            return make()
        if found is None:
            found = self._made[key] = make()
        return found

    # steps

    def kernel(
        self,
        write: Write,
        op: Operation,
        modules: Sequence[Module],
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
    ) -> None:
        """A generated kernel.  Errors: Declined with the generator's reason."""
        source = self._written(write, op, modules, inputs, outputs)
        if source.extents:
            raise Declined("its extents depend on data")
        self.launch(source, inputs, outputs)

    def _written(
        self,
        write: Write,
        op: Operation,
        modules: Sequence[Module],
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
    ) -> KernelSource:
        xs, ys = [None if v is None else v.tensor for v in inputs], [v.tensor for v in outputs]
        key = (write, op, tuple(xs), tuple(ys), tuple(modules))
        found = self.once(key, lambda: source_of(write, op, xs, ys, self.context.traits, modules))
        if isinstance(found, No):
            raise Declined(found.why)
        return cast(KernelSource, found)

    def launch(self, source: KernelSource, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        """The launches of a kernel on its operands, with scratch memory of its own."""
        scratch = [self.scratch(size) for size in source.scratch]
        self.steps.append(KernelStep(source, list(inputs), list(outputs), scratch, self.sources))

    def counted(self, ins: Instruction, env: Mapping[Instruction, Any], axis: int, most: int) -> tuple[Value, Value]:
        """An op that finds out while running how many rows it gives: memory for `most`, rows outermost, and their number.

        Errors: Declined.
        """
        op, kernel = op_of(ins), ins.op.kernel if isinstance(ins.op, Launch) else None
        if not isinstance(kernel, GpuKernel) or kernel.write is None:
            raise Declined("its kernel does not count the rows of its result")
        args = [self.value_of(i, env) for i in ins.inputs]
        lens = [most if a == axis else d for a, d in enumerate(ins.shape.dims)]
        order = [axis, *(a for a in range(len(lens)) if a != axis)]
        rows = self.allocate(ins.shape.dtype, lens, packed_strides(lens, order))
        count = self.allocate(dt.int64, [1])
        marks = len(self.steps), len(self.buffers) - 2
        before, self.sources = self.sources, ins.sources or self.sources
        try:
            self.launch(self._written(kernel.write, op, ins.modules, args, [rows, count]), args, [rows, count])
        except Declined:
            self.withdraw(*marks)
            raise
        finally:
            self.sources = before
        return Value(Shape(ins.shape.dtype, [lens[a] for a in order]), rows.buffer), count

    def library(self, plan: Any, result: str, **operands: Value) -> None:
        workspace = self.scratch(plan.workspace) if plan.workspace else None
        self.steps.append(LibraryStep(plan, operands, result, workspace, self.sources))

    def copy(self, value: Value, strides: Sequence[int] | None = None) -> Value:
        """A copy that lies row-major, or by `strides`."""
        out = self.allocate(value.shape.dtype, value.lens, strides)
        self.copy_into(value, out)
        return out

    def copy_into(self, source: Value, target: Value) -> None:
        if source.shape.elements():
            self.kernel(window, Contiguous(), (), [source], [target])

    def row_major(self, value: Value) -> Value:
        """The value without gaps in row-major order: itself or a copy."""
        wanted = Shape(value.shape.dtype, value.lens)
        same = all(n == 1 or a == b for n, a, b in zip(value.lens, value.strides, wanted.strides(), strict=True))
        return Value(wanted, value.buffer, value.offset) if same else self.copy(value)

    def host(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], why: str) -> Any:
        """A kernel called on the host, as a visible step."""
        if any(isinstance(a, tuple) for a in args):
            raise UnsupportedError(f"{op!r} on the host takes a tuple")
        flat = [None if a is None else self.row_major(a) for a in args]
        result = op.result([None if a is None else Shape(a.shape.dtype, a.lens) for a in flat], modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        if any(not isinstance(r, Shape) or r.dynamic() for r in items):
            raise UnsupportedError(f"{op!r} on the host gives {result}, whose extents are known only at run time")
        outputs = [self.allocate(r.dtype, r.lens()) for r in items]
        self.steps.append(HostStep(op, kernel, modules, flat, outputs, self.sources, why or "no plan takes it"))
        return outputs[0] if not isinstance(result, TupleShape) else tuple(outputs)


def _types(args: Sequence[Any]) -> list[Any]:
    """Shapes of values without where they lie."""
    return [
        None if a is None else TupleShape(_types(a)) if isinstance(a, tuple) else Shape(a.shape.dtype, a.lens)
        for a in args
    ]


def _why_on_host(kernel: Kernel) -> str:
    return "; ".join(kernel.reasons) if isinstance(kernel, Reference) else f"{kernel.name} is a Python function"
