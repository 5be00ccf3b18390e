"""Vectorizes loops whose iterations are independent: their bodies are computed once, for all iterations together."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere
from ..ops.broadcast import Multibroadcast
from ..ops.control import GetTupleElem, Loop, Scan
from ..ops.elementwise import Pointwise
from ..ops.movement import Transpose
from ..ops.operation import Operation
from ..ops.reduce import Reduce
from ..ops.reshape import Squeeze, Unsqueeze
from ..records import dataclass
from ..types.dim import Dim
from ..types.shape import Shape
from .inline_branches import put_results
from .interface import CountingPass
from .iterations import MOST, counted, reduces_slices

__all__ = ["VectorizeScans"]


@dataclass(frozen=True)
class VectorizeScans(CountingPass):
    """Computes the body of a scan once for all slices, where no iteration depends on another.

    The states stay as they are, and the body has pointwise work, reductions and views alone: so sklearn-onnx writes pairwise
    distances.  The new axis is the last where the body reduces its last axis, so that loops run along slices, else the first.
    Loops that reduce slices of different lengths are vectorized by `ragged_loops`.
    """

    name: str = "vectorize-scans"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if isinstance(ins.op, (Loop, Scan)) and reduces_slices(ins) and _used_by_item(ins):
                from .ragged_loops import vectorized  # few models have such loops

                results = vectorized(inner, ins)
                if self.counted(ins, results if isinstance(results, No) else None) and isinstance(results, list):
                    put_results(inner, ins, results)
                    changed = True
            elif isinstance(ins.op, Scan) and self.counted(ins, _refused(ins, ins.op)):
                put_results(inner, ins, _Slices(inner, ins, ins.op).results())
                changed = True
        return changed


def _used_by_item(loop: Instruction) -> bool:
    """Returns True if the items of a loop's tuple are used one by one."""
    return all(isinstance(u.op, GetTupleElem) for u in loop.users)


def _refused(scan: Instruction, op: Scan) -> No | None:
    """Returns why a scan is not vectorized, or None."""
    (body,) = scan.modules
    parameters = list(body.parameters.values())
    if not _used_by_item(scan):
        return No("its results are used as one tuple")
    if any(o is not p for o, p in zip(body.outputs, parameters[: op.states], strict=False)):
        return No("an iteration changes the states")
    if any(op.input_directions) or any(op.output_directions):
        return No("it runs backwards")
    varying, length = _varying(body, op), _length(scan, op)
    if counted((length,)) > MOST:
        return No("it has very many iterations")  # which a scan refuses, even of slices without elements
    for ins in body:
        if ins.is_param or ins.is_literal or ins.is_return:
            continue
        if ins.modules or ins.op.random or ins.op.effect or (ins in varying and not _gains_an_axis(ins)):
            return No(f"{ins.op.name} in its body is not vectorized")
        if ins in varying and counted((length, *ins.shape.dims)) > MOST:
            return No("the values of all slices together may be too large")
    return None


def _varying(body: Module, op: Scan) -> set[Instruction]:
    """Returns the values of a body that depend on the slices."""
    found = set(list(body.parameters.values())[op.states :])
    for ins in body:
        if not (ins.is_return or found.isdisjoint(ins.inputs)):
            found.add(ins)
    return found


def _gains_an_axis(ins: Instruction) -> bool:
    """Returns True if an op can be computed for many slices as the same op with one more axis."""
    op = ins.op
    if not all(isinstance(i.result, Shape) and i.shape.ranked for i in (ins, *ins.inputs)):
        return False
    if isinstance(op, Pointwise):
        return True
    if len(ins.inputs) != 1:
        return False
    if isinstance(op, Reduce):
        return ins.inputs[0].shape.rank > 0
    return isinstance(op, (Multibroadcast, Transpose)) or (isinstance(op, (Squeeze, Unsqueeze)) and len(op.axes) > 0)


def _length(scan: Instruction, op: Scan) -> Dim:
    """Returns the number of iterations."""
    x = scan.inputs[op.states].shape
    return x.dims[op.axis_of(op.input_axes, 0, x.rank)]


