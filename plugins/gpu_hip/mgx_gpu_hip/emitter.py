"""Emits device programs: generated kernels, library plans and host functions as steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from mgx_core import CompileOptions, Instruction, Kernels, Launch, Module, No, Operation, Shape
from mgx_core.compile.lower import Lower
from mgx_core.errors import MgxError, Refused, or_refused
from mgx_core.ir.ordering import reads
from mgx_core.ops.movement import Contiguous
from mgx_core.targets.continuation import Continuation
from mgx_core.targets.cut import Item, border, cut
from mgx_core.targets.emission import Emitter
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import DeviceFunction, HostFunction, Tuning
from mgx_core.targets.schedule import Schedule, Step
from mgx_core.targets.static_part import Split, fixed_tensor, split
from mgx_core.targets.values import Buffer, Value, packed_strides
from mgx_core.types.argument import Array
from mgx_core.types.traced_int import Trace, TracedInt, value_of

from .codegen.extents import is_symbolic, marked
from .codegen.generators import Generator
from .codegen.limits import require_limits
from .codegen.movement import window
from .codegen.source import KernelSource, Tensor
from .context import GpuContext
from .device_segments import KEEPING, on_device
from .library.varying_product import VaryingProduct
from .steps import DeviceStep, HostStep, KernelStep, LibraryStep
from .workspaces import share_workspaces

__all__ = ["DEVICE_ALIGNMENT", "LIBRARY_ALIGNMENT", "GpuEmitter", "NotOpen", "has_traced", "tensor_of"]

DEVICE_ALIGNMENT = 256
LIBRARY_ALIGNMENT = 16  # of operands in bytes, unless a problem states another


class NotOpen(MgxError):
    """A step requires extents that do not change."""


class AheadTuning(Tuning, Protocol):
    """Tuning that compiles kernels before it times them."""

    def dry_run(self) -> Tuning:
        """Returns what stands in for tuning in a dry run: it times nothing and collects the kernels that would be timed."""
        ...

    def compile_ahead(self, steps: Sequence[Step]) -> None:
        """Starts to compile, in parallel, the collected kernels and those of other steps."""
        ...


def tensor_of(value: Value) -> Tensor:
    """Returns a value as a generator's operand."""
    align = min(value.align(DEVICE_ALIGNMENT), 16)
    constant = value.buffer.array is not None
    return Tensor(value.shape.dtype, tuple(value.lens), tuple(value.strides), align, constant)


def has_traced(*values: Value) -> bool:
    """Returns True if an extent or stride of a value is traced."""
    return any(type(n) is TracedInt for v in values for n in (*v.lens, *v.strides))


