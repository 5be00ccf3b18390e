"""Gathers and scatters of elements and slices by indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.axes import normalize
from mgx_core.ops.index import GatherElements, Gathernd
from mgx_core.ops.pooling import MaxUnpool
from mgx_core.ops.scatter import SCATTERNDS, SCATTERS
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import GRAIN_BYTES, allocate_zeros, as_indices, merge_axes, native_loop
from .offer import NUMBERS, offer, only

__all__ = ["NOT_NEGATIVE", "PLANS", "Places", "scatter", "gather"]

PLANS = Kernels("cpu")
NARROW: Final = (dt.float16, dt.bfloat16)
FAIL, SKIP, NOT_NEGATIVE = range(3)  # policy for out-of-bounds indices: raise, ignore, or raise for negative ones too


class Places:
    """Positions in a tensor that are addressed by a tensor of indices.

    lens: extents of the indices; steps: strides over them, of the tensor and of the indices; components: for each component of an
    index, extent and stride of the axis that it selects from; apart: stride between components; outside: out-of-bounds policy.
    """

    def __init__(
        self,
        indices: Value,
        lens: Sequence[int],
        steps: Sequence[Sequence[int]],
        components: Sequence[tuple[int, int]],
        apart: int = 0,
        outside: int = FAIL,
    ) -> None:
        self.indices = indices
        self.lens = lens
        self.steps = steps
        self.numbers = [int(indices.shape.dtype is dt.int64), outside, len(components)]
        for extent, stride in components:
            self.numbers += [extent, stride, apart]


def gather(
    e: CpuEmitter, name: str, x: Value, places: Places, out: Value, own: Sequence[int], rest: Sequence[Sequence[int]]
) -> None:
    """Gathers slices of x at `places` into `out`.

    own: strides of `out` over the indices; rest: extents of a slice and its strides in x and out.
    """
    lens, steps = merge_axes(places.lens, *places.steps, own)
    inner, inner_steps = merge_axes(*rest)
    extents = [*lens, *inner]
    axis = max(range(len(extents)), key=extents.__getitem__)
    numbers = [axis, *places.numbers, *_encode_box(lens, steps), *_encode_box(inner, inner_steps)]
    work = extents[axis]
    grain = max(1, GRAIN_BYTES * work // (prod(extents) * x.shape.dtype.size))
    native_loop(e, name, f"take_{x.shape.dtype.size}", [x, places.indices, out], [out], numbers, work, grain)


def scatter(
    e: CpuEmitter,
    name: str,
    out: Value,
    places: Places,
    updates: Value,
    own: Sequence[int],
    rest: Sequence[Sequence[int]],
    how: str,
) -> None:
    """Scatters slices of `updates` into `out` at `places`.

    own: strides of `updates` over the indices; rest: extents of a slice and its strides in updates and out; how: the reduction.
    """
    lens, steps = merge_axes(places.lens, *places.steps, own)
    inner, inner_steps = merge_axes(*rest)
    extents = [*lens, *inner]
    # parallelize only over an axis along which updates cannot collide, so that results are deterministic
    apart = [*steps[0], *inner_steps[1]]
    axes = [a for a, stride in enumerate(apart) if stride and extents[a] > 1]
    axis = max(axes, key=extents.__getitem__, default=-1)
    numbers = [axis, *places.numbers, *_encode_box(lens, steps), *_encode_box(inner, inner_steps)]
    work = 1 if axis < 0 else extents[axis]
    grain = max(1, GRAIN_BYTES * work // (prod(extents) * updates.shape.dtype.size))
    kind = updates.shape.dtype.size if how == "none" else updates.shape.dtype
    native_loop(e, name, f"put_{how}_{kind}", [out, places.indices, updates], [out], numbers, work, grain, updated=True)


def _encode_box(lens: Sequence[int], steps: Sequence[Sequence[int]]) -> list[int]:
    return [len(lens), *lens, *(n for s in steps for n in s)]


def integer_indices(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if not isinstance(inputs[1], Shape) or not inputs[1].dtype.is_integer or inputs[1].dtype not in NUMBERS:
        return No(f"integer indices are required, got {inputs[1]}")
    if inputs[1].dtype is dt.uint64:
        return No("indices of type uint64 may exceed int64")
    return only(NUMBERS, 1)(op, inputs, modules)


def _operands(e: CpuEmitter, args: Sequence[Value | None]) -> list[Value]:
    x, indices, *others = (a for a in args if a is not None)
    return [x, as_indices(e, indices), *others]


@offer(PLANS, Gathernd, when=integer_indices, name="native")
def emit_gathernd(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, indices = _operands(e, args)
    b, k, lead = op.batch_dims, indices.lens[-1], indices.lens[:-1]
    out = e.allocate(x.shape.dtype, [*lead, *x.lens[b + k :]])
    if not out.shape.elements():
        return out
    steps = [*x.strides[:b], *(0 for _ in lead[b:])], indices.strides[:-1]
    components = list(zip(x.lens[b : b + k], x.strides[b : b + k], strict=True))
    places = Places(indices, lead, steps, components, indices.strides[-1])
    gather(
        e,
        op.name,
        x,
        places,
        out,
        out.strides[: len(lead)],
        (x.lens[b + k :], x.strides[b + k :], out.strides[len(lead) :]),
    )
    return out


@offer(PLANS, GatherElements, when=integer_indices, name="native")
def emit_gather_elements(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, indices = _operands(e, args)
    out = e.allocate(x.shape.dtype, indices.lens)
    if out.shape.elements():
        gather(e, op.name, x, _along_axis(op, x, indices), out, out.strides, ((), (), ()))
    return out


def _along_axis(op: Any, x: Value, indices: Value, outside: int = FAIL) -> Places:
    """Returns places that keep the position of each index except along one axis."""
    axis = normalize(op.axis, len(x.lens))
    steps = [0 if a == axis else s for a, s in enumerate(x.strides)], indices.strides
    return Places(indices, indices.lens, steps, [(x.lens[axis], x.strides[axis])], outside=outside)


@offer(PLANS, *SCATTERS, when=integer_indices, name="native")
def emit_scatter(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, indices, updates = _operands(e, args)
    out = _storage(e, op, x, [indices, updates])
    if updates.shape.elements():
        places = _along_axis(op, out, indices, SKIP if op.skip_out_of_bounds else FAIL)
        scatter(e, op.name, out, places, updates, updates.strides, ((), (), ()), op.reduction)
    return _narrowed(e, out, x)


@offer(PLANS, *SCATTERNDS, when=integer_indices, name="native")
def emit_scatternd(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, indices, updates = _operands(e, args)
    out = _storage(e, op, x, [indices, updates])
    k, lead = indices.lens[-1], indices.lens[:-1]
    if updates.shape.elements():
        components = list(zip(out.lens[:k], out.strides[:k], strict=True))
        places = Places(indices, lead, ([0] * len(lead), indices.strides[:-1]), components, indices.strides[-1])
        rest = out.lens[k:], updates.strides[len(lead) :], out.strides[k:]
        scatter(e, op.name, out, places, updates, updates.strides[: len(lead)], rest, op.reduction)
    return _narrowed(e, out, x)


def _storage(e: CpuEmitter, op: Any, x: Value, others: Sequence[Value]) -> Value:
    """Returns x in writable memory: x itself if it has no other reader, else a copy (float32 to reduce narrow floats)."""
    if op.reduction != "none" and x.shape.dtype in NARROW:
        out = e.allocate(dt.float32, x.lens)
        if x.shape.elements():
            e.copy_into(x, out)
        return out
    alone = e.alone(op)
    if alone and e.may_overwrite(x, x.shape.dtype) and all(o.buffer is not x.buffer for o in others):
        return x
    return e.copy(x)


def _narrowed(e: CpuEmitter, out: Value, x: Value) -> Value:
    if out.shape.dtype is x.shape.dtype:
        return out
    narrow = e.allocate(x.shape.dtype, x.lens)
    if x.shape.elements():
        e.copy_into(out, narrow)
    return narrow


@offer(PLANS, MaxUnpool, when=integer_indices, name="native")
def emit_max_unpool(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits a scatter by flat indices, zero-padded to a larger `output_shape`."""
    if len(args) > 2 and args[2] is not None:
        raise Refused("the result's extents depend on data")
    x, indices = _operands(e, args)
    dims = [*x.lens[:2], *op.natural(x.lens[2:])]
    target = [int(d) for d in op.output_shape] or dims
    if len(target) != len(dims) or any(t < d for t, d in zip(target, dims, strict=True)):
        raise Refused(f"output_shape must be at least {dims}, got {target}")
    out = allocate_zeros(e, x.shape.dtype, dims)
    if x.shape.elements():
        places = Places(indices, x.lens, ([0] * len(x.lens), indices.strides), [(prod(dims), 1)], outside=NOT_NEGATIVE)
        scatter(e, op.name, out, places, x, x.strides, ((), (), ()), "none")
    if target == dims:
        return out
    whole = allocate_zeros(e, x.shape.dtype, target)
    if out.shape.elements():
        e.copy_into(out, whole.view_at(0, Shape(x.shape.dtype, dims, whole.strides)))
    return whole
