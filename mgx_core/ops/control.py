"""Ops that run sub-modules: control flow, and the groups created by fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ..errors import ShapeError, counted
from ..types.argument import Array, Value
from ..types.dim import Dim, fresh
from ..types.memory_limit import Growth, require_bytes, static_bytes
from ..types.shape import AnyShape, Shape, TupleShape
from .declaration import op
from .operation import Operation, Run
from .type_join import join

__all__ = ["FusedReduce", "GetTupleElem", "Group", "If", "Loop", "PointwiseGroup", "Scan", "never_ends"]


MOST_EMPTY: Final = 1 << 20  # the most slices of zero size, which no memory limit bounds


@op("get_tuple_elem", exact=True)
class GetTupleElem(Operation):
    """One item of a tuple.

    x: tuple of values -> the item at `index`.  Errors: ShapeError if x is not a tuple or has no such item.
    """

    index: int

    def infer(self, x: TupleShape) -> AnyShape:
        if not isinstance(x, TupleShape) or not 0 <= self.index < len(x.items):
            raise ShapeError(f"needs a tuple with an item {self.index}, got {x}")
        return x.items[self.index]

    def compute(self, x: tuple[Value, ...]) -> Value:
        return x[self.index]


@op("if", exact=True, control=True, selects=True)
class If(Operation):
    """Runs one of two modules, selected by a condition.

    cond: bool with one element; modules: then, else, both without parameters (they capture outer values) -> tuple of their
    results.  Extents that differ become data-dependent symbols.
    Errors: ShapeError unless both modules return the same number of values of the same element types.
    """

    def infer(self, cond: Shape, *, modules: Sequence[Any]) -> TupleShape:
        if cond.dtype.kind != "b":
            raise ShapeError(f"the condition must be bool, got {cond}")
        if len(modules) != 2:
            raise ShapeError(f"takes two modules (then, else), got {len(modules)}")
        then, other = (m.output_shapes() for m in modules)
        if len(then) != len(other):
            raise ShapeError(f"both branches must return as many values, got {len(then)} and {len(other)}")
        return TupleShape(map(join, then, other))

    def compute(self, cond: Array, *, modules: Sequence[Any], run: Run) -> tuple[Value, ...]:
        if cond.size != 1:
            raise ShapeError(f"the condition must have one element, got {cond.size}")
        return tuple(run(modules[0 if cond.reshape(()) else 1], []))


@op("loop", exact=True, control=True)
class Loop(Operation):
    """Runs a module repeatedly while its condition is true.

    trips: int64 scalar, or absent for no bound; cond: bool scalar, or absent for true; states: loop-carried values;
    module: (iteration: int64, cond: bool, *states) -> (cond, *states, *scans) -> tuple of the final states and of the
    scans stacked along a new first axis (`scan_output_directions` 1: reversed).
    max_iterations: the limit on trips of a loop without a bound.
    Errors: ShapeError for signatures that do not fit, or when the bound is exceeded, naming ``limit_max_iterations``;
    DeviceError if the rows or the states of all trips would exceed the memory limit.  Both are raised before the first trip if
    the body cannot end the loop.
    """

    max_iterations: int = 65535
    scan_output_directions: tuple[int, ...] = ()

    def infer(
        self, trips: Shape | None = None, cond: Shape | None = None, *states: AnyShape, modules: Sequence[Any]
    ) -> TupleShape:
        (body,) = modules
        parameters = [p.result for p in body.parameters.values()]
        results = body.output_shapes()
        if len(parameters) != 2 + len(states) or len(results) < 1 + len(states):
            raise ShapeError(
                f"the body must take 2 + {len(states)} values and return at least 1 + {len(states)}, "
                f"got {len(parameters)} and {len(results)}"
            )
        carried = [join(join(s, p), r) for s, p, r in zip(states, parameters[2:], results[1:], strict=False)]
        length = fresh("trips", 0, self.max_iterations)
        scans = [_stacked(r, length) for r in results[1 + len(states) :]]
        return TupleShape([*carried, *scans])

    def compute(
        self, trips: Array | None = None, cond: Array | None = None, *states: Value, modules: Sequence[Any], run: Run
    ) -> tuple[Value, ...]:
        (body,) = modules
        bound = None if trips is None else int(np.asarray(trips).reshape(()))
        going = True if cond is None else bool(np.asarray(cond).reshape(()))
        carried = list(states)
        rows: list[list[Array]] = [[] for _ in body.outputs[1 + len(states) :]]
        sure = 0  # the trip count, if it is certain before the first trip
        if going and never_ends(body):
            sure = self.max_iterations if bound is None else min(bound, self.max_iterations)
            row_bytes = sum(static_bytes(s) or 0 for s in body.output_shapes()[1 + len(states) :])
            require_bytes(row_bytes * sure, f"the rows of {sure} trips of the loop")
            if bound is None or bound > sure:
                raise self._endless()
        growth = Growth("the loop-carried values")
        n = kept = 0
        while going and (bound is None or n < bound):
            if n >= self.max_iterations:
                raise self._endless()
            results = run(body, [np.asarray(n, np.int64), np.asarray(going, np.bool_), *carried])
            going = bool(np.asarray(results[0]).reshape(()))
            carried = results[1 : 1 + len(states)]
            for row, value in zip(rows, results[1 + len(states) :], strict=True):
                row.append(value)
                kept += getattr(value, "nbytes", 0)
            require_bytes(kept, "the rows that the loop has gathered")
            n += 1
            growth.require(carried, sure - n)
        shapes = body.output_shapes()[1 + len(states) :]
        directions = self.scan_output_directions or (0,) * len(rows)
        scans = [_stack(row, s, d) for row, s, d in zip(rows, shapes, directions, strict=True)]
        return (*carried, *scans)

    def _endless(self) -> ShapeError:
        return ShapeError(f"the loop takes more than {self.max_iterations} trips (option limit_max_iterations)")


def never_ends(body: Any) -> bool:
    """Returns True if a loop's body never ends the loop: it returns its own condition, or true."""
    ends = body.outputs[0]
    if ends.literal is not None:
        return bool(np.asarray(ends.literal.value).reshape(()))
    return ends is list(body.parameters.values())[1]


