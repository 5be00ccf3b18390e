"""Matrix products of any element type: rows of one operand times a panel of the other, with sums in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core.records import dataclass
from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import divides, larger

from .code import Code, V, i64
from .cost import grain_for
from .element import MEMORY, convert, from_memory, to_memory
from .engine import Engine
from .kernel import JitKernel
from .space import Args, items

__all__ = ["Line", "compile_product", "panel_width"]

ROWS: Final = 6  # rows of a register tile: with two vectors each they fill the registers of AVX2
OUTER: Final = 3  # minimum outer axes, so that products of fewer share code
MIN_WORK: Final = 1 << 19  # minimum operations per thread


@dataclass(frozen=True)
class Line:
    """One axis of a product: its extent, and the strides in elements of the left and right operand and the result."""

    extent: int
    left: int = 0
    right: int = 0
    out: int = 0


def panel_width(dtype: DType, lanes: int) -> int:
    """Returns the columns of a panel; the rows of the right operand are padded to a multiple of it."""
    return lanes if dtype.bits == 64 else 2 * lanes


def compile_product(
    dtype: DType,
    result: DType,
    outer: Sequence[Line],
    rows: Line,
    columns: int,
    depth: Line,
    taps: Sequence[Line],
    engine: Engine,
) -> JitKernel:
    """Returns a kernel for out[o, r, c] = sum over taps t and depth k of left[o, r, t, k] * right[o, t, k, c].

    dtype: of both operands and the sums (integers wrap around); result: of the output; the right operand has
    rows of `columns` elements, padded to whole panels, which follow each other over the depth and then the taps; the output's
    columns are contiguous.  Buffers: left, right, output.
    """
    width = panel_width(dtype, engine.lanes)
    outer = [*[Line(1)] * (OUTER - len(outer)), *outer]
    panels, blocks = -(-columns // width), -(-rows.extent // ROWS)
    args = Args()
    for line in outer:
        for value in (line.extent, line.left, line.right, line.out):
            args.add(value)
    for line in taps:
        for value in (line.extent, line.left):
            args.add(value)
    for value in (panels, blocks, rows.extent, rows.left, rows.out, columns, depth.extent, depth.left, panels * width):
        args.add(value)
    even = divides(width, columns)
    key = f"product {dtype} {result} {len(outer)} {len(taps)} {even} {depth.left == 1}"
    plan = _Plan(dtype, result, len(outer), len(taps), even, depth.left == 1, args)
    work, taken = panels * blocks, depth.extent
    for line in outer:
        work *= line.extent
    for line in taps:
        taken *= line.extent
    return JitKernel(
        name="product",
        code=engine.function(key, lambda c: _write(c, plan)),
        work=work,
        grain=grain_for(MIN_WORK, 2 * ROWS * width * taken),
        args=tuple(args.values),
        scratch_bytes=0,
        inputs=2,
        outputs=1,
        flops=2 * work // larger(1, panels * blocks) * rows.extent * columns * taken,
    )


@dataclass(frozen=True)
class _Plan:
    dtype: DType
    result: DType
    outer: int
    taps: int
    even: bool  # the columns fill their panels
    dense: bool  # the left operand's depth is contiguous
    args: Args


def _write(c: Code, p: _Plan) -> None:
    left, right, out = c.buffers(range(3))
    refs = p.args.load(c)
    outer = [refs[4 * i : 4 * i + 4] for i in range(p.outer)]
    at = 4 * p.outer
    taps = [refs[at + 2 * i : at + 2 * i + 2] for i in range(p.taps)]
    panels, blocks, rows, left_row, out_row, columns, depth, left_depth, wide = refs[at + 2 * p.taps :]
    elem, kept = MEMORY[p.dtype], MEMORY[p.result]
    lanes = c.lanes
    vectors = panel_width(p.dtype, lanes) // lanes
    zero, one = i64(0), i64(1)

    def times(a: V, n: int) -> V:
        return c.op("mul", a, i64(n))

    def item(index: list[V], _: V) -> None:
        a, b, o = left, right, out
        for i, (_, by_left, by_right, by_out) in zip(index[: p.outer], outer, strict=True):
            a = c.gep(a, c.op("mul", i, by_left), elem)
            b = c.gep(b, c.op("mul", i, by_right), elem)
            o = c.gep(o, c.op("mul", i, by_out), kept)
        column, row = times(index[-2], vectors * lanes), times(index[-1], ROWS)
        b = c.gep(b, column, elem)
        last = c.op("sub", c.op("sub", rows, row), one)
        ahead = [c.intrinsic("smin", last, i64(r)) for r in range(ROWS)]  # rows past the end repeat the last
        lines = [c.gep(a, c.op("mul", c.op("add", row, r), left_row), elem) for r in ahead]
        first = V("zeroinitializer", elem, lanes)

        def along(offset: V, k: V, sums: list[V], place: V) -> list[V]:
            step = k if p.dense else c.op("mul", k, left_depth)
            at = c.op("add", offset, step)
            panel = [c.load(c.gep(b, c.op("add", place, i64(v * lanes)), elem), elem, lanes) for v in range(vectors)]
            spread = [c.splat(c.load(c.gep(line, at, elem), elem, 0), lanes) for line in lines]
            made = [
                _accumulate(c, p.dtype, x, y, sums[r * vectors + v])
                for r, x in enumerate(spread)
                for v, y in enumerate(panel)
            ]
            return [*made, c.op("add", place, wide)]

        def over(level: int, offset: V, carried: list[V]) -> list[V]:
            if level == p.taps:
                return c.loop(zero, depth, 1, lambda k, s: along(offset, k, s[:-1], s[-1]), carried)[1:]
            extent, step = taps[level]
            return c.loop(
                zero, extent, 1, lambda t, s: over(level + 1, c.op("add", offset, c.op("mul", t, step)), s), carried
            )[1:]

        sums = over(0, zero, [*[first] * (ROWS * vectors), zero])[:-1]
        masks: list[V | None] = [None] * vectors
        if not p.even:
            rest = [c.op("sub", columns, c.op("add", column, i64(v * lanes))) for v in range(vectors)]
            masks = [c.first(c.intrinsic("smax", n, zero), lanes) for n in rest]

        def store(r: int) -> None:
            line = c.gep(o, c.op("mul", c.op("add", row, i64(r)), out_row), kept)
            for v in range(vectors):
                x = to_memory(c, convert(c, sums[r * vectors + v], p.dtype, p.result), p.result)
                c.store(c.gep(line, c.op("add", column, i64(v * lanes)), kept), x, masks[v])

        store(0)
        for r in range(1, ROWS):
            c.when(c.compare("sge", last, i64(r)), lambda r=r: store(r))  # type: ignore[misc]

    items(c, [*(o[0] for o in outer), panels, blocks], item)


def _accumulate(c: Code, dtype: DType, x: V, y: V, total: V) -> V:
    if dtype.is_float:
        return c.fma(from_memory(c, x, dtype), y, total)
    return c.op("add", c.op("mul", x, y), total)
