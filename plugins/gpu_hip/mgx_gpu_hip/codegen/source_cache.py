"""Caches kernel sources across sets of extents.

Generating source takes most of the time that a program needs for new extents, although the source is usually the same as before.
So a generator's run is traced once: for other extents its decisions are replayed, and if all have the same outcome, only the
launch arguments are computed and no source is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from mgx_core import Instruction, Launch, Module, No, Operation, Shape
from mgx_core.cache import Recent

from .extents import SymbolicInt, text_of
from .generators import Generated, Generator, source_of
from .source import DeviceTraits, KernelLaunch, KernelSource, Number, Tensor
from .tracing import Follow, Trace, Traced

__all__ = ["SourceCache", "numbers_of", "with_numbers"]

MAX_ENTRIES: Final = 512  # maximum number of cached kernels
VARIANTS: Final = 8  # maximum traces per kernel, one per set of decisions
SOURCES_PER_TRACE: Final = 4  # sources generated per trace made, so that no set of shapes waits for many traces
SMALL: Final = 16  # bytes of a constant in a body that is compared by value

Make: TypeAlias = "Callable[[Any, Sequence[Tensor | None], Sequence[Tensor], Sequence[Module]], Generated]"


class _Opaque(Exception):
    """Raised for operands that have no key independent of the values of extents."""


class _Key:
    """Everything that a kernel's source depends on, with placeholders for symbolic extents; `roots` are these, in order."""

    def __init__(self) -> None:
        self.roots: list[SymbolicInt] = []
        self._numbers: dict[str, int] = {}
        self._values: dict[int, int] = {}

    def register_extents(self, tensors: Sequence[Tensor | None]) -> None:
        """Registers the operands' extents, which plain numbers in attributes may equal; extents of bodies are added later."""
        for t in tensors:
            for x in () if t is None else (*t.lens, *t.strides):
                self.number(x)
        for n, x in enumerate(self.roots):
            self._values.setdefault(int(x), n)

    def number(self, x: Any) -> Hashable:
        if type(x) is not SymbolicInt:
            return x  # type: ignore[no-any-return]
        text = text_of(x)
        if text not in self._numbers:
            self._numbers[text] = len(self.roots)
            self.roots.append(x)
        return text, self._numbers[text]

    def stride(self, x: int) -> Hashable:
        """Returns the key of a stride; along an axis of extent 1 it may be a plain number that equals an extent."""
        return self.number(x) if type(x) is SymbolicInt else self._extent(x)

    def shape(self, shape: Any) -> Hashable:
        if not isinstance(shape, Shape) or not shape.ranked or shape.dynamic():
            return shape  # type: ignore[no-any-return]
        dims = [self.number(d) for d in shape.dims]
        strides = None if shape.standard() else tuple([self.number(s) for s in shape.strides()])
        return shape.dtype, tuple(dims), strides

    def tensor(self, x: Tensor | None) -> Hashable:
        if x is None:
            return None
        lens, strides = [self.number(n) for n in x.lens], [self.stride(s) for s in x.strides]
        return x.dtype, tuple(lens), tuple(strides), x.align, x.constant

    def op(self, op: Operation) -> Hashable:
        """Returns the key of an op; an attribute is a plain number, and either equals one of the extents or does not."""
        if isinstance(op, Launch) or not isinstance(op, Operation):
            raise _Opaque
        return type(op), tuple([(f.annotation, self._attribute(f.annotation, getattr(op, f.name))) for f in op.fields])

    def _attribute(self, annotation: str, value: Any) -> Hashable:
        if isinstance(value, Shape):
            return self.shape(value)
        if "Dim" in annotation:
            if isinstance(value, tuple):
                return tuple([self._extent(v) for v in value])
            return self._extent(value)
        return repr(value) if "float" in annotation else value  # repr distinguishes 0.0 from -0.0

    def _extent(self, value: Any) -> Hashable:
        found = self.root_like(value)
        return value if found is None else ("as", found)

    def root_like(self, value: Any) -> int | None:
        """Returns the index of the first operand extent that equals a plain number."""
        return self._values.get(value) if type(value) in (int, SymbolicInt) and value > 1 else None

    def module(self, module: Module) -> Hashable:
        at: dict[Instruction, int] = {}
        parts: list[Hashable] = []
        for n, ins in enumerate(module):
            at[ins] = n
            constant: Hashable = None
            if ins.literal is not None:
                value = ins.literal.to_numpy()
                if value.dtype.kind == "O" or value.nbytes > SMALL:
                    raise _Opaque
                constant = value.dtype.str, value.tobytes()
            if any(i not in at for i in ins.inputs):
                raise _Opaque
            result = None if ins.is_return else self.shape(ins.result)
            op = type(ins.op) if ins.literal is not None or ins.is_return or ins.is_param else self.op(ins.op)
            inner = tuple([self.module(m) for m in ins.modules])
            parts.append((op, tuple([at[i] for i in ins.inputs]), result, constant, inner))
        return tuple(parts)


