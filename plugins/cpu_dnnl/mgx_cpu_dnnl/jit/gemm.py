"""Products of a matrix with packed weights, and pointwise work on the results before they are stored.

Weights lie in panels of as many columns as two vectors hold, each panel row after row: [panels, k, width]."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import dtype as dt
from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape

from .body import read
from .engine import Engine
from .gemm_loops import write
from .gemm_plan import BLOCK, DEPTH, FEW, GROUP, WEIGHTS, GemmPlan, even_part, key_of, panel_width, row_step
from .graph import Graph, Node, walk
from .kernel import JitKernel

__all__ = ["compile_gemm"]


def compile_gemm(
    a: Shape,
    columns: int,
    weights: DType,
    out: Shape,
    engine: Engine,
    body: Module | None = None,
    at: int = 0,
    extra: Sequence[Shape] = (),
    threads: int = 1,
    name: str = "gemm",
) -> JitKernel | No:
    """a [m, k] float32, contiguous in k, times packed weights [panels, k, width], to out [.., n], whose rows follow each other.

    columns: n; body: a module of pointwise ops and views whose parameter `at` is the product with out's extents, the others
    `extra`; threads: the number that the work is divided for.  Buffers: a, the full panels, the last panel if n fills none,
    extra.., out.
    """
    if a.rank != 2 or a.dtype is not dt.float32 or (a.strides()[1] != 1 and a.lens()[1] > 1):
        return No(f"rows {a} of a product")
    if weights not in WEIGHTS or not out.dtype.is_float:
        return No(f"weights of {weights} to {out.dtype}")
    m, k = a.lens()
    step = row_step(out.lens(), out.strides())
    if step is None or out.elements() != m * columns or (out.strides()[-1] != 1 and columns > 1):
        return No(f"results {out} of {m} rows and {columns} columns")
    if 0 in (m, k, columns):
        return No("an extent is 0")
    graph: Graph | None = None
    loads: list[tuple[Node, int, int]] = []
    if body is not None:
        try:
            shapes = [*extra[:at], Shape(dt.float32, out.dims), *extra[at:]]
            graph = read(body, shapes, out.lens())
        except Refused as error:
            return error.no
        if len(graph.outputs) != 1 or not graph.outputs[0].dtype.is_float:
            return No("results that are not floats, or more than one")
        for node in walk(graph.outputs):
            if node.kind == "load" and node.extra[0] != at:
                steps = node.extra[1]
                by_row = row_step(out.lens(), steps)
                if by_row is None:
                    return No("an operand that is not one strided matrix")
                loads.append((node, by_row, steps[-1]))
    lanes, width = engine.lanes, panel_width(engine)
    few = m <= FEW
    heights = (m,) if few else (12, 8) if engine.wide else (6, 4)
    chains = {1: 4, 2: 2}.get(m, 1) if few else 1
    plan = GemmPlan(
        weights, out.dtype, heights, chains, columns % width != 0, weights is dt.bfloat16 and not few, graph, loads, at,
        len(extra),
    )  # fmt: skip
    depth = k if few else even_part(k, DEPTH, 4)
    rows = m if few else even_part(m, max(heights[0], min(240, BLOCK // depth)), heights[0])
    panels = -(-columns // width)
    blocks = -(-m // rows)
    group = max(1, min(GROUP, panels * blocks // (4 * threads)))
    numbers = {
        "m": m, "n": columns, "k": k, "lda": a.strides()[0] if m > 1 else k, "ldo": step, "depth": depth, "rows": rows,
        "group": group, "panels": panels, "blocks": blocks, "groups": -(-panels // group),
    }  # fmt: skip
    for word, value in numbers.items():
        plan.slots[word] = plan.args.add(value)
    for j, (_, by_row, by_column) in enumerate(loads):
        plan.slots[f"r{j}"] = plan.args.add(by_row)
        plan.slots[f"c{j}"] = plan.args.add(by_column)
    sums = (rows + heights[0]) * group * width
    plan.slots["panel"] = plan.args.add(sums)
    plan.key = key_of(plan, lanes)
    return JitKernel(
        name=name,
        code=engine.function(plan.key, lambda c: write(c, plan)),
        work=blocks * -(-panels // group),
        grain=max(1, 32768 // max(1, rows * k * group * width)),
        args=tuple(plan.args.values),
        scratch_bytes=4 * (sums + (depth * width if plan.widened else 0)),
        inputs=2 + plan.ragged + len(extra),
        outputs=1,
        flops=2 * m * k * columns,
        bytes=4 * m * k + k * columns * weights.size + sum(s.element_space() * s.dtype.size for s in (out, *extra)),
    )
