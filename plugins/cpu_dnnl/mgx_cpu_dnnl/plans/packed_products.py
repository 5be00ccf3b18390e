"""Products with constant weights as compiled loops: weights packed in panels, any pointwise epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from mgx_core import Instruction, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_core.records import dataclass
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, packed_strides
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import TracedInt

from ..emitter import CpuEmitter
from ..native_library import native
from ..packing import Derived, is_bfloat16
from ..recipes import aligned
from ..tile_panels import pack_panels
from .loops import allocate_results
from .offer import FLOATS

__all__ = [
    "EmitFused", "Panels", "Prepare", "extent", "group_of_product", "innermost", "packed_group", "packed_product",
    "product_with_panels",
]  # fmt: skip

# With AVX-512, oneDNN's blocked products are as fast outside this range of rows, unless the epilogue is expensive: its
# transcendental functions take twice the time of ours.  Within the range ours are faster, since they prefetch weights; for
# bfloat16, whose products take half the time, only weights that exceed the L2 cache.  Beyond it, they are faster for deep sums.
FASTER_ROWS: Final = (8, 4096)
MIN_DEPTH: Final = 192  # of float32 products with more rows
EXPENSIVE: Final = 14  # vector instructions of an expensive epilogue
MIN_TILED_DEPTH: Final = 8  # depth below which AMX tiles are mostly padding

Matrices: TypeAlias = Callable[[CpuEmitter, Any, Value, Value], tuple[Value, Value]]
# (pointwise body or None, index of its parameter that is the product, its other arguments) -> the body's results
EmitFused: TypeAlias = Callable[["Module | None", int, Sequence[Value]], list[Value]]
Prepare: TypeAlias = Callable[[CpuEmitter, Any, "Sequence[Value | None]"], EmitFused]


@dataclass
class Panels:
    """Constant weights [depth, columns] of a product, stored as panels of type `dtype`; make: packs them on emission.

    paired: both operands are bfloat16, and an element of a panel, "float32", is two weights of a column; tiled: both operands are
    bfloat16, and `make` returns the panels of AMX tiles and the initial sums.
    """

    depth: int
    columns: int
    dtype: DType
    make: Callable[[], list[Value]]
    paired: bool = False
    tiled: bool = False


def packed_product(
    e: CpuEmitter,
    a: Value,
    b: Value,
    body: Module | None = None,
    at: int = 0,
    extra: Sequence[Value] = (),
    axis: int = -1,
) -> list[Value]:
    """Emits `body` applied to the product of a [.., m, k] and constant b [k, n], float32 or bfloat16; returns the body's results.

    body: a pointwise module (None: only the product); at: index of its parameter that is the product; extra: its other
    arguments; axis: of n in the body's results, where it becomes innermost in memory.  Leading axes may differ from a's.
    Errors: Refused if oneDNN is faster or the product is unsupported.
    """
    from ..jit.gemm_plan import MAX_UNBLOCKED

    m, k, n = _extents_if_faster(e, a, b)
    if any(step == 0 and count > 1 for count, step in zip(b.lens[-2:], b.strides[-2:], strict=True)):
        array = e.constant(b)  # broadcast weights, as in models with synthetic weights
        assert array is not None
        b = e.literal(array[(0,) * (array.ndim - 2)])
    if _is_tiled(b.shape.dtype) and m > MAX_UNBLOCKED:
        weights = Panels(k, n, dt.bfloat16, lambda: _panels_of_tiles(e, b, k, n), tiled=True)
        return product_with_panels(e, a, weights, body, at, extra, axis)
    if _is_paired(b.shape.dtype) and m > MAX_UNBLOCKED:
        weights = Panels(k, n, dt.float32, lambda: _panels_of_pairs(e, b, k, n), paired=True)
        return product_with_panels(e, a, weights, body, at, extra, axis)
    kept = _panel_type(e, b, m)
    return product_with_panels(e, a, Panels(k, n, kept, lambda: _panels(e, b, k, n, kept)), body, at, extra, axis)


def product_with_panels(
    e: CpuEmitter, a: Value, weights: Panels, body: Module | None, at: int, extra: Sequence[Value], axis: int
) -> list[Value]:
    """Emits a product like `packed_product`, with weights that the caller packs.  Errors: Refused."""
    from ..jit.gemm import compile_gemm
    from ..jit.gemm_epilogue import Product
    from ..jit.gemm_plan import MAX_UNBLOCKED

    n, kept, paired, tiled = weights.columns, weights.dtype, weights.paired, weights.tiled
    m = a.shape.elements() // weights.depth
    if tiled:
        rows = _rows_of_tiles(a, m, weights.depth)
    else:
        rows = _rows_of_pairs(a, m, weights.depth) if paired else _rows(e, a, m, weights.depth)
    results = [_plain_result(a.shape, n)] if body is None else [innermost(o.shape, axis) for o in body.outputs]
    result = results[0]
    if extent(result, axis) != n or result.elements() != m * n or any(r.dims != result.dims for r in results):
        raise Refused(f"the epilogue does not preserve the {m} x {n} product: results {results}")
    extra = [_columns_contiguous(e, x, result, axis) for x in extra]
    others = [x.shape for x in extra]
    threads = e.threads or native().thread_count()
    product = Product(rows.shape, n, results, body, at, others, threads, axis)
    most = math.inf if weights.depth >= MIN_DEPTH and not paired else FASTER_ROWS[1]
    faster = not e.engine.wide or type(m) is TracedInt or m <= MAX_UNBLOCKED or FASTER_ROWS[0] <= m <= most
    if paired:
        faster = faster and 2 * n * weights.depth > native().cache_sizes().get("l2", 0)
    least = 0 if faster else EXPENSIVE

    def make() -> Any:
        if tiled:
            from ..jit.bfloat16_gemm import compile_bfloat16_gemm

            return compile_bfloat16_gemm(product, e.engine)
        return compile_gemm(product, kept, e.engine, least, paired)

    about = ("gemm", n, kept, at, threads, axis, paired, tiled)
    kernel = e.shared.kernels.kernel(body, about, [rows.shape, *results, *others], make)
    given = [rows, *weights.make(), *extra]
    outs = allocate_results(e, kernel, given, results)
    e.loop(kernel, given, outs, "gemm tiles" if tiled else "gemm")
    return outs


def _extents_if_faster(e: CpuEmitter, a: Value, b: Value) -> tuple[int, int, int]:
    """Returns m, k and n.  Errors: Refused if the product is unsupported or faster through oneDNN."""
    if not e.is_constant(b):
        raise Refused("the weights are not constant")
    return or_refused(_extents(a.shape, b.shape, e.engine))


@lru_cache(1024)
def _extents(a: Shape, b: Shape, engine: Any) -> tuple[int, int, int] | No:
    """Returns the part of `_extents_if_faster` that depends only on shapes; cached, since layers of a network repeat them."""
    from ..jit.gemm_plan import MAX_UNBLOCKED, panel_width

    *batch, k, n = b.lens()
    m = a.elements() // max(k, 1)
    if any(x != 1 and step for x, step in zip(batch, b.strides()[:-2], strict=True)):
        return No("batched weights are not supported")
    if b.dtype not in FLOATS or a.dtype is not b.dtype:
        return No(f"operands of one type, float32 or bfloat16, are required, got {a.dtype} and {b.dtype}")
    if 0 in (m, k, n):
        return No("an extent is 0")
    if _is_tiled(b.dtype):
        if MAX_UNBLOCKED < m < FASTER_ROWS[0] or (m > MAX_UNBLOCKED and k < MIN_TILED_DEPTH):
            return No(f"oneDNN is as fast for {m} rows of depth {k} of bfloat16")
    elif _is_paired(b.dtype):
        if m < FASTER_ROWS[0] or k % 2:
            return No(f"oneDNN is faster for {m} rows of depth {k} of bfloat16")
    elif m > MAX_UNBLOCKED and b.dtype is not dt.bfloat16 and not engine.wide and 2 * n < panel_width(engine):
        return No(f"{n} columns fill less than half a panel")
    return m, k, n


def _is_paired(dtype: DType) -> bool:
    """Returns True if the processor multiplies operands of a type in pairs."""
    return dtype is dt.bfloat16 and "avx512_bf16" in native().cpu_features()


def _is_tiled(dtype: DType) -> bool:
    """Returns True if the processor multiplies operands of a type in AMX tiles."""
    return dtype is dt.bfloat16 and "amx_bf16" in native().cpu_features()


def extent(result: Shape, axis: int) -> int:
    """Returns the extent of an axis; 0 if there is no such axis."""
    return result.lens()[axis] if -result.rank <= axis < result.rank else 0


@lru_cache(1024)
def innermost(result: Shape, axis: int) -> Shape:
    """Returns a dense shape with an axis innermost in memory; scalars are returned unchanged."""
    if not result.rank:
        return result
    order = [a for a in range(result.rank) if a != axis % result.rank]
    return Shape(result.dtype, result.lens(), packed_strides(result.lens(), [*order, axis % result.rank]))


@lru_cache(1024)
def _plain_result(a: Shape, n: int) -> Shape:
    return Shape(a.dtype, [*a.lens()[:-1], n])


def _rows(e: CpuEmitter, a: Value, m: int, k: int) -> Value:
    """Returns the left operand as one float32 matrix, contiguous along k.

    Errors: Refused if copying it would cost more than the product gains.
    """
    from ..jit.gemm_plan import MAX_UNBLOCKED

    if a.shape.dtype is not dt.float32:
        wide = e.allocate(dt.float32, a.lens)
        e.copy_into(a, wide)
        a = wide
    found = _as_matrix(a.shape, m, k)
    if found is None:
        if e.engine.wide and m > MAX_UNBLOCKED and a.strides[-1] != 1:
            raise Refused("oneDNN is faster for operands that are not contiguous along the depth")
        a = e.row_major(a)
        found = Shape(dt.float32, [m, k])
    return a.view_at(0, found)


def _rows_of_pairs(a: Value, m: int, k: int) -> Value:
    """Returns a bfloat16 operand as one matrix of pairs, "float32".  Errors: Refused if pairs are not adjacent in memory."""
    found = _as_matrix(a.shape, m, k)
    if found is None or a.offset % 2 or found.strides()[0] % 2:
        raise Refused(f"rows of an even length and stride are required, got {a.shape}")
    return Value(Shape(dt.float32, [m, k // 2], [found.strides()[0] // 2, 1]), a.buffer, a.offset // 2)


def _rows_of_tiles(a: Value, m: int, k: int) -> Value:
    """Returns a bfloat16 operand as one matrix.  Errors: Refused if its rows are not contiguous or have several strides."""
    found = _as_matrix(a.shape, m, k)
    if found is None:
        raise Refused(f"contiguous rows of one stride are required, got {a.shape}")
    return a.view_at(0, found.with_dtype(dt.bfloat16))


@lru_cache(1024)
def _as_matrix(a: Shape, m: int, k: int) -> Shape | None:
    """Returns a view [m, k] of the same memory, contiguous along k; None if there is none."""
    from ..jit.gemm_epilogue import row_step

    strides = a.strides()
    step = row_step(a.lens(), strides)
    if step is None or (strides[-1] != 1 and k > 1) or (step < k and m > 1):
        return None
    return Shape(dt.float32, [m, k], [max(step, k), 1])


def _panel_type(e: CpuEmitter, b: Value, m: int) -> DType:
    """Returns the type of the panels: bfloat16 if that is lossless and the product is bound by reading weights."""
    from ..jit.gemm_plan import MAX_UNBLOCKED

    if b.shape.dtype is dt.float32 and m <= MAX_UNBLOCKED:
        array = e.memory(b)
        if array is not None and is_bfloat16(array):
            return dt.bfloat16
    return b.shape.dtype


def _panels(e: CpuEmitter, b: Value, k: int, n: int, kept: DType) -> list[Value]:
    """Packs the weights; returns the full panels and the zero-padded last one, if any (twice if no panel is full)."""
    from ..jit.gemm_plan import panel_width

    width = panel_width(e.engine)
    full = n // width
    found: list[Value] = []
    if full:
        plain, wanted = _panel_layouts(b.shape, full, width)
        found.append(e.packed(b, plain, wanted, kept is dt.bfloat16))
    if n % width:

        def padded(array: Array) -> Derived:
            last = np.zeros((k, width), kept.numpy)
            last[:, : n % width] = array[(0,) * (array.ndim - 2)][:, full * width :]
            return Derived([array], last)

        value = e.made_of(b, ("last panel", width, kept), padded)
        found = [*found, value] if found else [value, value]
    return found


def _panels_of_pairs(e: CpuEmitter, b: Value, k: int, n: int) -> list[Value]:
    """Packs bfloat16 weights like `_panels`, with two adjacent weights of a column in place of a float."""
    from ..jit.gemm_plan import panel_width

    width = panel_width(e.engine)

    def packed(array: Array, begin: int, end: int) -> Derived:
        columns = array[(0,) * (array.ndim - 2)][:, begin:end]
        panels = -(-columns.shape[1] // width)
        wide = np.zeros((k, panels * width), array.dtype)
        wide[:, : columns.shape[1]] = columns
        return Derived([array], aligned(wide.reshape(k // 2, 2, panels, width).transpose(2, 0, 3, 1)))

    whole = n - n % width
    ranges = [(begin, end) for begin, end in ((0, whole), (whole, n)) if begin < end]
    found = [e.made_of(b, ("pairs", width, r), lambda array, r=r: packed(array, *r)) for r in ranges]  # type: ignore[misc]
    return found if whole else found * 2


def _panels_of_tiles(e: CpuEmitter, b: Value, k: int, n: int) -> list[Value]:
    """Returns bfloat16 weights in panels of AMX tiles, and the initial sums, zeros."""
    from ..jit.byte_gemm_loops import TILE

    def packed(array: Array) -> Derived:
        return Derived([array], pack_panels(array[(0,) * (array.ndim - 2)], TILE))

    return [e.made_of(b, "tiles", packed), e.literal(np.zeros(-(-n // 16) * 16, np.float32))]


@lru_cache(1024)
def _panel_layouts(b: Shape, full: int, width: int) -> tuple[Any, Any]:
    """Returns the layouts of the full panels: within the weights, and packed."""
    k = b.lens()[-2]
    by_row, by_column = b.strides()[-2:]
    steps = [width * max(by_column, 1), max(by_row, 1), max(by_column, 1)]
    desc = native().MemoryDesc
    return desc([full, k, width], "f32", steps), desc([full, k, width], "f32", [k * width, width, 1])


def _columns_contiguous(e: CpuEmitter, x: Value, result: Shape, axis: int) -> Value:
    """Returns an operand of the epilogue, copied to the result's layout if it is dense but strided along `axis`."""
    strided = x.shape.rank == result.rank and 0 not in x.strides and x.strides[axis] > 1
    return e.copy(x, result.strides()) if strided and x.shape.dims == result.dims and result.elements() > 1 else x