class _Tracing:
    """Operands of a generator with traced numbers in place of symbolic extents."""

    def __init__(self, key: _Key) -> None:
        self.trace = Trace()
        self._key = key
        self._roots = [self.trace.root(r) for r in key.roots]

    def number(self, x: Any) -> Any:
        if type(x) is not SymbolicInt:
            return x
        found = self._key.number(x)
        assert isinstance(found, tuple)
        return self._roots[found[1]]

    def _stride(self, x: Any) -> Any:
        return self.number(x) if type(x) is SymbolicInt else self._extent(x)

    def shape(self, shape: Any) -> Any:
        if not isinstance(shape, Shape) or not shape.ranked or shape.dynamic():
            return shape
        dims = [self.number(d) for d in shape.dims]
        if shape.standard():
            return Shape.of(shape.dtype, dims)
        return Shape(shape.dtype, dims, [self.number(s) for s in shape.strides()])

    def tensor(self, x: Any) -> Any:
        if x is None:
            return None
        return x._replace(lens=tuple(map(self.number, x.lens)), strides=tuple(map(self._stride, x.strides)))

    def op(self, op: Operation) -> Operation:
        """Returns an op with traced attributes, bypassing the conversion to ints."""
        changed = {}
        for field in op.fields:
            old = getattr(op, field.name)
            new = self._attribute(field.annotation, old)
            if new is not old:
                changed[field.name] = new
        if not changed:
            return op
        made = type(op).__new__(type(op))
        for field in op.fields:
            object.__setattr__(made, field.name, changed.get(field.name, getattr(op, field.name)))
        return made

    def _attribute(self, annotation: str, value: Any) -> Any:
        if isinstance(value, Shape):
            return self.shape(value)
        if "Dim" not in annotation:
            return value
        if isinstance(value, tuple):
            return tuple([self._extent(v) for v in value])
        return self._extent(value)

    def _extent(self, value: Any) -> Any:
        found = self._key.root_like(value)
        return value if found is None else self._roots[found]

    def module(self, module: Module) -> Module:
        copy = Module(module.name)
        mapped: dict[Instruction, Instruction] = {}
        for ins in module:
            result = ins.result if ins.is_return else self.shape(ins.result)
            op = ins.op if ins.literal is not None or ins.is_return else self.op(ins.op)
            inputs = tuple([mapped[i] for i in ins.inputs])
            modules = tuple([self.module(m) for m in ins.modules])
            mapped[ins] = copy.append(Instruction(op, result, inputs, modules, ins.literal, ins.sources))
        return copy


class _Variant(NamedTuple):
    """A kernel whose numbers may be traced, and the function that computes them for other extents."""

    source: KernelSource
    follow: Follow


class _Entry:
    """Cache entry of a kernel: its traces, unless the generator uses extents in ways that cannot be traced.

    written: number of sources generated; traces: number of traces made; latest: the last source and its extents.
    """

    def __init__(self) -> None:
        self.variants: list[_Variant] = []
        self.traceable = True
        self.written = 0
        self.traces = 0
        self.latest: tuple[tuple[int, ...], Generated] | None = None

    def lookup(self, roots: Sequence[SymbolicInt]) -> Generated | None:
        """Returns the kernel for these extents, if it is the latest one or a trace applies.

        Programs are emitted twice when libraries are queried ahead.  The trace used last is tried first.
        """
        latest, variants = self.latest, self.variants  # may be replaced by another thread
        if latest is not None and latest[0] == tuple(roots):
            return latest[1]
        for n, variant in enumerate(variants):
            numbers = _replay(variant.follow, roots)
            if numbers is not None:
                if n:
                    self.variants = [variant, *variants[:n], *variants[n + 1 :]]
                return with_numbers(variant.source, iter(numbers))
        return None

    def worth_tracing(self) -> bool:
        """Returns True at the second, fourth, eighth source: a trace takes as long as generating three sources."""
        often = self.written >= 2 << self.traces
        return often and self.traceable and len(self.variants) < VARIANTS


