"""Ops that move elements: concatenation, gathering, padding, and other ops that copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.concat import Concat
from mgx_core.ops.index import Gather
from mgx_core.ops.pad import Pad
from mgx_core.ops.resize import Resize
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import NEVER_OVERWRITTEN, Buffer, Value, packed_strides
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import TracedInt, dim_of, usual

from ..emitter import CpuEmitter
from ..layout import same_order
from ..native_library import native
from .native_loops import GRAIN_BYTES
from .offer import NUMBERS, constant_parameters, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


@offer(PLANS, Concat, when=only(NUMBERS), name="copy")
def emit_concat(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits copies of the operands that are not in place yet; see `concat_sharing` for memory shared by concatenations."""
    given = [a for a in args if a is not None]
    axis = op.axis % len(given[0].lens)
    chain = e.chain(len(given))
    written = e.storage_of_concat()
    if written is not None:
        _copy_operands(e, given, written, axis, 0)
        return written
    if chain is None:
        out = _allocate_concat(e, given, axis, sum(a.lens[axis] for a in given))
        _copy_operands(e, given, out, axis, 0)
        return out
    out = chain.storage or _allocate_concat(e, given, axis, chain.longest.shape.lens()[axis])
    _copy_operands(e, given, out, axis, chain.filled)
    out.buffer.readers = NEVER_OVERWRITTEN  # later concatenations of the chain still write to it
    chain.storage, chain.filled = out, max(chain.filled, len(given))  # last, since copies may be refused
    lens = list(out.lens)
    lens[axis] = sum(a.lens[axis] for a in given)
    return out.view_at(0, Shape(out.shape.dtype, lens, out.strides))


def _allocate_concat(e: CpuEmitter, given: Sequence[Value], axis: int, total: int) -> Value:
    """Allocates the concatenation, with the axis order of the largest operand."""
    largest = max(given, key=lambda a: (usual(a.shape.elements()), not a.shape.standard()))
    lens = list(largest.lens)
    lens[axis] = total
    return _like(e, largest, lens, largest.shape.dtype)


def _copy_operands(e: CpuEmitter, given: Sequence[Value], out: Value, axis: int, done: int) -> None:
    """Copies operands into the result unless kernels wrote them there; done: number of operands already copied."""
    start = 0
    for n, a in enumerate(given):
        place = out.view_at(start * out.strides[axis], Shape(a.shape.dtype, a.lens, out.strides))
        # an operand may be stored elsewhere in the buffer of the chain
        there = a.buffer is place.buffer and a.offset == place.offset
        if n >= done and a.shape.elements() and not there:
            e.copy_into(a, place)
        start += a.lens[axis]


def integer_indices(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    indices = inputs[1]
    if not isinstance(indices, Shape) or indices.dtype not in (dt.int32, dt.int64):
        return No(f"int32 or int64 indices are required, got {indices}")
    return only(NUMBERS, 1)(op, inputs, modules)


@offer(PLANS, Gather, when=integer_indices, name="native")
def emit_gather(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits a gather; out-of-bounds indices raise an error that names the step."""
    data, indices = args
    data, indices = e.row_major(data), e.row_major(indices)
    axis = op.axis % len(data.lens)
    lens = [*data.lens[:axis], *indices.lens, *data.lens[axis + 1 :]]
    out = e.allocate(data.shape.dtype, lens)
    outer, row = prod(data.lens[:axis]), prod(data.lens[axis + 1 :]) * data.shape.dtype.size
    count = indices.shape.elements()
    if 0 in (outer, row, count):
        raise Refused("an extent is 0")
    name, length = e.label("gather"), data.lens[axis]
    address = native().native_loop(f"gather_{row if row in (1, 2, 4, 8) else 'rows'}_{indices.shape.dtype}")

    def install(program: Any, ident: Callable[[Buffer], int]) -> None:
        where = [(ident(v.buffer), v.byte_offset) for v in (data, indices, out)]
        # in errors about out-of-bounds indices
        label = name if type(length) is TracedInt else f"{name} (axis of length {length})"
        program.add_loop(label, address, None, where, [length, count, row], outer * count, max(1, GRAIN_BYTES // row))

    e.step(name, [data.buffer, indices.buffer], [out.buffer], install, bytes=2 * outer * row * count)
    return out


@offer(PLANS, Pad, when=constant_parameters, name="loop")
def emit_pad(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits padding by constant amounts."""
    from ..jit.move import compile_pad

    x = args[0]
    lens = op.infer(Shape(x.shape.dtype, x.lens)).lens()
    if _changes_traced(x.lens, lens):
        from .traced_taps import padded

        return padded(e, op, x, lens)
    out = _like(e, x, lens, x.shape.dtype)
    e.loop(or_refused(compile_pad(op, x.shape, out.shape, e.engine)), [x], [out])
    return out


@offer(PLANS, Resize, when=constant_parameters, name="loop")
def emit_resize(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits resampling with constant parameters, axis by axis if that is cheaper."""
    from ..jit.element import computed
    from ..jit.move import resize_passes, resize_taps
    from ..jit.taps import compile_taps

    x = args[0]
    result = op.infer(Shape(x.shape.dtype, x.lens))
    lens = result.lens()
    if _changes_traced(x.lens, lens):
        from .traced_taps import resized

        return resized(e, op, x, lens)
    how: Literal["copy", "sum"] = "copy" if op.mode == "nearest" else "sum"
    taps = or_refused(resize_taps(op, x.shape, result, e.fast_math))
    passes = resize_passes(taps, x.shape, lens)
    for n, axes in enumerate(passes):
        last = n == len(passes) - 1
        dtype = result.dtype if last or how == "copy" else computed(result.dtype)
        out = _like(e, x, [lens[a] if last or a in axes else extent for a, extent in enumerate(x.lens)], dtype)
        some = {a: taps[a] for a in axes}
        e.loop(or_refused(compile_taps(x.shape, out.shape, some, how, e.engine, f"resize {op.mode}")), [x], [out])
        x = out
    return x


def _changes_traced(before: Sequence[int], after: Sequence[int]) -> bool:
    """Returns True if an axis has other extents afterwards, one of which is traced."""
    pairs = zip(before, after, strict=True)
    return any(TracedInt in (type(n), type(m)) and dim_of(n) != dim_of(m) for n, m in pairs)


def _like(e: CpuEmitter, x: Value, lens: Sequence[int], dtype: DType) -> Value:
    """Allocates a value of these extents with the axis order of `x`."""
    order = same_order(x)
    return e.allocate(dtype, lens, packed_strides(lens, sorted(range(len(lens)), key=lambda a: (-order[a], a))))
