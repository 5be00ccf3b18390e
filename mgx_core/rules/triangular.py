"""Recognizes triangular systems that are solved row by row, as exporters unroll loops over rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.convert import Convert
from ..ops.index import Trilu
from ..ops.pointwise import Add, Mul, Neg, Where
from ..ops.reduce import ReduceSum
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types.argument import Array
from ..types.dtype import float32, float64
from ..types.shape import Shape
from .constants import aligned, uniform
from .engine import ROUNDING, Builder, Rules
from .matching import either

__all__ = ["TRIANGULAR"]

TRIANGULAR: Final = Rules("solve-triangular-systems")

SMALLEST: Final = 4  # rows from which a solve is faster than the updates
MOST: Final = 128  # rows of the systems for which targets have kernels


class _Update(NamedTuple):
    """The addition of a row of the matrix and a sum of products: the row, both factors, the summed axis, values between."""

    row: Instruction
    factors: tuple[Instruction, Instruction]
    axis: int | None
    between: list[Instruction]


@TRIANGULAR.on(Concat, reads=Concat, changes=ROUNDING)
def solve_from_row_updates(i: Instruction, b: Builder) -> Instruction | No | None:
    """Row i of a strictly lower triangular matrix plus its products with rows 0 to i - 1, i = 1, 2, .. -> one solve_triangular.

    Row i of (I - x)^-1 - I is x[i] + sum over k < i of x[i, k] times its row k; all of it is (I - x)^-1 x.  A row of x with an
    infinity gives NaN either way, if not in the same columns.
    """
    if not isinstance(i.result, Shape) or i.shape.dtype not in (float32, float64):
        return None  # narrower floats round each product
    if not _ends_with_update(i):
        return None
    size = i.shape.dims[-1]
    assert isinstance(size, int)
    if not SMALLEST <= size <= MOST:
        return No(f"the system has {size} rows, those of {SMALLEST} to {MOST} are solved")
    from ..ops.factorization import SolveTriangular  # most models solve no systems

    chain = _Chain(i, size)
    if (why := chain.refused()) is not None:
        return No(why)
    x = chain.matrix
    assert x is not None
    return b.add(SolveTriangular(unit=True), b.add(Neg(), x), x)


def _ends_with_update(i: Instruction) -> bool:
    """Returns True for rows that are concatenated to a square matrix of static extent, the last one updated."""
    last = i.inputs[-1]
    rank = i.shape.rank
    if rank < 2 or i.op != Concat(axis=rank - 2) or not last.shape.ranked:
        return False
    rows, columns = i.shape.dims[-2:]
    if not isinstance(rows, int) or rows != columns or last.shape.dims[-2] != 1 or not isinstance(last.op, Unsqueeze):
        return False
    row = last.inputs[0]
    if row.op != Concat(axis=rank - 2) or row.inputs[0].shape.dims[-1] != rows - 1:
        return False
    return _update(row.inputs[0]) is not None


def _update(ins: Instruction) -> _Update | None:
    """Returns the parts of row + sum(x * y), where the sum has one term for the first update; None for anything else."""
    if not isinstance(ins.op, Add):
        return None
    for row, total in either(ins):
        between, axis = [total], None
        while isinstance(total.op, (Squeeze, Unsqueeze, Reshape)) and len(total.inputs) == 1:
            total = total.inputs[0]
            between.append(total)
        if isinstance(total.op, ReduceSum) and len(total.inputs) == 1:
            axes = total.op.reduced_axes(total.inputs[0].shape.rank)
            if len(axes) != 1:
                continue
            (axis,) = axes
            total = total.inputs[0]
            between.append(total)
        if isinstance(total.op, Mul):
            x, y = total.inputs
            return _Update(row, (x, y), axis, between)
    return None


class _Chain:
    """A chain of row updates: which cell of the matrix, original or updated, each element of its values is.

    Cells are numbered by rows, updated ones from `size` * `size` on.  Arrays of cells have the axes of their values, with
    extent 1 along the batch axes, which every value has in common.
    """

    def __init__(self, root: Instruction, size: int) -> None:
        self.root = root
        self.size = size
        self.batch = root.shape.dims[:-2]
        self.matrix: Instruction | None = None
        self.cells: dict[Instruction, Array] = {}
        self.between: list[Instruction] = []
        self.read: set[Instruction] = set()

    def refused(self) -> str | None:
        """Returns why the values do not form the solution of one triangular system; None if they do."""
        size = self.size
        if not self._number() or not np.array_equal(self.cells[self.root].reshape(size, size), self._after(size)):
            return "the rows are not each updated once, in order, by all rows before them"
        if self.matrix is None or not _strictly_lower(self.matrix, np.triu(np.ones((size, size), np.bool_))):
            return "the matrix is not known to be zero on and above its diagonal"
        states = [x for x, cells in self.cells.items() if x is not self.root and cells.max(initial=0) >= size * size]
        if any(user not in self.read for x in (*states, *self.between) for user in x.users):
            return "a matrix between two updates has other readers"
        return None

    def _after(self, count: int) -> Array:
        """Returns the cells of the first `count` rows and columns after the updates of these rows."""
        rows, columns = np.arange(count)[:, None], np.arange(count)[None, :]
        return np.where(rows > columns, self.size**2, 0) + rows * self.size + columns

    def _number(self) -> bool:
        """Numbers the cells of all values from the matrix to the root; False if one of them is of another form."""
        pending = [self.root]
        while pending:
            ins = pending[-1]
            if ins in self.cells:
                pending.pop()
                continue
            if not isinstance(ins.result, Shape) or not ins.shape.ranked:
                return False
            if ins.shape.dims[: len(self.batch)] != self.batch:
                return False
            update = _update(ins)
            own = ins.shape.dims == self.root.shape.dims and not isinstance(ins.op, Concat)
            needed = () if own else (update.row, *update.factors) if update else ins.inputs
            missing = [x for x in needed if x not in self.cells]
            if missing:
                pending += missing
                continue
            found = self._original(ins) if own else self._updated(ins, update) if update else self._moved(ins)
            if found is None or found.shape[len(self.batch) :] != ins.shape.dims[len(self.batch) :]:
                return False
            self.cells[ins] = found
            self.read.add(ins)
        return True

    def _original(self, ins: Instruction) -> Array | None:
        """Returns the cells of the matrix; None for a second one."""
        if self.matrix is not None and ins is not self.matrix:
            return None
        self.matrix = ins
        return np.arange(self.size**2).reshape(*(1 for _ in self.batch), self.size, self.size)

    def _updated(self, ins: Instruction, update: _Update) -> Array | None:
        """Returns the new cells of a row left of the diagonal, if the update is that of the row."""
        row, (x, y) = self.cells[update.row], (self.cells[x] for x in update.factors)
        count = row.size
        first = count * self.size
        if not count or x.shape != y.shape or not np.array_equal(row.reshape(-1), first + np.arange(count)):
            return None
        if update.axis is not None and update.axis < len(self.batch):
            return None
        terms = [_summed_first(c, update.axis) for c in (x, y)]
        scales = np.broadcast_to(first + np.arange(count)[:, None], (count, count))
        rows = self._after(count)
        if not any(np.array_equal(s, scales) and np.array_equal(t, rows) for s, t in (terms, terms[::-1])):
            return None
        self.between += update.between
        self.read.update(update.between)
        return row + self.size**2

    def _moved(self, ins: Instruction) -> Array | None:
        """Returns the cells of a value that only moves elements along the axes after the batch axes."""
        lead, rank = len(self.batch), ins.shape.rank
        inputs = [self.cells[x] for x in ins.inputs]
        op = ins.op
        if isinstance(op, Concat):
            return np.concatenate(inputs, op.axis) if op.axis >= lead else None
        if len(inputs) != 1:
            return None
        (cells,) = inputs
        match op:
            case Slice():
                ranges = list(op.ranges(rank, op.starts, op.ends, op.axes, op.steps))
                if any(a < lead or s < 1 or not isinstance(p, int) or not isinstance(q, int) for a, p, q, s in ranges):
                    return None
                taken = {a: slice(p, q, s) for a, p, q, s in ranges}
                return cells[tuple(taken.get(a, slice(None)) for a in range(rank))]
            case Squeeze(axes=axes):
                return np.squeeze(cells, axes) if min(axes, default=0) >= lead else None
            case Unsqueeze(axes=axes):
                return np.expand_dims(cells, axes) if min(axes) >= lead else None
            case Multibroadcast() if rank == cells.ndim:
                inner = [n for n in ins.shape.dims[lead:] if isinstance(n, int)]
                return np.broadcast_to(cells, (*cells.shape[:lead], *inner)) if len(inner) == rank - lead else None
        return None


def _summed_first(cells: Array, axis: int | None) -> Array:
    """Returns cells with the summed axis first and the others as one; axis: None for a sum of one term."""
    return cells.reshape(1, -1) if axis is None else np.moveaxis(cells, axis, 0).reshape(cells.shape[axis], -1)


def _strictly_lower(x: Instruction, upper: Array) -> bool:
    """Returns True if square matrices are known to be zero at the cells `upper`, those on and above the diagonal."""
    op, inputs = x.op, x.inputs
    if not isinstance(x.result, Shape) or not x.shape.ranked or x.shape.dims[-2:] != upper.shape:
        return False
    if uniform(x) == 0:
        return True
    match op:
        case Trilu(upper=False, k=k) if len(inputs) == 1:
            return k < 0
        case Neg() | Convert():
            return _strictly_lower(inputs[0], upper)
        case Reshape() | Unsqueeze() | Squeeze() | Multibroadcast() if len(inputs) == 1:
            return inputs[0].shape.dims[-2:] == upper.shape and _strictly_lower(inputs[0], upper)
        case Where():
            chosen = aligned(inputs[0])
            if chosen is None:
                return False
            zero = [_strictly_lower(branch, upper) for branch in inputs[1:]]
            return bool((np.where(chosen, *zero) | ~upper).all())
    value = aligned(x)
    return value is not None and value.shape[-2:] == upper.shape and not value[..., upper].any()