class SourceCache:
    """Cache of kernels that are requested repeatedly with different extents."""

    def __init__(self) -> None:
        self._entries: Recent[_Entry] = Recent(MAX_ENTRIES)
        self._written = self._traced = 0  # sources with keys, and traces

    def generate(
        self,
        write: Generator,
        op: Operation,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        traits: DeviceTraits,
        modules: Sequence[Module],
    ) -> Generated:
        """Returns the result of `source_of`, from the cache if possible."""

        def make(op: Operation, xs: Sequence[Any], ys: Sequence[Any], modules: Sequence[Module]) -> Generated:
            return source_of(write, op, xs, ys, traits, modules)

        found = _key((write, traits), op, inputs, outputs, modules)
        if found is None:
            return make(op, inputs, outputs, modules)
        key, key_data = found
        entry = self._entries.get(key) or self._entries.put(key, _Entry())
        known = entry.lookup(key_data.roots)
        if known is not None:
            return known
        generated = make(op, inputs, outputs, modules)
        entry.latest = tuple(map(int, key_data.roots)), generated
        entry.written += 1
        self._written += 1
        if self._traced * SOURCES_PER_TRACE < self._written and entry.worth_tracing():
            self._traced += 1
            entry.traces += 1
            variant = None if isinstance(generated, No) else _trace(key_data, op, inputs, outputs, modules, make)
            if variant is not None and _reproduces(variant, key_data.roots, generated):
                entry.variants = [variant, *entry.variants]
            else:
                entry.traceable = False
        return generated


def _trace(
    key_data: _Key,
    op: Operation,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    modules: Sequence[Module],
    make: Make,
) -> _Variant | None:
    """Returns the kernel with traced numbers; None if the generator requires ints, or declines."""
    tracing = _Tracing(key_data)
    try:
        xs, ys = [tracing.tensor(x) for x in inputs], [tracing.tensor(y) for y in outputs]
        source = make(tracing.op(op), xs, ys, [tracing.module(m) for m in modules])
        places: list[Any] = [] if isinstance(source, No) else list(chain(*source.extents))
        if isinstance(source, No) or any(type(x) is Traced for x in places):
            return None
        return _Variant(source, tracing.trace.follow(list(numbers_of(source))))
    except Exception:  # the generator requires ints; it has run with them before, so this is expected
        return None


def _reproduces(variant: _Variant, roots: Sequence[SymbolicInt], generated: Generated) -> bool:
    """Returns True if a trace reproduces the kernel that was generated for these extents."""
    numbers = _replay(variant.follow, roots)
    return numbers is not None and with_numbers(variant.source, iter(numbers)) == generated


def _key(
    given: Hashable,
    op: Any,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    modules: Sequence[Module],
) -> tuple[Hashable, _Key] | None:
    """Returns the key of a kernel, and its symbolic extents; None if it has none, or no key."""
    key_data = _Key()
    try:
        key_data.register_extents((*inputs, *outputs))
        if not key_data.roots:
            return None
        tensors = tuple([key_data.tensor(t) for t in (*inputs, *outputs)])
        key = given, len(inputs), tensors, tuple([key_data.module(m) for m in modules]), key_data.op(op)
        hash(key)
    except (_Opaque, TypeError):
        return None
    return key, key_data


def _replay(follow: Follow, roots: Sequence[SymbolicInt]) -> tuple[Any, ...] | None:
    try:
        return follow(*map(int, roots))
    except (ArithmeticError, ValueError):  # where the generator itself would have failed
        return None


def numbers_of(source: KernelSource) -> Iterator[Any]:
    """Yields all numbers of a kernel that may vary."""
    for la in source.launches:
        yield from (*la.grid, *la.block, la.shared_bytes)
        yield from (arg.value for arg in la.args if isinstance(arg, Number))
    yield from (source.flops, source.bytes, *source.scratch)


def with_numbers(source: KernelSource, numbers: Iterator[Any]) -> KernelSource:
    """Returns a kernel with the numbers that `numbers_of` yields replaced."""
    launches = []
    for la in source.launches:
        grid, block = (next(numbers), next(numbers), next(numbers)), (next(numbers), next(numbers), next(numbers))
        shared = next(numbers)
        args = tuple([Number(a.ctype, next(numbers)) if type(a) is Number else a for a in la.args])
        launches.append(KernelLaunch(la.entry, grid, block, args, shared))
    flops, moved = next(numbers), next(numbers)
    return replace(
        source,
        launches=tuple(launches),
        flops=flops,
        bytes=moved,
        scratch=tuple([next(numbers) for _ in source.scratch]),
    )