def _stacked(row: AnyShape, length: Dim) -> Shape:
    if not isinstance(row, Shape):
        raise ShapeError(f"a scan output must be a tensor, got {row}")
    return row.with_dims((length, *row.dims)) if row.ranked else Shape.unranked(row.dtype)


def _stack(rows: list[Array], shape: AnyShape, direction: int = 0, axis: int = 0) -> Array:
    assert isinstance(shape, Shape)
    if not rows:
        dims = [d if isinstance(d, int) else 0 for d in shape.dims] if shape.ranked else []
        return np.zeros((*dims[:axis], 0, *dims[axis:]), shape.dtype.numpy)
    for row in rows[1:]:
        if row.shape != rows[0].shape:
            raise ShapeError(f"scan outputs of one loop must have one shape, got {rows[0].shape} and {row.shape}")
    rows, lens = rows[::-1] if direction else rows, rows[0].shape
    if axis == len(lens):
        return np.stack(rows, axis)
    whole = np.concatenate(rows, axis)  # one view instead of a call per row
    return whole.reshape(*lens[:axis], len(rows), *lens[axis:])


@op("scan", exact=True, control=True)
class Scan(Operation):
    """Runs a module on each slice of its inputs, with loop-carried states.

    inputs: `states` loop-carried values, then tensors that are sliced along `input_axes` (in reverse where `input_directions` is
    1); module: (*states, *slices) -> (*states, *rows) -> tuple of the final states and of the rows stacked along `output_axes`.
    Errors: ShapeError if the scanned extents differ or the signatures do not fit.
    """

    states: int = 0
    input_axes: tuple[int, ...] = ()
    input_directions: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    output_directions: tuple[int, ...] = ()

    def infer(self, *xs: AnyShape, modules: Sequence[Any]) -> TupleShape:
        (body,) = modules
        scanned = xs[self.states :]
        if len(body.parameters) != len(xs):
            raise ShapeError(f"the body must take {counted(len(xs), 'value')}, got {len(body.parameters)}")
        length: Dim = 0
        for n, x in enumerate(scanned):
            assert isinstance(x, Shape)
            axis = self.axis_of(self.input_axes, n, x.rank)
            length = x.dims[axis]
        results = body.output_shapes()
        parameters = [p.result for p in body.parameters.values()]
        carried = [
            join(join(s, p), r)
            for s, p, r in zip(xs[: self.states], parameters[: self.states], results[: self.states], strict=True)
        ]
        rows = []
        for n, r in enumerate(results[self.states :]):
            assert isinstance(r, Shape)
            axis = self.axis_of(self.output_axes, n, r.rank + 1)
            rows.append(r.with_dims((*r.dims[:axis], length, *r.dims[axis:])))
        return TupleShape([*carried, *rows])

    @staticmethod
    def axis_of(axes: Sequence[int], n: int, rank: int) -> int:
        """Returns the n-th of some axes, non-negative; 0 if it is not stated."""
        axis = axes[n] if n < len(axes) else 0
        if not -rank <= axis < rank:
            raise ShapeError(f"scan axis {axis} is outside rank {rank}")
        return axis % rank

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> tuple[Value, ...]:
        (body,) = modules
        carried = list(xs[: self.states])
        cut = []
        for n, x in enumerate(xs[self.states :]):
            moved = np.moveaxis(x, self.axis_of(self.input_axes, n, x.ndim), 0)
            backwards = self.input_directions[n] if n < len(self.input_directions) else 0
            cut.append(moved[::-1] if backwards else moved)
        if len({len(c) for c in cut}) > 1:
            raise ShapeError(f"scanned inputs must have one length, got {[len(c) for c in cut]}")
        if cut and len(cut[0]) > MOST_EMPTY and not any(c.size for c in cut):
            raise ShapeError(f"a scan over {len(cut[0])} slices without elements is refused")
        shapes = body.output_shapes()[self.states :]
        rows: list[list[Array]] = [[] for _ in shapes]
        kept = 0
        for slices in zip(*cut, strict=True):
            results = run(body, [*carried, *map(np.asarray, slices)])
            carried = results[: self.states]
            for row, value in zip(rows, results[self.states :], strict=True):
                row.append(value)
                kept += getattr(value, "nbytes", 0)
            require_bytes(kept, "the rows that the scan has gathered")
        joined = []
        for n, (row, shape) in enumerate(zip(rows, shapes, strict=True)):
            assert isinstance(shape, Shape)
            axis = self.axis_of(self.output_axes, n, shape.rank + 1)
            joined.append(_stack(row, shape, self.output_directions[n] if n < len(self.output_directions) else 0, axis))
        return (*carried, *joined)