def packed_group(
    e: CpuEmitter,
    body: Module,
    args: Sequence[Value],
    kind: type[Operation] = Dot,
    matrices: Matrices = lambda e, op, a, b: (a, b),
    axis: int = -1,
) -> Results:
    """Emits a group of product, reshapes and pointwise epilogue as one loop.  Errors: Refused.

    kind: the product's op; matrices: converts its operands to those of `packed_product`; axis: of the columns in its result.
    """

    def prepared(e: CpuEmitter, op: Any, operands: Sequence[Value | None]) -> EmitFused:
        x, y = operands
        assert x is not None and y is not None
        a, b = matrices(e, op, x, y)
        _extents_if_faster(e, a, b)
        return lambda body, at, extra: packed_product(e, a, b, body, at, extra, axis)

    return group_of_product(e, body, args, (kind,), prepared)


def group_of_product(
    e: CpuEmitter, body: Module, args: Sequence[Value], kinds: tuple[type[Operation], ...], prepare: Prepare
) -> Results:
    """Emits a group of product, reshapes and pointwise epilogue as one loop.  Errors: Refused.

    kinds: ops of the product; prepare: returns, for the product's operands, the function that emits it with its epilogue.
    """
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    parts = [i for i in body if not (i.is_param or i.is_return or i.is_absent)]
    tail = parts[-1]
    anchor = next(i for i in parts if isinstance(i.op, kinds))
    if not isinstance(tail.op, PointwiseGroup) or list(body.outputs) != [tail]:
        raise Refused(f"the {anchor.op.name} is not followed by one pointwise group")
    for ins in parts[: parts.index(anchor)]:
        env[ins] = e.emit(ins, env)
    finish = prepare(e, anchor.op, [e.value_of(i, env) for i in anchor.inputs])
    product = anchor
    for ins in parts[parts.index(anchor) + 1 : -1]:
        if product in ins.inputs:
            if not ins.op.reshapes or anchor.op.product != "matrix":
                raise Refused(f"{ins.op.name} between the {anchor.op.name} and the pointwise group")
            product = ins
        else:
            env[ins] = e.emit(ins, env)
    if list(tail.inputs).count(product) != 1:
        raise Refused("the pointwise group must read the product exactly once")
    at = tail.inputs.index(product)
    extra = [e.value_of(i, env) for n, i in enumerate(tail.inputs) if n != at]
    found = finish(tail.modules[0], at, extra)
    return found[0] if len(found) == 1 else tuple(found)
