"""Copies that interleave a few long rows or deinterleave them: planar images to packed pixels, and back."""

from __future__ import annotations

import math
from typing import Final

from mgx_core.named_tuples import NamedTuple
from mgx_core.types.shape import Shape

from .code import Code, V, i64
from .cost import grain_for
from .element import MEMORY
from .engine import Engine, Function
from .kernel import JitKernel
from .native_loop import NativeLoop
from .space import Args, Axis, axes_of, items, merged

__all__ = ["compile_interleave"]

BLOCK: Final = 4096  # elements of a row per work item
MAX_ROWS: Final = 7  # maximum rows
NATIVE_SIZE: Final = 4  # element size in bytes, and maximum rows, that the native module interleaves (`copy_loops.cpp`)
NATIVE_ROWS: Final = 4


class _Plan(NamedTuple):
    rows: int
    args: Args
    extents: list[int]  # arguments with the extents of the outer axes and of the rows
    steps: list[tuple[int, int]]  # arguments with the strides of both operands along the outer axes
    row_stride: int  # the argument with the row stride
    elem: str
    back: bool  # deinterleaves: the rows are in the result


def compile_interleave(source: Shape, target: Shape, engine: Engine, name: str) -> JitKernel | None:
    """Returns a kernel that interleaves a few contiguous rows, or deinterleaves into such rows; None for other copies.

    None, too, if LLVM would have to compile it in a process that need not load LLVM.

    One operand is contiguous along the long axis, the other one along the short axis.
    """
    axes = axes_of(target.lens(), [source.strides(), target.strides()])
    axes = merged(sorted(axes, key=lambda a: -a.steps[1]))
    if len(axes) < 2 or any(step < 0 for a in axes for step in a.steps):
        return None
    short = next((a for a in axes if a.steps[0] == 1), axes[-1])
    back = short is not axes[-1] and _is_interleaved(axes[-1], short, engine.lanes, 1)
    if back:
        outer, long = [a for a in axes[:-1] if a is not short], axes[-1]
    elif _is_interleaved(axes[-2], axes[-1], engine.lanes, 0):
        *outer, long, short = axes
    else:
        return None
    args = Args()
    row_stride = short.steps[1 if back else 0]
    if source.dtype.size == NATIVE_SIZE and short.extent <= NATIVE_ROWS and not back:
        code: Function | NativeLoop = NativeLoop(f"weave_{short.extent}")
        for value in (len(outer), long.extent, row_stride, *(n for a in outer for n in (a.extent, *a.steps))):
            args.add(value)
    else:
        extents = [args.add(a.extent) for a in (*outer, long)]
        steps = [(args.add(a.steps[0]), args.add(a.steps[1])) for a in outer]
        plan = _Plan(short.extent, args, extents, steps, args.add(row_stride), MEMORY[source.dtype], back)
        key = f"{'unweave' if back else 'weave'} {plan.rows} {plan.elem} {len(outer)}"
        found = engine.found(key, lambda c: _write(c, plan))
        if found is None and engine.interpreter is not None:
            return None  # the native module's copies need no LLVM
        code = found or engine.function(key, lambda c: _write(c, plan))
    elements = math.prod(a.extent for a in axes)
    work = elements // (long.extent * short.extent) * -(-long.extent // BLOCK)
    return JitKernel(
        name=name,
        code=code,
        work=work,
        grain=grain_for(6 * BLOCK * work, elements),
        args=tuple(args.values),
        scratch_bytes=0,
        inputs=1,
        outputs=1,
        bytes=2 * elements * source.dtype.size,
    )


def _is_interleaved(long: Axis, short: Axis, lanes: int, rows: int) -> bool:
    """Returns True if operand `rows` has contiguous rows and the other operand has them interleaved."""
    pixels = 1 - rows
    fits = (
        type(short.extent) is int and 1 < short.extent <= MAX_ROWS and long.extent >= lanes and short.steps[rows] != 0
    )
    return fits and short.steps[pixels] == long.steps[rows] == 1 and long.steps[pixels] == short.extent


def _write(c: Code, plan: _Plan) -> None:
    n, elem = c.lanes, plan.elem
    bases = c.buffers(range(2))
    refs = plan.args.load(c)
    *outer, long = (refs[a] for a in plan.extents)
    block = i64(BLOCK)
    blocks = c.op("udiv", c.op("add", long, i64(BLOCK - 1)), block)
    last = c.op("sub", long, i64(n))

    def item(index: list[V], _: V) -> None:
        source, target = bases
        for i, (read, written) in zip(index, plan.steps, strict=False):
            source = c.gep(source, c.op("mul", i, refs[read]), elem)
            target = c.gep(target, c.op("mul", i, refs[written]), elem)
        begin = c.op("mul", index[-1], block)
        end = c.intrinsic("smin", c.op("add", begin, block), long)

        def some(i: V, _: list[V]) -> list[V]:
            i = c.intrinsic("smin", i, last)  # the last vector may overlap the one before
            offsets = [c.op("mul", refs[plan.row_stride], i64(r)) for r in range(plan.rows)]
            pixel = c.op("mul", i, i64(plan.rows))
            if plan.back:
                pixels = c.load(c.gep(source, pixel, elem), elem, n * plan.rows)
                at = c.gep(target, i, elem)
                for r, offset in enumerate(offsets):
                    row = c.shuffle(pixels, pixels, range(r, n * plan.rows, plan.rows))
                    c.store(c.gep(at, offset, elem), row)
            else:
                at = c.gep(source, i, elem)
                rows = [c.load(c.gep(at, offset, elem), elem, n) for offset in offsets]
                c.store(c.gep(target, pixel, elem), _interleave(c, rows))
            return []

        c.loop(begin, end, n, some)

    items(c, [*outer, blocks], item)


def _interleave(c: Code, rows: list[V]) -> V:
    """Interleaves the elements of one vector of each row."""
    count, n = len(rows), rows[0].n
    order = [lane % count * n + lane // count for lane in range(count * n)]
    while len(rows) > 1:
        rows = [*rows, *rows[-1:] * (len(rows) % 2)]
        rows = [c.shuffle(a, b, range(2 * a.n)) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    return c.shuffle(rows[0], rows[0], order)