class _Grouped(Operation):
    """Base of groups: the module's result, a tuple if it returns several values."""

    __slots__ = ()

    fused: ClassVar[bool] = True

    def infer(self, *xs: AnyShape, modules: Sequence[Any]) -> AnyShape:
        (body,) = modules
        if len(body.parameters) != len(xs):
            raise ShapeError(f"the group's module takes {counted(len(body.parameters), 'value')}, got {len(xs)}")
        shapes = body.output_shapes()
        return shapes[0] if len(shapes) == 1 else TupleShape(shapes)

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> Value:
        results = run(modules[0], xs)
        return results[0] if len(results) == 1 else tuple(results)


@op("pointwise")
class PointwiseGroup(_Grouped):
    """A group of pointwise ops that a target runs as one loop.

    xs: the group's inputs; module: pointwise ops (and reshapes, broadcasts of inputs) -> what the module returns.
    """


@op("fused_reduce")
class FusedReduce(_Grouped):
    """A group of reductions over the same axes with the pointwise ops before and after.

    xs: the group's inputs; module: reductions over `axes` and pointwise ops -> what the module returns.
    """

    axes: tuple[int, ...] = ()


@op("group")
class Group(_Grouped):
    """A group with a target-specific kernel, identified by `tag` (``attention``, ``conv_bias_relu``, ...).

    xs: the group's inputs; module: the definition of the group -> its results.
    """

    tag: str = ""
