"""Kernels for extents that differ from those that their text was written for.

Writing a kernel's text is most of what a program takes for new extents, and the text is mostly one that is there.  So what a
generator asks of extents is traced once; for others its answers are compared, and where they are the same the numbers of the
launches are computed, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from mgx_core import Instruction, Launch, Module, No, Operation, Shape
from mgx_core.cache import Recent

from .extents import SymbolicInt, text_of
from .source import DeviceTraits, KernelLaunch, KernelSource, Number, Tensor
from .traced import Follow, Trace, Traced
from .writing import Write, source_of

__all__ = ["Answer", "Texts"]

KEPT: Final = 512  # kernels by what is asked for
VARIANTS: Final = 8  # traces of one: for each set of answers that a generator has got
RARE: Final = 4  # texts that are written for each trace, so that no set of shapes waits for many traces
SMALL: Final = 16  # bytes of a constant in a body that is compared by value

Answer: TypeAlias = "KernelSource | No"
Make: TypeAlias = "Callable[[Any, Sequence[Tensor | None], Sequence[Tensor], Sequence[Module]], Answer]"


class _Opaque(Exception):
    """Something that has no key without the values of extents."""


class _Key:
    """All that a kernel's text depends on, with numbers in the place of extents that vary; `roots` are these, in order."""

    def __init__(self) -> None:
        self.roots: list[SymbolicInt] = []
        self._numbers: dict[str, int] = {}
        self._values: dict[int, int] = {}

    def meets(self, tensors: Sequence[Tensor | None]) -> None:
        """Takes the extents of the operands as those that plain numbers may equal; what bodies have besides comes later."""
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
        """A step along an axis of extent 1 may be a plain number that is one of the extents."""
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
        """An attribute is a plain number, of which it is known whether it is one of the extents."""
        if isinstance(op, Launch) or not isinstance(op, Operation):
            raise _Opaque
        return type(op), tuple([(n, self._attribute(n, v)) for n, v in _attributes(op)])

    def _attribute(self, annotation: str, value: Any) -> Hashable:
        if isinstance(value, Shape):
            return self.shape(value)
        if "Dim" in annotation:
            if isinstance(value, tuple):
                return tuple([self._extent(v) for v in value])
            return self._extent(value)
        return repr(value) if "float" in annotation else value  # 0.0 == -0.0

    def _extent(self, value: Any) -> Hashable:
        found = self.root_like(value)
        return value if found is None else ("as", found)

    def root_like(self, value: Any) -> int | None:
        """Returns the number of the first extent of the operands that a plain number equals."""
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


def _attributes(op: Operation) -> Iterator[tuple[str, Any]]:
    for field in op.fields:
        yield field.annotation, getattr(op, field.name)


class _Tracing:
    """Operands of a generator with traced numbers in the place of extents."""

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
        """Returns an op with traced attributes, which no check has turned to ints."""
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
        went: dict[Instruction, Instruction] = {}
        for ins in module:
            result = ins.result if ins.is_return else self.shape(ins.result)
            op = ins.op if ins.literal is not None or ins.is_return else self.op(ins.op)
            inputs = tuple([went[i] for i in ins.inputs])
            modules = tuple([self.module(m) for m in ins.modules])
            went[ins] = copy.append(Instruction(op, result, inputs, modules, ins.literal, ins.sources))
        return copy


class _Variant(NamedTuple):
    """A kernel whose numbers may be traced, and what they are for other extents."""

    source: KernelSource
    follow: Follow


class _Kept:
    """A kernel that was asked for: its traces, unless a generator asks what cannot be traced.

    written: how often its text was written; traces: how many were made; latest: what was written last, and for which extents.
    """

    def __init__(self) -> None:
        self.variants: list[_Variant] = []
        self.traceable = True
        self.written = 0
        self.traces = 0
        self.latest: tuple[tuple[int, ...], Answer] | None = None

    def found(self, roots: Sequence[SymbolicInt]) -> Answer | None:
        """Returns the kernel for these extents, if it was written last, or if a trace serves them.

        Programs are emitted twice where libraries are asked ahead.  The trace that served last is asked first.
        """
        latest, variants = self.latest, self.variants  # which another thread may replace
        if latest is not None and latest[0] == tuple(roots):
            return latest[1]
        for n, variant in enumerate(variants):
            numbers = _followed(variant.follow, roots)
            if numbers is not None:
                if n:
                    self.variants = [variant, *variants[:n], *variants[n + 1 :]]
                return _with_numbers(variant.source, iter(numbers))
        return None

    def worth_tracing(self) -> bool:
        """Returns True where the text was written for the second, fourth, eighth time: a trace takes as long as three texts."""
        often = self.written >= 2 << self.traces
        return often and self.traceable and len(self.variants) < VARIANTS


