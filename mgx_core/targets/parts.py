"""Parts of a module between ops with data-dependent extents: each is lowered once the extents that it reads are known.

The continuation of a border may contain further ops with data-dependent extents: a detector suppresses boxes, computes features
of the remaining ones, and suppresses again.  The module after the first border is cut before each such op; a run with a new
number of rows then lowers only the parts that depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ..cache import Recent
from ..garbage import rarer_collections
from ..ir.instruction import Instruction
from ..ir.module import Module, nested, within
from ..ir.ordering import reads
from ..ir.symbols import introduced, learn_all, lone_symbols, mentioned, needed_for_extents
from ..named_tuples import NamedTuple
from ..ops.builtin import Param
from ..ops.control import GetTupleElem
from ..ops.movement import Transpose
from ..passes.resolve_extents import with_known_extents
from ..types.argument import Array
from ..types.dim import Dim, Sym, substitute
from ..types.shape import AnyShape, Shape, open_extents
from .marking import mark_extents, static_extents
from .runner import Runner
from .static_part import given

__all__ = ["Part", "Parts", "PermutedValue", "cut_in_parts", "in_order"]

KEPT: Final = 16  # cached runners of a part, by extents and values read

R = TypeVar("R", bound=Runner)


class PermutedValue(NamedTuple):
    """A dense value with permuted axes; order: its axes from outermost to innermost in memory."""

    value: Any
    order: tuple[int, ...]
    dims: tuple[int, ...]  # of the value, in its own axis order


class ObservedExtents(NamedTuple):
    """Actual extents of open shapes in a run."""

    open: Sequence[Shape]
    found: Sequence[tuple[int, ...]]


Run: TypeAlias = "list[ObservedExtents]"  # in order of observation
Make: TypeAlias = "Callable[[Module], R]"


def symbols_of(run: Run) -> dict[str, Dim]:
    """Solves for the symbols, given the extents that a run has observed."""
    symbols: dict[str, Dim] = {}
    for observed in run:
        learn_all(
            observed.open,
            [Shape.of(s.dtype, dims) for s, dims in zip(observed.open, observed.found, strict=True)],
            symbols,
        )
    return symbols


class Part(Generic[R]):
    """A module whose extents are determined by its arguments; lowered for each set of extents.

    result_names: names of its results, which are parameters of later parts; read: parameters whose values determine extents;
    open: shapes of parameters with open extents; open_results: shapes of such results, by index; own: static extents of the
    program that do not depend on counts; lower: lowers a module; instance_shape: `Target.instance_shape`.
    """

    def __init__(
        self,
        module: Module,
        result_names: Sequence[str],
        read: Sequence[str],
        own: set[int],
        lower: Callable[[Module], object],
        instance_shape: Callable[[AnyShape, AnyShape], AnyShape],
    ) -> None:
        self.module = module
        self.result_names = list(result_names)
        self.read = list(read)
        self._own = own
        self._lower = lower
        self._instance_shape = instance_shape
        self._mentioned = mentioned(module)
        self.open = {name: p.shape for name, p in module.parameters.items() if p.result.dynamic()}
        self.open_results = {
            n: o.shape for n, o in enumerate(module.outputs) if isinstance(o.result, Shape) and o.result.dynamic()
        }
        self._extents = list(dict.fromkeys(_extents(module)))
        self.specialized = 0  # times that it was lowered
        self._runners: Recent[R] = Recent(KEPT)
        self._keys: Recent[Hashable] = Recent(KEPT * KEPT)  # keys of runners, by observed extents

    def lowered(
        self,
        dims: Mapping[str, Sequence[int]],
        values: Mapping[str, Array],
        symbols: Mapping[str, Dim] | None = None,
        orders: Mapping[str, Sequence[int]] | None = None,
    ) -> Module:
        """Returns the lowered module for these extents of open parameters and values of read parameters.

        symbols: other known extents; orders: axis order in memory of parameters that are not row-major, in which the module takes
        them.
        """
        known = self._known(dims, symbols)
        shapes = {name: self._instance_shape(s, Shape.of(s.dtype, dims[name])) for name, s in self.open.items()}
        module = self.module.clone({n: d for n, d in known.items() if n in self._mentioned}, parameters=shapes)
        start = next(i for i in module if not i.is_param)
        for name, order in (orders or {}).items():
            _permute_parameter(module, name, order, start)
        for name in self.read:
            module.replace(module.parameters[name], module.add_literal(values[name], before=start))
        module = with_known_extents(module)
        numbers = {int(d): n for n, d in known.items() if isinstance(d, int)}
        mark_extents(module, self._own, self._instance_shape, numbers)
        self._lower(module)
        module.sweep()
        return module

    def _known(self, dims: Mapping[str, Sequence[int]], symbols: Mapping[str, Dim] | None) -> dict[str, Dim]:
        """Returns the symbols determined by these parameter extents."""
        known = dict(symbols or {})
        learn_all(self.open.values(), [Shape.of(s.dtype, dims[name]) for name, s in self.open.items()], known)
        return known

    def runner(
        self,
        history: Hashable,
        taken: Mapping[str, PermutedValue],
        values: Mapping[str, Array],
        before: Run,
        make: Make[R],
    ) -> R:
        """Returns the runner for these values and counts; the most recent ones are cached.

        history: identifies the extents of this run; taken: arguments of open parameters; before: extents observed so far.
        """
        at = self._keys.get(history)
        if at is None:
            at = self._keys.put(history, self._key(taken, values, before))
        found = self._runners.get(at)
        if found is None:
            orders = {n: one.order for n, one in taken.items() if one.order != tuple(range(len(one.order)))}
            dims = {name: one.dims for name, one in taken.items()}
            self.specialized += 1
            with rarer_collections():
                found = self._runners.put(at, make(self.lowered(dims, values, symbols_of(before), orders)))
        return found

    def _key(self, taken: Mapping[str, PermutedValue], values: Mapping[str, Array], before: Run) -> Hashable:
        """Returns the cache key of the lowered module: different row counts may lead to equal extents."""
        known = self._known({name: one.dims for name, one in taken.items()}, symbols_of(before))
        extents = tuple([substitute(d, known) for d in self._extents])
        return extents, tuple([one.order for one in taken.values()]), *[values[name].tobytes() for name in self.read]

    def runners(self) -> list[R]:
        """Returns the cached runners."""
        return list(self._runners.values())


class Parts(Generic[R]):
    """A sequence of parts: each takes parameters of the whole module and results of earlier parts.

    takes: parameter names of the whole; outputs: names of its results.
    """

    def __init__(self, takes: Sequence[str], parts: Sequence[Part[R]], outputs: Sequence[str]) -> None:
        self.takes = list(takes)
        self.parts = list(parts)
        self.outputs = list(outputs)

    def run(
        self,
        args: Sequence[Any],
        values: Mapping[str, Array],
        make: Make[R],
        layout_of: Callable[[Any], PermutedValue],
    ) -> list[Any]:
        """Runs all parts; returns the results.

        args: parameter values of the whole; values: values read, by name; make: creates the runner of a lowered part, whose
        results stay in the target's memory; layout_of: returns the layout of an argument or result.
        """
        values_by_name = dict(zip(self.takes, args, strict=True))
        history: Hashable = tuple([value.tobytes() for value in values.values()])
        run: Run = []
        for part in self.parts:
            taken = {name: layout_of(values_by_name[name]) for name in part.open}
            observed = [one.dims for one in taken.values()]
            history = history, tuple([(one.dims, one.order) for one in taken.values()])
            runner = part.runner(history, taken, values, run, make)
            given = [taken[name].value if name in taken else values_by_name[name] for name in part.module.parameters]
            made = runner.run(given)
            open_results = [layout_of(made[n]).dims for n in part.open_results]
            history = history, tuple(open_results)
            run += [
                ObservedExtents(list(part.open.values()), observed),
                ObservedExtents(list(part.open_results.values()), open_results),
            ]
            values_by_name.update(zip(part.result_names, made, strict=True))
        return [values_by_name[name] for name in self.outputs]


def cut_in_parts(
    module: Module,
    counting: Container[Instruction],
    read: Sequence[str],
    lower: Callable[[Module], object],
    instance_shape: Callable[[AnyShape, AnyShape], AnyShape],
) -> Parts[R]:
    """Cuts a module before the readers of counting ops, in order; returns a single part if there are none.

    counting: instructions with a data-dependent result extent.  Outputs must be computed: none is a parameter or constant.
    """
    stages = _stages(module, counting)
    count = 1 + max(stages.values(), default=0)
    names = {ins: f"{module.name}_{n}" for n, ins in enumerate(stages)}
    readers = {ins: {r for r in reads(ins) if stages.get(r, stages[ins]) < stages[ins]} for ins in stages}
    passed = {r for found in readers.values() for r in found} | set(module.outputs)
    missing = _missing(module, stages, passed)
    if missing is None or not all(isinstance(ins.result, Shape) for ins in passed):
        count, stages = 1, dict.fromkeys(stages, 0)
        passed = set(module.outputs)
    else:
        passed |= missing
    found: list[Part[R]] = []
    for at in range(count):
        copy, result_names = _part(module, stages, passed, names, at)
        later = (ins for ins, stage in stages.items() if stage >= at)
        own = static_extents([*module.parameters.values(), *later])
        found.append(Part(copy, result_names, [n for n in read if n in copy.parameters], own, lower, instance_shape))
    return Parts(list(module.parameters), found, [names[o] for o in module.outputs])


def _part(
    module: Module,
    stages: Mapping[Instruction, int],
    passed: set[Instruction],
    names: Mapping[Instruction, str],
    at: int,
) -> tuple[Module, list[str]]:
    """Returns the module of one part, and the names of its results."""
    copy = module.clone(name=f"{module.name}_{at}")
    copies = dict(zip(module, copy, strict=True))
    out = [ins for ins, stage in stages.items() if stage == at and ins in passed]
    copy.replace_return([copies[ins] for ins in out])
    for ins, stage in stages.items():
        if ins in passed and stage < at:
            copy.replace(copies[ins], copy.add_parameter(names[ins], ins.result))
    copy.sweep()
    for p in list(copy.parameters.values()):
        if not p.users and p not in copy.outputs and not needed_for_extents(p):
            copy.remove(p)
    return copy, [names[ins] for ins in out]


def _stages(module: Module, counting: Container[Instruction]) -> dict[Instruction, int]:
    """Returns for each computing instruction the depth of counting ops that it depends on."""
    stages: dict[Instruction, int] = {}
    born: dict[str, int] = {}  # the stage in which a symbol becomes known
    counts: set[Instruction] = set()
    for ins in module:
        if given(ins):
            continue
        own = _own(ins)
        if isinstance(ins.op, GetTupleElem) and ins.inputs[0] in counts:
            stages[ins] = at = stages[ins.inputs[0]]  # tuples are passed on item by item
            counts.add(ins)
        else:
            before = [stages[n] + (n in counts) for n in reads(ins) if n in stages]
            stages[ins] = at = max([*before, *(born.get(s, 0) for s in mentioned([ins]) - own)], default=0)
            if ins in counting:
                counts.add(ins)
        born |= dict.fromkeys(own - born.keys(), at + (ins in counts))
    return stages


def _own(ins: Instruction) -> set[str]:
    """Returns the symbols that an instruction, or a module that it runs, introduces."""
    return introduced(ins).union(*(introduced(i) for i in within(ins)))


def _missing(module: Module, stages: Mapping[Instruction, int], passed: set[Instruction]) -> set[Instruction] | None:
    """Returns further instructions to pass on because their extents define symbols; None if one is unavailable."""
    known = set().union(*(lone_symbols(p.result) for p in module.parameters.values()))
    defining: dict[str, Instruction] = {}  # values passed on come first
    for ins in sorted(stages, key=lambda ins: ins not in passed):
        for name in lone_symbols(ins.result):
            defining.setdefault(name, ins)
    found: set[Instruction] = set()
    born: dict[str, int] = {}
    for ins, stage in stages.items():
        own = _own(ins)
        born |= dict.fromkeys(own - born.keys(), stage)
        for name in mentioned([ins]) - known - own:
            if born.get(name) == stage:
                continue
            if name not in defining or stages[defining[name]] >= stage:
                return None
            found.add(defining[name])
    return found


def _extents(module: Module) -> Iterator[Sym]:
    """Yields the symbolic extents of a module and the modules that it runs."""
    for inner in nested(module):
        for ins in inner:
            yield from open_extents(ins.result)
            yield from ins.op.extents()


def in_order(module: Module, stored: Instruction, order: Sequence[int], before: Instruction) -> Instruction:
    """Adds the transpose from memory order (`stored`) to the value's own axis order."""
    return module.add(Transpose(permutation=tuple(order.index(a) for a in range(len(order)))), stored, before=before)


def _permute_parameter(module: Module, name: str, order: Sequence[int], before: Instruction) -> None:
    """Changes a parameter to memory order, followed by a transpose."""
    p = module.parameters[name]
    users, shape = list(p.users), p.shape
    stored = Shape.of(shape.dtype, [shape.dims[a] for a in order])
    module.replace_op(p, Param(label=name, shape=stored), stored)
    seen = in_order(module, p, order, before)
    seen.result = shape
    for user in users:
        assert user.parent is not None
        user.parent.rewire(user, [seen if i is p else i for i in user.inputs])
