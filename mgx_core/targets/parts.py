"""Parts of a module between ops with data-dependent extents: each is lowered once the extents that it reads are known.

What follows a border may count again, as a detector does that suppresses boxes, computes features of those that are left, and
suppresses once more.  The module behind the first border is cut before each such op once; a run that finds another number of
rows then lowers what reads it, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from ..cache import Recent
from ..garbage import rarer_collections
from ..ir.instruction import Instruction
from ..ir.module import Module, nested, within
from ..ir.ordering import reads
from ..ir.symbols import introduced, learn_all, lone_symbols, mentioned, needed_for_extents
from ..ops.builtin import Param
from ..ops.control import GetTupleElem
from ..ops.movement import Transpose
from ..passes.settle_extents import with_known_extents
from ..types.argument import Array
from ..types.dim import Dim, Sym, substitute
from ..types.shape import AnyShape, Shape, open_extents
from .marking import mark_extents, static_extents
from .runner import Runner
from .static_part import given

__all__ = ["Lying", "Part", "Parts", "cut_in_parts", "in_order"]

KEPT: Final = 16  # runners of a part, by extents and by what was read

R = TypeVar("R", bound=Runner)


class Lying(NamedTuple):
    """A value as it lies in memory, row by row; `order` has its axes from the outermost to the innermost."""

    value: Any
    order: tuple[int, ...]
    dims: tuple[int, ...]  # of what it stands for


class Met(NamedTuple):
    """Extents that were met in a run, of shapes with open ones."""

    open: Sequence[Shape]
    found: Sequence[tuple[int, ...]]


Run: TypeAlias = "list[Met]"  # in the order in which a run has met them
Make: TypeAlias = "Callable[[Module], R]"


def symbols_of(run: Run) -> dict[str, Dim]:
    """Returns the symbols that follow from what a run has met."""
    symbols: dict[str, Dim] = {}
    for met in run:
        learn_all(met.open, [Shape.of(s.dtype, dims) for s, dims in zip(met.open, met.found, strict=True)], symbols)
    return symbols


class Part(Generic[R]):
    """A module whose extents are known once its arguments are there, lowered for each set of them.

    gives: names of its results, which later parts take as parameters; read: the parameters whose values decide extents;
    open: shapes of the parameters whose extents are open; told: those of such results, by number; own: extents that the program
    has whatever is counted; lower: puts kernels into a module; instance_shape: `Target.instance_shape`.
    """

    def __init__(
        self,
        module: Module,
        gives: Sequence[str],
        read: Sequence[str],
        own: set[int],
        lower: Callable[[Module], object],
        instance_shape: Callable[[AnyShape, AnyShape], AnyShape],
    ) -> None:
        self.module = module
        self.gives = list(gives)
        self.read = list(read)
        self._own = own
        self._lower = lower
        self._instance_shape = instance_shape
        self._mentioned = mentioned(module)
        self.open = {name: p.shape for name, p in module.parameters.items() if p.result.dynamic()}
        self.told = {
            n: o.shape for n, o in enumerate(module.outputs) if isinstance(o.result, Shape) and o.result.dynamic()
        }
        self._extents = list(dict.fromkeys(_extents(module)))
        self._runners: Recent[R] = Recent(KEPT)
        self._met: Recent[Hashable] = Recent(KEPT * KEPT)  # keys of runners, by the extents that runs have met

    def lowered(
        self,
        dims: Mapping[str, Sequence[int]],
        values: Mapping[str, Array],
        symbols: Mapping[str, Dim] | None = None,
        orders: Mapping[str, Sequence[int]] | None = None,
    ) -> Module:
        """Returns the module for these extents of its open parameters and these values of what is read.

        symbols: what is known of extents besides; orders: axes from the outermost to the innermost in memory, of parameters that
        do not lie row-major: the module takes them in that order.
        """
        known = self._known(dims, symbols)
        shapes = {name: self._instance_shape(s, Shape.of(s.dtype, dims[name])) for name, s in self.open.items()}
        module = self.module.clone({n: d for n, d in known.items() if n in self._mentioned}, parameters=shapes)
        start = next(i for i in module if not i.is_param)
        for name, order in (orders or {}).items():
            _turned(module, name, order, start)
        for name in self.read:
            module.replace(module.parameters[name], module.add_literal(values[name], before=start))
        module = with_known_extents(module)
        numbers = {int(d): n for n, d in known.items() if isinstance(d, int)}
        mark_extents(module, self._own, self._instance_shape, numbers)
        self._lower(module)
        module.sweep()
        return module

    def _known(self, dims: Mapping[str, Sequence[int]], symbols: Mapping[str, Dim] | None) -> dict[str, Dim]:
        """Returns the symbols that are known with these extents of parameters."""
        known = dict(symbols or {})
        learn_all(self.open.values(), [Shape.of(s.dtype, dims[name]) for name, s in self.open.items()], known)
        return known

    def runner(
        self, trail: Hashable, taken: Mapping[str, Lying], values: Mapping[str, Array], before: Run, make: Make[R]
    ) -> R:
        """Returns the runner for what was read and counted; the last ones are kept.

        trail: tells this run from those with other extents; taken: arguments of open parameters; before: the extents in the run
        so far.
        """
        at = self._met.get(trail)
        if at is None:
            at = self._met.put(trail, self._key(taken, values, before))
        found = self._runners.get(at)
        if found is None:
            orders = {n: one.order for n, one in taken.items() if one.order != tuple(range(len(one.order)))}
            dims = {name: one.dims for name, one in taken.items()}
            with rarer_collections():
                found = self._runners.put(at, make(self.lowered(dims, values, symbols_of(before), orders)))
        return found

    def _key(self, taken: Mapping[str, Lying], values: Mapping[str, Array], before: Run) -> Hashable:
        """Returns what the lowered module depends on: numbers of rows that differ may lead to equal extents."""
        known = self._known({name: one.dims for name, one in taken.items()}, symbols_of(before))
        extents = tuple([substitute(d, known) for d in self._extents])
        return extents, tuple([one.order for one in taken.values()]), *[values[name].tobytes() for name in self.read]

    def runners(self) -> list[R]:
        """Returns those that are kept."""
        return list(self._runners.values())


class Parts(Generic[R]):
    """Parts that run one behind the other: each takes parameters of the whole and results of those before it.

    takes: names of the parameters of the whole; outputs: names of its results.
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
        lies: Callable[[Any], Lying],
    ) -> list[Any]:
        """Returns the results of a run.

        args: values of the parameters of the whole; values: those that were read, by name; make: gives the runner of a lowered
        part, whose results stay where runners take them as arguments; lies: tells how an argument or a result of one lies.
        """
        there = dict(zip(self.takes, args, strict=True))
        trail: Hashable = tuple([value.tobytes() for value in values.values()])
        run: Run = []
        for part in self.parts:
            taken = {name: lies(there[name]) for name in part.open}
            met = [one.dims for one in taken.values()]
            trail = trail, tuple([(one.dims, one.order) for one in taken.values()])
            runner = part.runner(trail, taken, values, run, make)
            given = [taken[name].value if name in taken else there[name] for name in part.module.parameters]
            made = runner.run(given)
            told = [lies(made[n]).dims for n in part.told]
            trail = trail, tuple(told)
            run += [Met(list(part.open.values()), met), Met(list(part.told.values()), told)]
            there.update(zip(part.gives, made, strict=True))
        return [there[name] for name in self.outputs]


