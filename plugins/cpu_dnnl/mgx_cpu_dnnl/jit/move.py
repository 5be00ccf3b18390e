"""Ops that pick and place elements as kernels: gather, pad, resize, pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ops.pad import Pad
from mgx_core.ops.pooling import Pooling
from mgx_core.ops.resize import Axis as ResizeAxis
from mgx_core.ops.resize import Resize
from mgx_core.ops.scalar import convert
from mgx_core.types.shape import Shape

from .code import Code, V
from .engine import Engine
from .kernel import JitKernel
from .primitive import raw_type
from .space import Args, items
from .taps import GRAIN, Taps, compile_taps

__all__ = ["compile_gather", "compile_pad", "compile_pooling", "compile_resize"]


def compile_pad(op: Pad, x: Shape, out: Shape, engine: Engine) -> JitKernel | No:
    """Borders of fixed widths (`op.pads`) in every mode; widths below 0 crop."""
    rank = x.rank
    if len(op.pads) != 2 * rank:
        return No("pads that are known at run time only")
    taps = {}
    for axis, n in enumerate(x.lens()):
        begin, end = int(op.pads[axis]), int(op.pads[axis + rank])
        if not begin and not end:
            continue
        if op.mode == "constant":
            rows = [[i - begin] if 0 <= i - begin < n else [] for i in range(n + begin + end)]
        else:
            along = Pad(pads=(begin, end), mode=op.mode).compute(np.arange(n))
            rows = [[int(i)] for i in along]
        taps[axis] = Taps(rows)
    value = convert(np.asarray(op.value), x.dtype)
    return compile_taps(x, out, taps, "copy", engine, "pad", value)


def compile_resize(op: Resize, x: Shape, out: Shape, engine: Engine) -> JitKernel | No:
    """Resampling with the factors or sizes of the op itself."""
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        return No("crop and resize")
    lens, wanted = x.lens(), out.lens()
    axes = op.resized(x.rank)
    factors = list(op.scales)
    if not factors:
        if op.keep_aspect_ratio_policy == "stretch":
            factors = [wanted[a] / lens[a] if lens[a] else 1.0 for a in axes]
        else:
            factors = [op.aspect([lens[a] for a in axes], [int(s) for s in op.sizes])] * len(axes)
    taps = {}
    for axis, factor in zip(axes, factors, strict=True):
        plan = ResizeAxis(lens[axis], wanted[axis], factor, 0.0, 1.0)
        if plan.size == plan.out and factor == 1.0:
            continue
        if plan.size == 0 or plan.size * plan.out > 1 << 22:
            return No(f"an axis from {plan.size} to {plan.out} elements")
        at = op.source(plan)
        if op.mode == "nearest":
            index = np.clip(op.nearest(at, factor), 0, plan.size - 1)
            taps[axis] = Taps([[int(i)] for i in index])
        else:
            matrix = op.along(np.eye(plan.size), 0, at, plan)
            rows = [np.flatnonzero(row) for row in matrix]
            taps[axis] = Taps(
                [[int(i) for i in row] for row in rows],
                [[float(v) for v in matrix[r, row]] for r, row in enumerate(rows)],
            )
    if op.mode != "nearest" and not x.dtype.is_float:
        return No(f"{op.mode} resampling of {x.dtype}")
    return compile_taps(x, out, taps, "copy" if op.mode == "nearest" else "sum", engine, f"resize {op.mode}")


def compile_pooling(op: Pooling, x: Shape, out: Shape, engine: Engine) -> JitKernel | No:
    """Maxima and averages of windows, for any layout."""
    if op.mode == "lpnorm":
        return No("Lp norms")
    spatial = x.lens()[2:]
    if op.dyn_global:
        whole = [Taps([list(range(n))], [[1.0 / n] * n] if op.mode == "average" else None) for n in spatial]
        return compile_taps(
            x, out, {i + 2: t for i, t in enumerate(whole)}, "sum" if op.mode == "average" else "max", engine, "pooling"
        )
    lengths, stride, dilation = op.numbers(len(spatial))
    counts = [int(c) for c in op.counts(spatial)]
    begins, ends, _ = op.around(spatial, counts)
    taps = {}
    for axis, (n, k, s, d, b, e, count) in enumerate(
        zip(spatial, lengths, stride, dilation, begins, ends, counts, strict=True)
    ):
        rows, weights = [], []
        for i in range(count):
            places = [i * s - b + t * d for t in range(k)]
            inside = [p for p in places if 0 <= p < n]
            counted = sum(-b <= p < n + e for p in places) if op.count_include_pad else len(inside)
            rows.append(inside)
            weights.append([1.0 / max(counted, 1)] * len(inside))
        taps[axis + 2] = Taps(rows, weights if op.mode == "average" else None)
    return compile_taps(x, out, taps, "sum" if op.mode == "average" else "max", engine, f"pooling {op.mode}")


# gather ----------------------------------------------------------------------------------------------------------------


def compile_gather(
    axis: int, data: Shape, indices: Shape, out: Shape, engine: Engine, name: str = "gather"
) -> JitKernel | No:
    """Slices of data along `axis` at int32 or int64 positions; buffers: data, indices, output, and an error flag.

    The flag, int32 [1], is set to 1 where a position lies outside -n..n-1 (its slice is then one inside); it is never
    cleared.
    """
    raw = raw_type(data.dtype)
    if raw is None or data.dtype is not out.dtype or indices.dtype not in (dt.int32, dt.int64):
        return No(f"no loop gathers {data.dtype} by {indices.dtype}")
    axis %= data.rank
    lens, steps = data.lens(), data.strides()
    if lens[axis] == 0 and out.elements():
        return No("an empty axis")
    rank = indices.rank
    rows: list[tuple[int, int, int, int]] = []  # extent, data step, index step, out step
    for o, (n, step) in enumerate(zip(out.lens(), out.strides(), strict=True)):
        if n == 1:
            continue
        if axis <= o < axis + rank:
            rows.append((n, 0, indices.strides()[o - axis], step))
        else:
            rows.append((n, steps[o if o < axis else o - rank + 1], 0, step))
    rows.sort(key=lambda r: -r[3])
    merged: list[tuple[int, int, int, int]] = []
    for row in rows:
        last = merged[-1] if merged else None
        if last is not None and all(last[k] == row[k] * row[0] for k in (1, 2, 3)):
            merged[-1] = (last[0] * row[0], *row[1:])
        else:
            merged.append(row)
    merged = merged or [(1, 0, 0, 1)]
    args = Args()
    slots = [[args.add(v) for v in row] for row in merged]
    length, step = args.add(lens[axis]), args.add(steps[axis])
    pattern = [tuple(v if v < 2 else 2 for v in row[1:]) for row in merged]
    key = f"gather {raw} {indices.dtype} {pattern}"
    elements = out.elements()
    inner = merged[-1][0]
    return JitKernel(
        name=name,
        code=engine.function(key, lambda c: _write_gather(c, pattern, slots, length, step, raw, indices.dtype)),
        work=elements // inner if elements else 0,
        grain=max(1, GRAIN // max(1, inner)),
        args=tuple(args.values),
        scratch_bytes=0,
        inputs=2,
        outputs=2,
        bytes=2 * elements * out.dtype.size + indices.bytes(),
    )


def _write_gather(
    c: Code,
    pattern: Sequence[tuple[int, ...]],
    slots: Sequence[Sequence[int]],
    length_at: int,
    step_at: int,
    raw: dt.DType,
    index_type: dt.DType,
) -> None:
    elem = f"i{raw.bits}"
    kind = f"i{index_type.bits}"
    zero = V("0", "i64", 0)
    buffers, args = V("%buffers", "ptr", 0), V("%args", "ptr", 0)
    data, index, out, flag = (c.load(c.gep(buffers, i, "ptr"), "ptr", 0) for i in range(4))
    numbers = [[c.load(c.gep(args, i, "i64"), "i64", 0) for i in row] for row in slots]
    length = c.load(c.gep(args, length_at, "i64"), "i64", 0)
    stride = c.load(c.gep(args, step_at, "i64"), "i64", 0)

    def place(x: V, mask: V | None) -> V:
        """Positions counted from the front, and the flag where they lie outside."""
        x = x if kind == "i64" else c.cast("sext", x, "i64")
        n = c.splat(length, x.n)
        x = c.select(c.compare("slt", x, c.const(0, x)), c.op("add", x, n), x)
        bad = c.compare("uge", x, n)
        if x.n:
            if mask is not None:
                bad = c.op("and", bad, mask)
            bits = c.make(f"bitcast {bad.type} {bad.ref} to i{x.n}", f"i{x.n}", 0)
            some = c.make(f"icmp ne i{x.n} {bits.ref}, 0", "i1", 0)
        else:
            some = bad
        c.when(some, lambda: c.store(flag, V("1", "i32", 0)))
        return c.op("mul", c.select(bad, c.const(0, x), x), c.splat(stride, x.n))

    def row(at: list[V]) -> None:
        source, target, positions = data, out, index
        for axis, i in enumerate(at):
            _, data_step, index_step, out_step = numbers[axis]
            moves_data, moves_index, _ = pattern[axis]
            if moves_data:
                source = c.gep(source, c.op("mul", i, data_step), elem)
            if moves_index:
                positions = c.gep(positions, c.op("mul", i, index_step), kind)
            target = c.gep(target, c.op("mul", i, out_step), elem)
        extent, data_step, index_step, out_step = numbers[-1]
        moves_data, moves_index, moves_out = pattern[-1]
        if not moves_index:
            source = c.gep(source, place(c.load(positions, kind, 0), None), elem)
        n = c.lanes

        def steps(step: V, lanes: int) -> V:
            return c.op("mul", c.iota("i64", lanes), c.splat(step, lanes))

        def vector(i: V, lanes: int, mask: V | None) -> None:
            if moves_index:
                first = c.gep(positions, c.op("mul", i, index_step), kind)
                if moves_index == 1:
                    x = c.load(first, kind, lanes, mask)
                else:
                    x = c.gather(first, steps(index_step, lanes), kind, mask)
                value = c.gather(source, place(x, mask), elem, mask)
            elif moves_data == 1:
                value = c.load(c.gep(source, i, elem), elem, lanes, mask)
            elif moves_data:
                value = c.gather(c.gep(source, c.op("mul", i, data_step), elem), steps(data_step, lanes), elem, mask)
            else:
                value = c.splat(c.load(source, elem, 0), lanes)
            here = c.gep(target, c.op("mul", i, out_step), elem)
            if moves_out == 1:
                c.store(here, value, mask)
            else:
                c.scatter(here, steps(out_step, lanes), value, mask)

        def whole(i: V, _: list[V]) -> list[V]:
            vector(i, n * 4, None)
            return []

        def masked(i: V, _: list[V]) -> list[V]:
            vector(i, n, c.first(c.op("sub", extent, i), n))
            return []

        begin = zero
        if moves_data == 1 and moves_out == 1:
            begin = c.loop(zero, extent, n * 4, whole, ahead=n * 4 - 1)[0]
        c.loop(begin, extent, n, masked)

    outer = [row_numbers[0] for row_numbers in numbers[:-1]]
    items(c, outer or [V("1", "i64", 0)], lambda at, _: row(at if outer else []))