class Texts:
    """Keeps the kernels that were asked for several times, each time with other extents."""

    def __init__(self) -> None:
        self._kept: Recent[_Kept] = Recent(KEPT)
        self._written = self._traced = 0  # texts that have keys, and traces

    def answer(
        self,
        write: Write,
        op: Operation,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        traits: DeviceTraits,
        modules: Sequence[Module],
    ) -> Answer:
        """Returns what `source_of` gives."""

        def make(op: Operation, xs: Sequence[Any], ys: Sequence[Any], modules: Sequence[Module]) -> Answer:
            return source_of(write, op, xs, ys, traits, modules)

        found = _key((write, traits), op, inputs, outputs, modules)
        if found is None:
            return make(op, inputs, outputs, modules)
        key, form = found
        kept = self._kept.get(key) or self._kept.put(key, _Kept())
        known = kept.found(form.roots)
        if known is not None:
            return known
        answer = make(op, inputs, outputs, modules)
        kept.latest = tuple(map(int, form.roots)), answer
        kept.written += 1
        self._written += 1
        if self._traced * RARE < self._written and kept.worth_tracing():
            self._traced += 1
            kept.traces += 1
            variant = None if isinstance(answer, No) else _traced(form, op, inputs, outputs, modules, make)
            if variant is not None and _same(variant, form.roots, answer):
                kept.variants = [variant, *kept.variants]
            else:
                kept.traceable = False
        return answer


def _traced(
    form: _Key,
    op: Operation,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    modules: Sequence[Module],
    make: Make,
) -> _Variant | None:
    """Returns the kernel with traced numbers; None where the generator takes extents to be ints, or declines."""
    tracing = _Tracing(form)
    try:
        xs, ys = [tracing.tensor(x) for x in inputs], [tracing.tensor(y) for y in outputs]
        source = make(tracing.op(op), xs, ys, [tracing.module(m) for m in modules])
        places: list[Any] = [] if isinstance(source, No) else [*source.zeroed, *chain(*source.extents)]
        if isinstance(source, No) or any(type(x) is Traced for x in places):
            return None
        return _Variant(source, tracing.trace.follow(list(_numbers(source))))
    except Exception:  # generators take extents to be ints, with which this one was asked before
        return None


def _same(variant: _Variant, roots: Sequence[SymbolicInt], answer: Answer) -> bool:
    """Returns True if a trace gives the kernel that was written for these extents."""
    numbers = _followed(variant.follow, roots)
    return numbers is not None and _with_numbers(variant.source, iter(numbers)) == answer


def _key(
    given: Hashable,
    op: Any,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    modules: Sequence[Module],
) -> tuple[Hashable, _Key] | None:
    """Returns the key of a kernel, and the extents in it; None where none varies, or where there is no key."""
    form = _Key()
    try:
        form.meets((*inputs, *outputs))
        if not form.roots:
            return None
        tensors = tuple([form.tensor(t) for t in (*inputs, *outputs)])
        key = given, len(inputs), tensors, tuple([form.module(m) for m in modules]), form.op(op)
        hash(key)
    except (_Opaque, TypeError):
        return None
    return key, form


def _followed(follow: Follow, roots: Sequence[SymbolicInt]) -> tuple[Any, ...] | None:
    try:
        return follow(*map(int, roots))
    except (ArithmeticError, ValueError):  # as the generator would have failed
        return None


def _numbers(source: KernelSource) -> Iterator[Any]:
    """Yields all numbers of a kernel that may vary."""
    for la in source.launches:
        yield from (*la.grid, *la.block, la.shared_bytes)
        yield from (arg.value for arg in la.args if isinstance(arg, Number))
    yield from (source.flops, source.bytes, *source.scratch)


def _with_numbers(source: KernelSource, numbers: Iterator[Any]) -> KernelSource:
    """Returns a kernel with others for what `_numbers` gives."""
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