def cut_in_parts(
    module: Module,
    counting: Container[Instruction],
    read: Sequence[str],
    lower: Callable[[Module], object],
    instance_shape: Callable[[AnyShape, AnyShape], AnyShape],
) -> Parts[R]:
    """Returns a module cut before what reads the results of ops that count, in order; one part where it counts nothing.

    counting: instructions whose kernels count what they give.  The outputs are computed: none is a parameter or a constant.
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
        copy, gives = _part(module, stages, passed, names, at)
        later = (ins for ins, stage in stages.items() if stage >= at)
        own = static_extents([*module.parameters.values(), *later])
        found.append(Part(copy, gives, [n for n in read if n in copy.parameters], own, lower, instance_shape))
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
    """Returns for each instruction that computes how many of those that count come one behind the other before it."""
    stages: dict[Instruction, int] = {}
    born: dict[str, int] = {}  # the stage in which a symbol's value is known
    counts: set[Instruction] = set()
    for ins in module:
        if given(ins):
            continue
        own = _own(ins)
        if isinstance(ins.op, GetTupleElem) and ins.inputs[0] in counts:
            stages[ins] = at = stages[ins.inputs[0]]  # a tuple is not passed on, its items are
            counts.add(ins)
        else:
            before = [stages[n] + (n in counts) for n in reads(ins) if n in stages]
            stages[ins] = at = max([*before, *(born.get(s, 0) for s in mentioned([ins]) - own)], default=0)
            if ins in counting:
                counts.add(ins)
        born |= dict.fromkeys(own - born.keys(), at + (ins in counts))
    return stages


def _own(ins: Instruction) -> set[str]:
    """Returns the symbols that an instruction introduces, or one of the modules that it runs."""
    return introduced(ins).union(*(introduced(i) for i in within(ins)))


def _missing(module: Module, stages: Mapping[Instruction, int], passed: set[Instruction]) -> set[Instruction] | None:
    """Returns instructions whose results must be passed on for the extents that these tell; None if some are not to be told."""
    known = set().union(*(lone_symbols(p.result) for p in module.parameters.values()))
    tells: dict[str, Instruction] = {}  # values that are passed on come first
    for ins in sorted(stages, key=lambda ins: ins not in passed):
        for name in lone_symbols(ins.result):
            tells.setdefault(name, ins)
    found: set[Instruction] = set()
    born: dict[str, int] = {}
    for ins, stage in stages.items():
        own = _own(ins)
        born |= dict.fromkeys(own - born.keys(), stage)
        for name in mentioned([ins]) - known - own:
            if born.get(name) == stage:
                continue
            if name not in tells or stages[tells[name]] >= stage:
                return None
            found.add(tells[name])
    return found


def _extents(module: Module) -> Iterator[Sym]:
    """Yields the extents in a module, and in those that it runs, that are not numbers."""
    for inner in nested(module):
        for ins in inner:
            yield from open_extents(ins.result)
            yield from ins.op.extents()


def in_order(module: Module, lying: Instruction, order: Sequence[int], before: Instruction) -> Instruction:
    """Adds the value whose axes lie in this order in memory, `lying` with them in that of memory."""
    return module.add(Transpose(permutation=tuple(order.index(a) for a in range(len(order)))), lying, before=before)


def _turned(module: Module, name: str, order: Sequence[int], before: Instruction) -> None:
    """Lets a module take a parameter as it lies in memory, with its axes in this order."""
    p = module.parameters[name]
    users, shape = list(p.users), p.shape
    lying = Shape.of(shape.dtype, [shape.dims[a] for a in order])
    module.replace_op(p, Param(label=name, shape=lying), lying)
    seen = in_order(module, p, order, before)
    seen.result = shape
    for user in users:
        assert user.parent is not None
        user.parent.rewire(user, [seen if i is p else i for i in user.inputs])
