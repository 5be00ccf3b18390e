"""GEMM of float32, or of pairs of bfloat16, with packed weights and a fused pointwise epilogue.

Weights are packed as [panels, k, width]; a panel has two vectors of columns."""

from __future__ import annotations

from functools import partial

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import usual

from ..native_library import native
from .code import Code
from .cost import grain_for
from .engine import Engine, Function
from .gemm_epilogue import Product
from .gemm_plan import (
    BLOCK_DEPTH,
    CACHED_WEIGHTS,
    GROUP,
    LARGE_MATRIX,
    MAX_UNBLOCKED,
    MAX_WHOLE_DEPTH,
    SHALLOW_DEPTH,
    UNROLL,
    WEIGHTS,
    GemmPlan,
    block_elements,
    equal_part,
    key_of,
    max_tile_rows,
    panel_width,
)
from .kernel import JitKernel
from .native_gemm import native_numbers
from .native_loop import NativeLoop
from .separate_epilogue import describe_product, separate

__all__ = ["compile_gemm"]


def compile_gemm(
    product: Product, weights: DType, engine: Engine, least: int = 0, paired: bool = False
) -> JitKernel | No:
    """Returns a float32 product with packed weights [panels, k, width] as a kernel, or `No`.

    least: lowest cost of the epilogue for which this is faster than oneDNN (for pairs: of its functions with a division); paired:
    the elements of a and of the panels, float32, are pairs of bfloat16 along the depth.  Buffers: a, the full panels, the last
    panel if it is partial, extra.., outs..
    """
    outs, columns, threads = product.outs, product.columns, product.threads
    if weights not in WEIGHTS or not all(o.dtype.is_float for o in outs):
        return No(f"unsupported types: weights {weights}, results {[o.dtype for o in outs]}")
    epilogue = product.epilogue((dt.float32,), dt.float32)
    if isinstance(epilogue, No):
        return epilogue
    m, k = product.a.lens()
    if epilogue.graph is not None and not all(o.dtype.is_float for o in epilogue.graph.outputs):
        return No("the epilogue's results must be floats")
    cost = epilogue.dividing_cost if paired else epilogue.cost
    if cost < least:
        return No(f"oneDNN is as fast for {m} rows with an epilogue of {cost} instructions")
    lanes, width = engine.lanes, panel_width(engine)
    b = _blocks(m, k, columns, weights, threads, engine)
    plan = GemmPlan(
        epilogue, weights=weights, ragged=columns % width != 0, narrow=0 < columns % width <= lanes, widened=b.widened,
        whole=b.whole, abreast=b.few and not engine.wide, filled=not engine.wide and columns % lanes == 0,
        paired=paired,
    )  # fmt: skip
    # Results of shallow products that exceed the near caches: stores would wait for their lines, so these are prefetched.
    far = (
        not engine.wide
        and b.near
        and k <= SHALLOW_DEPTH
        and 4 * usual(m) * columns > native().cache_sizes().get("l2", 0)
    )
    numbers = {
        "m": m, "n": columns, "k": k, "lda": product.a.strides()[0] if m > 1 else k, "depth": b.depth, "rows": b.rows,
        "group": b.group, "panels": b.panels, "blocks": b.blocks, "groups": b.groups,
        "near": int(b.near), "ahead": b.ahead, "rows_first": int(not b.few and usual(m) * k > LARGE_MATRIX),
        "lines": -(-columns * 4 // 64) if far else 0,
    }  # fmt: skip
    plan.args.enter(numbers)
    epilogue.number(plan.args)
    sums = b.height * width if b.whole and not plan.abreast else b.rows * b.group * width
    plan.args.enter({"panel": sums})
    plan.key = key_of(plan, lanes)
    encoded = native_numbers(plan, numbers)
    code: Function | NativeLoop | None = None if encoded is None else NativeLoop(f"packed_product_{engine.isa}")
    apart = None
    if code is None:
        code = engine.found(plan.key, partial(_write, plan=plan))
        apart = separate(plan, numbers, product, engine) if code is None and not paired else None
    if apart is not None:
        code, encoded = apart.first, apart.args
    kernel = product.kernel(
        "gemm",
        code or engine.function(plan.key, partial(_write, plan=plan)),
        epilogue,
        plan.args.values if encoded is None else encoded,
        leading=2 + plan.ragged,
        work=b.blocks * b.groups,
        grain=grain_for(32768, b.rows * k * b.group * width),
        scratch_bytes=4 * (sums + (b.depth * width if plan.widened else 0)),
        weights=k * columns * weights.size,
        taps=2 * k if paired else 0,
    )
    if apart is not None:
        apart.install(kernel, product, describe_product(plan, product, kernel))
    return kernel


class _Blocks(NamedTuple):
    """Blocking of a product: blocks of `rows` rows in tiles of at most `height`, groups of `group` of the `panels`, and blocks of
    the depth; few, near, widened, whole, ahead: as in the plan."""

    few: bool
    near: bool
    widened: bool
    whole: bool
    height: int
    depth: int
    rows: int
    blocks: int
    panels: int
    group: int
    ahead: int

    @property
    def groups(self) -> int:
        return -(-self.panels // self.group)


def _blocks(m: int, k: int, columns: int, weights: DType, threads: int, engine: Engine) -> _Blocks:
    """Returns the blocking of a product [m, k] times [k, columns] for the caches and threads."""
    width, few = panel_width(engine), m <= MAX_UNBLOCKED
    whole_m, m = m, m if few else usual(m)
    height = min(max_tile_rows(engine.wide), m)
    widened = weights is dt.bfloat16 and not few
    whole = few or (k <= MAX_WHOLE_DEPTH and not widened)
    panels = -(-columns // width)
    near = whole and not few and 4 * k * width * panels <= CACHED_WEIGHTS
    depth = k if whole else equal_part(k, BLOCK_DEPTH, 4)
    most = min(240, block_elements() // depth, m // (4 * threads) if near else m)
    rows = m if few else equal_part(m, max(height, most), height)
    blocks = -(-m // rows)
    group = panels if near else max(1, min(GROUP, panels * blocks // (4 * threads)))
    items = blocks * -(-panels // group)
    if items < 4 * threads and items % threads and not few:  # few work items: the same number for each thread
        rows = equal_part(m, max(height, m // threads), height)
        blocks = -(-m // rows)
    trips = 4 * width // 64 * UNROLL  # cache lines of a panel per iteration of the innermost loop
    ahead = 0 if near or few else max(1, min(4, -(-trips // max(1, min(rows, m) // height))))
    blocks = -(-whole_m // rows)
    return _Blocks(few, near, widened, whole, height, depth, rows, blocks, panels, group, ahead)


def _write(c: Code, plan: GemmPlan) -> None:
    """Generates the code; imports the generator lazily, since most processes never need it."""
    from .gemm_loops import write

    write(c, plan)