class _Slices:
    """Inserts the work of a scan's body for all slices before the scan."""

    def __init__(self, module: Module, scan: Instruction, op: Scan) -> None:
        self.module, self.scan, self.op = module, scan, op
        self.length = _length(scan, op)
        (self.body,) = scan.modules
        self.varying = _varying(self.body, op)  # values that have the new axis in `made`
        self.last = any(
            isinstance(i.op, Reduce) and i.inputs[0].shape.rank - 1 in i.op.reduced_axes(i.inputs[0].shape.rank)
            for i in self.varying
        )
        self.made: dict[Instruction, Instruction] = {}

    def results(self) -> list[Instruction]:
        """Returns the states and the stacked results."""
        op = self.op
        for n, (p, x) in enumerate(zip(self.body.parameters.values(), self.scan.inputs, strict=True)):
            self.made[p] = x
            if n >= op.states:
                rank = x.shape.rank
                axis = op.axis_of(op.input_axes, n - op.states, rank)
                rest = [a for a in range(rank) if a != axis]
                self.made[p] = self._transposed(x, [*rest, axis] if self.last else [axis, *rest])
        for ins in self.body:
            if ins.is_literal:
                assert ins.literal is not None
                self.made[ins] = self.module.add_literal(ins.literal, before=self.scan)
            elif not (ins.is_param or ins.is_return):
                self.made[ins] = self._computed(ins)
        rows = [self._row(n, o) for n, o in enumerate(self.body.outputs[op.states :])]
        return [*self.scan.inputs[: op.states], *rows]

    def _add(self, op: Operation, *inputs: Instruction, like: Instruction | None = None) -> Instruction:
        return self.module.add(op, *inputs, before=self.scan, sources=(like or self.scan).sources)

    def _transposed(self, x: Instruction, permutation: Sequence[int]) -> Instruction:
        if list(permutation) == list(range(len(permutation))):
            return x
        return self._add(Transpose(permutation=tuple(permutation)), x)

    def _dims(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        return (*dims, self.length) if self.last else (self.length, *dims)

    def _spread(self, ins: Instruction) -> Instruction:
        """Returns a value of the body with the new axis, equal for all slices where it does not vary."""
        made = self.made.get(ins, ins)
        if ins in self.varying:
            return made
        apart = self._add(Unsqueeze(axes=(made.shape.rank if self.last else 0,)), made)
        return self._add(Multibroadcast(out_lens=self._dims(made.shape.dims)), apart)

    def _computed(self, ins: Instruction) -> Instruction:
        op, first = ins.op, 0 if self.last else 1
        if ins not in self.varying:
            return self._add(op, *(self.made.get(i, i) for i in ins.inputs), like=ins)
        inputs = [self._spread(i) for i in ins.inputs]
        rank = ins.inputs[0].shape.rank
        if isinstance(op, Reduce):
            op = op.replace(axes=tuple(a + first for a in op.reduced_axes(rank)))
        elif isinstance(op, (Squeeze, Unsqueeze)):
            op = op.replace(axes=tuple(a + first for a in op.axes))
        elif isinstance(op, Transpose):
            moved = [a + first for a in op.permutation]
            op = Transpose(permutation=(*moved, rank) if self.last else (0, *moved))
        elif isinstance(op, Multibroadcast):
            new = ins.shape.rank - rank
            if new:
                inputs = [self._add(Unsqueeze(axes=tuple(range(first, first + new))), *inputs, like=ins)]
            op = Multibroadcast(out_lens=self._dims(ins.shape.dims))
        return self._add(op, *inputs, like=ins)

    def _row(self, n: int, output: Instruction) -> Instruction:
        """Returns the n-th stacked result: the new axis is where the scan stacks slices."""
        made = self._spread(output)
        rank = made.shape.rank
        axis = Scan.axis_of(self.op.output_axes, n, rank)
        rest = list(range(rank - 1) if self.last else range(1, rank))
        return self._transposed(made, [*rest[:axis], rank - 1 if self.last else 0, *rest[axis:]])