class GpuEmitter(Emitter):
    """Collects steps in order for one device.

    tf32: products and convolutions may round float32 operands to a 10-bit mantissa; exhaustive: time more library plans;
    measured: kernels are timed against each other, so none is refused because a cost model predicts that it is slow.
    """

    alignment: ClassVar[int] = DEVICE_ALIGNMENT
    context: GpuContext

    def __init__(
        self,
        kernels: Kernels,
        context: GpuContext,
        reuse: bool = True,
        tuning: Tuning | None = None,
        tf32: bool = False,
        exhaustive: bool = False,
        measured: bool = False,
    ) -> None:
        super().__init__(kernels, context, reuse, tuning)
        self.tf32 = tf32
        self.exhaustive = exhaustive
        self.measured = measured
        self.offload_copy = True  # as in `CompileOptions`, of the emitter of a whole program
        self.trace: Trace | None = None  # of the extents, if they are traced
        self.sizes: dict[Buffer, int] = {}  # traced sizes of buffers
        self.module: Module | None = None
        self.continuation: Continuation[Any] | None = None
        # of a program for traced extents that ends with ops that count their rows: the axis of these
        self.counted_axes: Mapping[Instruction, int] = {}
        self.static: Mapping[Instruction, Any] = {}  # the instructions that are emitted
        self.concatenated: dict[Instruction, Value] = {}  # results of concatenations whose parts are written in place
        self.emitted: Instruction | None = None  # the innermost instruction that is being emitted
        self.dynamic: set[Instruction] = set()  # instructions of the rest that stay on the host
        self.items: list[Item] = []  # the rest, cut into segments and host ops, if no continuation runs it
        self._on_device: set[Instruction] = set()  # instructions of `items` that run on the device
        # shapes with symbols restored, by ids of both shapes, which are stored too so that no id is reused
        self._symbolic_shapes: dict[tuple[int, int], tuple[Shape, Shape, Any]] = {}

    @classmethod
    def of(
        cls, kernels: Kernels, context: GpuContext, options: CompileOptions, tuning: Tuning | None = None
    ) -> GpuEmitter:
        tf32 = options.float32_precision != "highest" or (options.aggressiveness >= 2 and options.fast_math)
        exhaustive = options.exhaustive_tune and tuning is not None
        made = cls(kernels, context, options.memory_reuse, tuning, tf32, exhaustive, tuning is not None)
        made.offload_copy = options.offload_copy
        return made

    def fresh(self, tuning: bool = True) -> GpuEmitter:
        chosen = self.tuning if tuning else None
        return GpuEmitter(self.kernels, self.context, self.reuse, chosen, self.tf32, self.exhaustive, self.measured)

    def schedule(self, module: Module) -> Schedule:
        """Returns the steps of the static part and of ops that count their rows, and how the rest runs."""
        tuner = self.context.tuner
        if tuner is None or self.trace is not None:
            return self._schedule(module)
        with tuner.prefetching(lambda: self.fresh()._dry_run(module)):
            return self._schedule(module)

    def _dry_run(self, module: Module) -> None:
        """Emits the static part to collect its requests for library plans and its kernels, which are compiled meanwhile."""
        tuning = self.tuning
        if tuning is not None:
            self.tuning = cast(AheadTuning, tuning).dry_run()
        self.module = module
        parts = split(module)
        self.emit_static(module, parts.static, parts.wanted)
        if tuning is not None:
            cast(AheadTuning, tuning).compile_ahead(self.steps)

    def _schedule(self, module: Module) -> Schedule:
        self.module = module
        parts = split(module)
        static, found = parts.static, border(module, parts.static)
        env = self.emit_static(module, static, parts.wanted)
        counted: dict[Instruction, tuple[Value, Value]] = {}
        for ins, (axis, _) in list(found.counted.items()):
            result = self.counted(ins, env, axis)
            if isinstance(result, No):
                self.note(f"{op_of(ins).name}: {result.why}")
                del found.counted[ins]
            else:
                counted[ins] = result
        rest = [i for i in parts.rest if i not in counted]
        wanted = [o for o in module.outputs if o in static] + [r for i in rest for r in reads(i) if r in static]
        if not rest and not counted and all(o in static or _is_known(o) for o in module.outputs):
            wanted = list(module.outputs)  # constants, arguments and repeated results: each is copied
        else:
            wanted = list(dict.fromkeys(wanted))
        values = [(self._value_for_rest(ins, env), ins) for ins in wanted]
        values += [(v, ins) for ins, pair in counted.items() for v in pair]
        outputs = [self.output(value, n, ins if ins in static else None) for n, (value, ins) in enumerate(values)]
        if found and self.trace is not None and not (rest or found.read):
            self.counted_axes = {ins: found.counted[ins][0] for ins in counted}
        elif found:
            shape = self.context.target.instance_shape
            self.continuation = Continuation(module, static, found, self._lower, shape)
            self.dynamic = self.continuation.dynamic()
        elif rest:
            self.items = cut(module, static, KEEPING)
            self._on_device = on_device(self.items)
        share_workspaces(self.steps)
        made = self.planned(module, outputs, Split(static, rest, wanted))
        self.finish()
        if self.context.tuner is not None and self.trace is None:
            self.context.tuner.done(any(is_symbolic(p.result) for p in module.parameters.values()))
        if self.tuning is not None:
            self.tuning.save()
        return made

    def planned(self, module: Module, outputs: list[Value], parts: Split | None = None) -> Schedule:
        """Returns the schedule; buffers of traced sizes are placed with their current ones."""
        for step in self.steps if self.trace is not None else ():
            for buffer in (*step.reads, *step.writes):
                if type(buffer.bytes) is TracedInt:
                    self.sizes[buffer] = buffer.bytes
                    buffer.bytes = value_of(buffer.bytes)
        return super().planned(module, outputs, parts)

    def _lower(self, module: Module) -> None:
        Lower(self.kernels, self.context).apply(module)

    def _value_for_rest(self, ins: Instruction, env: dict[Instruction, Any]) -> Value:
        """Returns a value that the caller or the rest reads; adds an input for an argument that no step reads."""
        if ins.is_param and ins not in env:
            assert ins.parent is not None
            n = list(ins.parent.parameters.values()).index(ins)
            self.inputs[n] = env[ins] = self.input(ins.shape, n)
        value: Value = self.value_of(ins, env)
        return value

    def emit_static(
        self, module: Module, static: Mapping[Instruction, Sequence[Instruction]], wanted: Iterable[Instruction]
    ) -> dict[Instruction, Any]:
        self.static = static
        return super().emit_static(module, static, wanted)

    def finish(self) -> None:
        super().finish()
        self._symbolic_shapes.clear()
        self.static = {}
        self.concatenated.clear()

    def decided_at_run_time(self, ins: Instruction) -> No | None:
        if ins in self._on_device or (self.continuation is not None and ins not in self.dynamic):
            return None
        inside = ins.parent is not self.module
        return No("control flow runs on the host" if inside else "its extents depend on data")

    # constants

    def emit(self, ins: Instruction, env: dict[Instruction, Any]) -> Any:
        """Emits an instruction; returns its value with the extents of the instruction, which may be symbolic."""
        around, self.emitted = self.emitted, ins
        try:
            value = super().emit(ins, env)
        finally:
            self.emitted = around
        if self.trace is not None or not isinstance(value, Value) or value.shape is ins.result:
            return value
        key = id(value.shape), id(ins.result)
        known = self._symbolic_shapes.get(key)
        if known is None:
            known = self._symbolic_shapes[key] = marked(value.shape, ins.result), value.shape, ins.result
        shape = known[0]
        return value if shape is value.shape else Value(shape, value.buffer, value.offset)

    def constant_value(self, ins: Instruction) -> Value:
        """Returns a literal with the extents of its instruction, which may be symbolic."""
        value = self.literal(ins.get_literal().to_numpy())
        if ins.result == value.shape:  # values of equal constants share a shape object, a key of the cache in `emit`
            return Value(ins.shape, value.buffer)
        same = isinstance(ins.result, Shape) and ins.result.dims == value.shape.dims
        return Value(Shape.of(value.shape.dtype, ins.shape.dims), value.buffer) if same else value

    def make_literal(self, array: Array, owner: Any) -> Value:
        """Returns a row-major constant; other layouts are converted once for all instances of the program."""
        if array.flags.c_contiguous:
            return super().make_literal(array, owner)
        rows = self.context.constants.derived(
            array, ("rows", array.strides), lambda: np.ascontiguousarray(array).reshape(array.shape)
        )
        return super().make_literal(rows.array, (rows, owner))

    def derived_constant(self, value: Value, key: Sequence[Hashable], make: Callable[[Array], Array]) -> Value | None:
        """Returns `make` of a constant, computed once per key for all instances of the program; None if not a constant."""
        if not self.is_constant(value):
            return None
        offset, lens, strides = value.offset, tuple(value.lens), tuple(value.strides)
        where = (*key, offset, lens, strides)

        def made(e: GpuEmitter, source: Buffer) -> Buffer:
            array = e.constant(Value(value.shape, source, offset))
            assert array is not None and source.array is not None
            found = e.context.constants.derived(
                source.array, where, lambda: np.ascontiguousarray(make(array)), source.owner
            )
            return e.literal(found.array, found).buffer

        buffer = self.derived(value.buffer, where, made)
        assert buffer.array is not None
        return Value(Shape(buffer.array.dtype, buffer.array.shape), buffer)

    def packed(self, value: Value, strides: Sequence[int]) -> Value:
        """Returns a value in dense strides: constants are converted now, other values by a copy kernel at run time."""
        order = tuple(sorted(range(len(strides)), key=lambda a: -strides[a]))
        made = self.derived_constant(value, ("packed", order), lambda array: array.transpose(order))
        if made is None:
            return self.copy(value, strides)
        return Value(Shape(value.shape.dtype, value.lens, strides), made.buffer)

    def aligned(self, value: Value, inner: int | None = None) -> Value:
        """Returns the value, or a copy, 16-byte aligned and with unit stride along axis `inner`, as libraries require."""
        strides, lens = value.strides, value.lens
        if value.align(DEVICE_ALIGNMENT) % LIBRARY_ALIGNMENT == 0 and (
            inner is None or strides[inner] == 1 or lens[inner] == 1
        ):
            return value
        order = sorted(range(len(lens)), key=lambda a: (a == inner, -strides[a]))
        return self.packed(value, packed_strides(lens, order))

    # steps

    def kernel(
        self,
        write: Generator,
        op: Operation,
        modules: Sequence[Module],
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
    ) -> None:
        """Adds a generated kernel.  Errors: Refused with the generator's reason."""
        source = self.generate(write, op, modules, inputs, outputs)
        if source.extents:
            raise Refused("its extents depend on data")
        self.launch(source, inputs, outputs)

    def generate(
        self,
        write: Generator,
        op: Operation,
        modules: Sequence[Module],
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
    ) -> KernelSource:
        """Returns the source of a generated kernel, cached by op and operands.

        Errors: Refused with the generator's reason.
        """
        xs, ys = [None if v is None else tensor_of(v) for v in inputs], [tensor_of(v) for v in outputs]
        key = (write, op, tuple(xs), tuple(ys), tuple(modules))
        return or_refused(
            self.once(key, lambda: self.context.source_cache.generate(write, op, xs, ys, self.context.traits, modules))
        )

    def launch(self, source: KernelSource, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        """Adds the launches of a kernel.  Errors: Refused if they exceed the device's limits."""
        require_limits(source, self.context.traits)
        given = [v is not None for v in inputs]
        values = [*(v for v in inputs if v is not None), *outputs]
        self.repeatable(lambda e, values: e.add_kernel(source, given, values), values)

    def add_kernel(self, source: KernelSource, given: Sequence[bool], values: Sequence[Value]) -> None:
        """Adds a kernel step; given: True for operands that are present; values: these operands, then the results."""
        left = iter(values)
        inputs = [next(left) if there else None for there in given]
        outputs = list(left)
        scratch = [self.scratch(size) for size in source.scratch]
        self.add(
            KernelStep(
                source.title or source.name,
                [v.buffer for v in inputs if v is not None],
                [*(v.buffer for v in outputs), *scratch],
                flops=source.flops,
                bytes=source.bytes,
                source=source,
                inputs=inputs,
                outputs=outputs,
                scratch=scratch,
            )
        )

    def library(
        self, plan: Any, result: str, operands: Mapping[str, Value], aligns: Mapping[str, int] | None = None
    ) -> None:
        """Adds the launch of a library plan; `result` names the operand it writes.

        aligns: alignment in bytes that the plan requires of an operand, where it is not `LIBRARY_ALIGNMENT`.
        """
        if not isinstance(plan, VaryingProduct) and has_traced(*operands.values()):
            raise NotOpen(f"{plan.name} requires extents that do not change")
        aligns = {word: (aligns or {}).get(word, LIBRARY_ALIGNMENT) for word in operands}
        for word, value in operands.items():
            known = value.align(DEVICE_ALIGNMENT)
            if known % aligns[word]:
                raise Refused(f"operand {word} is aligned to {known} bytes, the plan requires {aligns[word]}")
        words = list(operands)
        self.repeatable(
            lambda e, values: e.add_plan(plan, result, dict(zip(words, values, strict=True)), aligns),
            list(operands.values()),
        )

    def add_plan(self, plan: Any, result: str, operands: Mapping[str, Value], aligns: Mapping[str, int]) -> None:
        """Adds the launch of a library plan on operands of the required alignment."""
        workspace = self.scratch(plan.workspace) if plan.workspace else None
        reads = [v.buffer for k, v in operands.items() if k != result]
        writes = [operands[result].buffer, *([] if workspace is None else [workspace])]
        self.add(
            LibraryStep(str(plan.name), reads, writes, plan=plan, operands=operands, aligns=aligns, workspace=workspace)
        )

    def copy_into(self, source: Value, target: Value) -> None:
        self.kernel(window, Contiguous(), (), [source], [target])

    def host_step(self, name: str, function: HostFunction, given: Sequence[Value], outputs: Sequence[Value]) -> None:
        reads, writes = [v.buffer for v in given], [v.buffer for v in outputs]
        self.add(HostStep(name, reads, writes, function=function, inputs=given, outputs=outputs))

    def device_step(
        self, name: str, function: DeviceFunction, given: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        reads, writes = [v.buffer for v in given], [v.buffer for v in (*given, *outputs)]
        self.add(DeviceStep(name, reads, writes, function=function, inputs=given, outputs=outputs))

    def counted(self, ins: Instruction, env: dict[Instruction, Any], axis: int) -> tuple[Value, Value] | No:
        """Emits an op with a data-dependent number of rows: a buffer for the maximum, rows outermost, and the count."""
        assert isinstance(ins.op, Launch)
        self._add_inputs(ins, env)
        self.current, self.sources = ins, ins.sources
        result = self.attempt(ins.op.kernel, ins.op.of, ins.modules, [self.value_of(i, env) for i in ins.inputs])
        self.current, self.sources = None, ()
        if isinstance(result, No):
            return result
        assert isinstance(result, tuple)
        rows, count = (v for v in result if isinstance(v, Value))
        order = [axis, *(a for a in range(len(rows.lens)) if a != axis)]
        turned = Shape(rows.dtype, [rows.lens[a] for a in order], [rows.strides[a] for a in order])
        return self.row_major(rows.view_at(0, turned)), count

    def _add_inputs(self, ins: Instruction, env: dict[Instruction, Any]) -> None:
        """Adds inputs for parameters of an instruction that no earlier instruction reads."""
        assert ins.parent is not None
        for n, p in enumerate(ins.parent.parameters.values()):
            if p in ins.inputs and p not in env:
                self.inputs[n] = env[p] = self.input(p.shape, n)


def _is_known(ins: Instruction) -> bool:
    """Returns True for a constant or an argument of a type that a kernel can copy."""
    known = (ins.literal is not None or ins.is_param) and fixed_tensor(ins)
    return known and ins.shape.dtype.size in (1, 2, 4, 8)
