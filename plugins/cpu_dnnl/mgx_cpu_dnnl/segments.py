"""Execution around ops that are decided at run time: native programs for the segments between them, and for their bodies."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Final

import numpy as np

from mgx_core import Instruction, Launch, Module, Operation, Shape, TupleShape
from mgx_core.ir.equality import equal_bodies
from mgx_core.ir.extract import extract
from mgx_core.ir.interpreter import Interpreter, bind_symbols, reads
from mgx_core.ir.symbols import mentioned
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.operation import Run
from mgx_core.targets.kernel import op_of
from mgx_core.targets.runner import Runner
from mgx_core.targets.static_part import fixed_tensor, read_whole
from mgx_core.types.shape import symbols_in

from .emitter import CpuEmitter
from .kernel import CpuKernel

__all__ = ["Item", "Segment", "SegmentInterpreter", "cut"]

KEPT: Final = 128  # native programs of a segment, one for each set of shapes
WORTH: Final = 8  # least average runs of evicted programs


def _settled(ins: Instruction, known: set[str]) -> bool:
    """True if all results of an instruction are tensors of numbers whose extents follow from known symbols."""
    items = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
    ranked = all(isinstance(s, Shape) and s.ranked and s.dtype.kind not in "sc" for s in items)
    return ranked and symbols_in(ins.result) <= known


class Segment:
    """A part of a module as one native program for each set of shapes.

    results: what it gives, instructions of the module that it was taken from; needs: what it is given.
    """

    def __init__(self, members: Sequence[Instruction], results: Sequence[Instruction], name: str) -> None:
        self.members = list(members)
        self.results = list(results)
        self.module, self.needs = extract(members, results, name)
        self._labels = list(self.module.parameters)
        self._open = sorted(mentioned(self.module))
        self._made: OrderedDict[Any, Runner] = OrderedDict()
        self._last: tuple[Any, Runner] | None = None
        self._found = self._dropped = 0  # hits, and evictions
        self._lock = Lock()

    def prepare(self, make: Callable[[Module], Runner]) -> Runner | None:
        """The program, made ahead, if the shapes are known."""
        if not all(map(fixed_tensor, self.needs)):
            return None
        if self._open:
            return None
        return self._made_for([(n.shape.dtype.numpy, tuple(n.shape.lens())) for n in self.needs], {}, make)

    def runner(self, args: Sequence[Any], known: Mapping[str, int], make: Callable[[Module], Runner]) -> Runner | None:
        """The program for the values of `needs`, and of symbols; None if a value is not an array of numbers.

        None as well where shapes do not come again often enough for programs to be worth making: a state that grows in every
        trip of a long loop.
        """
        key: list[Any] = []
        for a in args:
            if not isinstance(a, np.ndarray) or (a.dtype.kind not in "biuf" and a.dtype.kind != "V"):
                return None
            key.append((a.dtype, a.shape))
        if self._open:
            key += [known.get(name) for name in self._open]
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        found = self._made_for(key, known, make)
        if found is not None:
            self._last = key, found
        return found

    def _made_for(self, wanted: list[Any], known: Mapping[str, int], make: Callable[[Module], Runner]) -> Runner | None:
        key = tuple(wanted)
        with self._lock:
            found = self._made.get(key)
            if found is None:
                if len(self._made) >= KEPT and self._found < WORTH * (self._dropped + 1):
                    return None
                shapes = {label: Shape(dtype, lens) for label, (dtype, lens) in zip(self._labels, key, strict=False)}
                equal = self.module.derive("equal bodies", equal_bodies)
                found = self._made[key] = make(self.module.clone(dict(known), None, None, shapes, equal))
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
                    self._dropped += 1
            else:
                self._found += 1
                self._made.move_to_end(key)
        return found


@dataclass
class Item:
    """One thing to run.

    what: a segment, or an op that is decided at run time; done: values without later readers.
    """

    what: Segment | Instruction
    done: list[Instruction] = field(default_factory=list)

    @property
    def needs(self) -> list[Instruction]:
        return self.what.needs if isinstance(self.what, Segment) else reads(self.what)


def cut(module: Module, static: Mapping[Instruction, Any]) -> list[Item]:
    """Returns what follows the static part of a module: segments, and between them the ops that are decided at run time.

    Such ops are control flow, those whose extents depend on data, and those on anything but tensors of numbers.
    """
    known = symbols_in([p.result for p in module.parameters.values()])
    stage: dict[Instruction, int] = {}
    members: dict[int, list[Instruction]] = {}
    between: dict[int, list[Instruction]] = {}
    alone: set[Instruction] = set()  # decided at run time
    born: dict[str, int] = {}  # when a symbol's value is known
    for ins in module:
        if ins in static or ins.is_param or ins.literal is not None or ins.is_return or ins.is_absent:
            continue
        needs = reads(ins)
        at = max([*(stage.get(n, 0) for n in needs), *(born.get(s, 0) for s in mentioned([ins]))], default=0)
        op = op_of(ins)
        item = isinstance(op, GetTupleElem)
        tensors = item or all(n.is_absent or isinstance(n.result, Shape) for n in needs)
        if item and needs[0] in alone:
            at = stage[ins] = stage[needs[0]]  # at once after the op that it takes an item of
            between[at - 1].append(ins)
            fresh = symbols_in(ins.result) - known
        elif tensors and not op.control and not op.effect and _settled(ins, known) and not read_whole(ins):
            stage[ins] = at
            members.setdefault(at, []).append(ins)
            continue
        else:
            stage[ins] = at + 1
            alone.add(ins)
            between.setdefault(at, []).append(ins)
            fresh = symbols_in(ins.result) - known
        known |= fresh
        born |= dict.fromkeys(fresh, stage[ins])
    found: list[Item] = []
    for at in range(max([*members, *between], default=-1) + 1):
        group = members.get(at, [])
        if group:
            inside = set(group)
            results = [i for i in group if i in module.outputs or not inside.issuperset(i.users)]
            found.append(Item(Segment(group, results, f"{module.name}:{at}")))
        found += [Item(ins) for ins in between.get(at, [])]
    last = {need: item for item in found for need in item.needs}
    for need, reader in last.items():
        if need not in module.outputs:
            reader.done.append(need)
    for one in found:
        if isinstance(one.what, Instruction) and not one.what.users and one.what not in module.outputs:
            one.done.append(one.what)  # it was run for its extents
    return found


class SegmentInterpreter(Interpreter):
    """Runs what a module was cut into, the bodies of control flow as native programs, and ops one by one by their kernels.

    make: a runner for a module with static extents, given an emitter with the settings to use.
    """

    def __init__(self, emitter: CpuEmitter, make: Callable[[CpuEmitter, Module], Runner]) -> None:
        super().__init__()
        self._emitter = emitter
        self._make = partial(make, emitter)
        self._bodies: dict[Module, tuple[Segment, list[tuple[int | None, Instruction]]] | None] = {}

    def evaluate(self, op: Operation, args: Sequence[Any], modules: Sequence[Module], run: Run) -> Any:
        if isinstance(op, Launch) and isinstance(op.kernel, CpuKernel):
            return self._emitter.context.programs.run(op.kernel, args, self._emitter)
        return super().evaluate(op, args, modules, run)

    def prepare(self, items: Sequence[Item]) -> list[tuple[Sequence[Instruction], Runner]]:
        """Programs that can be made before anything runs, with the instructions that they run."""
        segments: list[Segment] = []
        for item in items:
            if isinstance(item.what, Segment):
                segments.append(item.what)
            elif item.what.op.control:
                bodies = [self._body(m) for m in item.what.modules]
                segments += [body[0] for body in bodies if body is not None]
        made = [(segment.members, segment.prepare(self._make)) for segment in segments]
        return [(members, runner) for members, runner in made if runner is not None]

    def follow(
        self,
        items: Sequence[Item],
        values: dict[Instruction, Any],
        known: dict[str, int],
        watch: Callable[[Instruction | Runner, Segment | None, Sequence[Any], float], None] | None = None,
    ) -> None:
        """Run what a module was cut into; `values` and `known` are extended by its results.

        watch: called with each op, or each program with its segment and arguments, and the seconds it took.
        """
        for item in items:
            start = time.perf_counter()
            if isinstance(item.what, Segment):
                part = item.what
                args = [values[n] for n in part.needs]
                runner = part.runner(args, known, self._make)
                if runner is not None:
                    values.update(zip(part.results, runner.run(args), strict=True))
                    if watch is not None:
                        watch(runner, part, args, time.perf_counter() - start)
                else:
                    for ins in part.members:
                        self._alone(ins, values, known)
                        if watch is not None:
                            now = time.perf_counter()
                            watch(ins, None, (), now - start)
                            start = now
                    for ins in set(part.members).difference(part.results):
                        del values[ins]
            else:
                self._alone(item.what, values, known)
                if watch is not None:
                    watch(item.what, None, (), time.perf_counter() - start)
            for ins in item.done:
                values.pop(ins, None)

    def _alone(self, ins: Instruction, values: dict[Instruction, Any], known: dict[str, int]) -> None:
        values[ins] = value = self.step(ins, values, known)
        if ins.result.dynamic():
            bind_symbols(ins.result, value, known)

    def run(
        self,
        module: Module,
        args: Sequence[Any],
        outer: Mapping[Instruction, Any] | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> list[Any]:
        body = None if outer is None else self._body(module)
        if body is not None and outer is not None:
            part, places = body
            given = [outer[at] if n is None else args[n] for n, at in places]
            runner = part.runner(given, symbols or {}, self._make)
            if runner is not None:
                return runner.run(given)
        return super().run(module, args, outer, symbols)

    def _body(self, module: Module) -> tuple[Segment, list[tuple[int | None, Instruction]]] | None:
        """A module that control flow runs; of what it needs, which parameter that is (None: a value of modules around it)."""
        if module not in self._bodies:
            members = [i for i in module if not (i.is_param or i.literal is not None or i.is_return or i.is_absent)]
            position = {p: n for n, p in enumerate(module.parameters.values())}
            if any(o.is_absent for o in module.outputs):
                self._bodies[module] = None
            else:
                part = Segment(members, module.outputs, module.name)
                self._bodies[module] = part, [(position.get(n), n) for n in part.needs]
        return self._bodies[module]
