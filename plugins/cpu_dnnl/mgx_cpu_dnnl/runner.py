"""Running a lowered module: one native program for what is static, then parts around what is decided while running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import Instruction, Module, Runner, Shape, StoreError
from mgx_core.ir.interpreter import bind_symbols, reads
from mgx_core.targets.kernel import op_of
from mgx_core.targets.placement import Placement
from mgx_core.targets.static_part import static_part

from .concat_sharing import chains_of
from .emitter import Emitter
from .native_library import native
from .native_program import NativeRun, build, install
from .run_op import native_when_run
from .saved_runner import FORMAT, figures_of, kept_again, owners_of, restored_run
from .segments import Parts, schedule
from .values import Buffer, Value

if TYPE_CHECKING:
    from mgx_core.targets.saved import Keep, SavedInstance

    from .tuning import Tuning

__all__ = ["CpuRunner", "as_output"]

FOREVER = 1 << 30


class CpuRunner(Runner):
    """A lowered module ready to run.

    The instructions whose extents are all known, and whatever they need, become one native program.  Control flow and ops whose
    extents depend on data run one by one after it, their bodies and what lies between them as native programs for the shapes
    that come.

    saved: what a file has of its native program; tuning: says which plans to take, if there is one.
    """

    def __init__(
        self,
        module: Module,
        threads: int,
        fast_math: bool,
        saved: SavedInstance | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.module = module
        native().set_threads(threads or native().available_threads())
        self.emitter = Emitter(threads, fast_math, tuning=tuning)
        self.parameters = list(module.parameters.values())
        static = static_part(module)
        self.rest = [
            i for i in module if i not in static and not (i.is_param or i.is_literal or i.is_return or i.is_absent)
        ]
        wanted = dict.fromkeys(o for o in module.outputs if o in static)
        for ins in self.rest:
            for read in reads(ins):
                if read in static:
                    wanted[read] = None
        self.wanted = list(wanted)
        self.whole = (
            not self.rest
            and len(set(module.outputs)) == len(module.outputs)
            and not any(o.is_param or o.is_literal for o in module.outputs)
        )
        self.fresh = self.whole
        if self.whole:
            self.wanted = list(module.outputs)
        self._places = self._outputs() if not self.rest else []
        self._parts = Parts(lambda inner: CpuRunner(inner, threads, fast_math, tuning=tuning))
        self._schedule = schedule(module, static) if self.rest else []
        self.inner = self._parts.prepare(self._schedule)
        self._saved = saved
        self._layout: tuple[list[Shape | None], list[Value]] | None = None
        self.program: NativeRun | None = None
        if saved is not None:
            if [n for n, ins in enumerate(module) if ins in wanted] != sorted(saved.code["wanted"]):
                raise StoreError("the program is not lowered to what its kernels were made for")
            self.program = restored_run(saved)
        elif static:
            self._layout = _emit(self.emitter, module, static, self.wanted)
            self.program = build(self.emitter, *self._layout)
            self.emitter.finish()
            if tuning is not None:
                tuning.save()
        self.notes = self.emitter.notes

    def _outputs(self) -> list[tuple[str, Any]]:
        """Where each output comes from: a result or an argument by number, or a constant."""
        wanted = {ins: n for n, ins in enumerate(self.wanted)}
        given = {ins: n for n, ins in enumerate(self.parameters)}
        return [
            ("result", wanted[o])
            if o in wanted
            else ("parameter", given[o])
            if o in given
            else ("constant", None if o.literal is None else o.literal.value)
            for o in self.module.outputs
        ]

    @property
    def owners(self) -> list[Instruction | None]:
        """The instruction that each native step was made for."""
        if self._saved is None:
            return [s.instruction for s in self.emitter.steps]
        return owners_of(self._saved, self.module)

    @property
    def figures(self) -> list[tuple[int, int]]:
        """Of each native step: its arithmetic, and the bytes that it moves."""
        if self._saved is None:
            return [(s.flops, s.bytes) for s in self.emitter.steps]
        return figures_of(self._saved)

    def run(self, args: Sequence[Any], watch: Any = None) -> list[Any]:
        """Results for the values of the parameters; watch: see `Parts.follow`."""
        results = [] if self.program is None else self.program.run(args)
        if self.whole:
            return list(results)
        if not self.rest:
            return [
                results[n] if kind == "result" else args[n] if kind == "parameter" else n for kind, n in self._places
            ]
        values: dict[Instruction, Any] = dict(zip(self.parameters, args, strict=True))
        values |= dict(zip(self.wanted, results, strict=True))
        known: dict[str, int] = {}
        for p in self.parameters:
            bind_symbols(p.result, values[p], known)
        for ins in self.module:
            if ins.literal is not None:
                values[ins] = ins.literal.value
        self._parts.follow(self._schedule, values, known, watch)
        return [self._value(o, values) for o in self.module.outputs]

    @staticmethod
    def _value(ins: Instruction, values: dict[Instruction, Any]) -> Any:
        return values[ins] if ins.literal is None else ins.literal.value

    def on_host(self) -> list[Placement]:
        """What runs by its own definition after all: ops that every plan declined for these shapes, and ops whose result's
        extents depend on data."""
        found = []
        for step in self.emitter.steps:
            if step.host:
                ins = step.instruction
                op = step.name.removeprefix("host ") if ins is None else repr(op_of(ins))
                found.append(Placement(op, step.sources, "host", step.name, (step.host,)))
        for ins in self.rest:
            if not native_when_run(ins) and not ins.op.control:
                op = repr(op_of(ins))
                found.append(Placement(op, ins.sources, "host", "reference", ("its extents depend on data",)))
        for runner in self.inner:
            found += runner.on_host()
        return found

    def saved(self, keep: Keep) -> Any:
        """The native program as plain data; None if there is none, or if it has steps that live in this process only."""
        if self._saved is not None:
            return kept_again(self._saved, keep)
        if self._layout is None or self.program is None:
            return None
        from .program_codec import NotSaved, Recorder

        recorder = Recorder(self.program.program.arena_bytes, keep, self.emitter.engine.image)
        try:
            install(recorder, self.emitter, *self._layout)
        except NotSaved as why:
            self.emitter.note(f"not saved: {why}")
            return None
        numbers = {ins: n for n, ins in enumerate(self.module)}
        plain = not self.rest and all(kind != "constant" for kind, _ in self._places)
        return {
            "format": FORMAT,
            "tuning": self.emitter.choices,
            "program": recorder.plain(),
            "taken": self.program.taken,
            "owners": [numbers.get(i, -1) if i is not None else -1 for i in self.owners],
            "figures": [list(f) for f in self.figures],
            "outputs": [list(place) for place in self._places] if plain else None,
            "wanted": [numbers[i] for i in self.wanted],
        }

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> Any:
        """Times of each native step."""
        from .timing import timings

        return timings(self, args, runs, warmup)


def _emit(
    e: Emitter, module: Module, static: Mapping[Instruction, Sequence[Instruction]], wanted: Sequence[Instruction]
) -> tuple[list[Shape | None], list[Value]]:
    """Emit the static part; gives the shapes of the parameters that it reads (None for the others) and the results."""
    env: dict[Instruction, Any] = {}
    parameters = list(module.parameters.values())
    used = {i for needs in static.values() for i in needs}
    for index, p in enumerate(parameters):
        if p in used:
            shape = p.shape
            buffer = Buffer("input", shape.elements() * shape.dtype.size, index=index)
            e.buffers.append(buffer)
            env[p] = Value(Shape.of(shape.dtype, shape.dims), buffer)
    kept = set(wanted)
    e.chains = chains_of(module, static)
    for ins in static:
        e.current = ins
        result = e.emit(ins, env)
        env[ins] = result
        uses = sum([u in static for u in ins.users]) + (FOREVER if ins in kept else 0)
        if isinstance(result, tuple):
            for v in result:
                v.buffer.readers += uses
        else:
            result.buffer.readers += uses
        for read in set(ins.inputs):
            value = env.get(read)
            for v in value if isinstance(value, tuple) else (value,):
                if v is not None:
                    v.buffer.readers -= 1
    outputs = [as_output(e, env[w], n) for n, w in enumerate(wanted)]
    return [(p.shape if p in used else None) for p in parameters], outputs


def as_output(e: Emitter, value: Value, index: int) -> Value:
    """A result in memory of its own, row-major."""
    buffer = value.buffer
    plain = Shape(value.shape.dtype, value.lens)
    dense = all(n == 1 or a == b for n, a, b in zip(value.lens, value.strides, plain.strides(), strict=True))
    if (
        buffer.kind == "arena"
        and dense
        and value.offset == 0
        and buffer.bytes == max(plain.elements() * plain.dtype.size, 1)
    ):
        buffer.kind, buffer.index = "output", index
        return Value(plain, buffer)
    made = Buffer("output", max(plain.elements() * plain.dtype.size, 1), index=index)
    e.buffers.append(made)
    out = Value(plain, made)
    if plain.elements():
        e.copy_into(value, out)
    return out
