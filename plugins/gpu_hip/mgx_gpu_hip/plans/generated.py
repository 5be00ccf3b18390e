"""Registers the generated kernels of single ops, by family."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from mgx_core import Kernels, Module
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Tile
from mgx_core.ops.columns import Col2im
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards
from mgx_core.ops.factorization import SolveTriangular
from mgx_core.ops.fill import DimensionsOf, DynamicRange, EyeLike
from mgx_core.ops.fourier import Dft
from mgx_core.ops.index import Gather, GatherElements, Gathernd, Onehot, Trilu
from mgx_core.ops.kv_cache import ConcatPastPresent
from mgx_core.ops.linear import Det, Dot
from mgx_core.ops.linear_attention import LinearAttention
from mgx_core.ops.local_response import Lrn
from mgx_core.ops.movement import Reverse, ReverseSequence
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.packing import UnpackInt4
from mgx_core.ops.pad import FixedPad, Pad
from mgx_core.ops.pooling import MaxPoolIndices, MaxUnpool, Pooling
from mgx_core.ops.ragged import ReduceSlices
from mgx_core.ops.random import RandomNormal, RandomUniform
from mgx_core.ops.reduce import Argmax, Argmin, ReduceAll, ReduceAny
from mgx_core.ops.resize import Resize
from mgx_core.ops.roi import Roialign
from mgx_core.ops.rotary import GqaRotaryEmbedding, RotaryEmbedding
from mgx_core.ops.sample import GridSample
from mgx_core.ops.scan import PrefixScanProd, PrefixScanSum
from mgx_core.ops.scatter import SCATTERNDS, SCATTERS, TensorScatter
from mgx_core.ops.select import Compress, Nonzero
from mgx_core.ops.slice import ScanSlice
from mgx_core.ops.topk import Topk
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import Results

from ..codegen import (
    argminmax,
    arithmetic,
    compaction,
    convolution,
    determinant,
    fourier,
    indexing,
    linear_attention,
    movement,
    pooling,
    products,
    random,
    resize,
    roi,
    sample,
    scan,
    scatter,
    slices,
    topk,
    triangular,
    unfold,
)
from ..codegen.generators import computing, copying, non_empty, spread, static
from ..emitter import GpuEmitter
from .offer import counting, emit_generated, generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


@offer(PLANS, DimensionsOf, name="generated")
def emit_dimensions(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Stores extents that are traced; others are constants of the program."""
    lens = args[0].lens[op.start : op.end]
    out = e.allocate(dt.int64, [len(lens)])
    if lens:
        e.kernel(lambda op, xs, ys, traits, modules: arithmetic.extents(lens, ys[0]), op, (), [], [out])
    return out


# movement
generated(PLANS, static(1, movement.pad), Pad, FixedPad)
generated(PLANS, static(1, movement.reverse), Reverse)
generated(PLANS, static(1, lambda op, x, y, traits: movement.tile(x, y, traits)), Tile)
generated(PLANS, copying(arithmetic.trilu), Trilu)
generated(PLANS, static(1, arithmetic.unpack_int4), UnpackInt4)

# gather
generated(PLANS, non_empty(static(2, indexing.gather)), Gather)
generated(PLANS, non_empty(static(2, indexing.gather_elements)), GatherElements)
generated(PLANS, non_empty(static(2, indexing.gathernd)), Gathernd)
generated(PLANS, non_empty(static(2, indexing.scan_slice)), ScanSlice)
generated(PLANS, static(2, indexing.reverse_sequence), ReverseSequence)
generated(PLANS, computing(lambda op, xs, ys, traits: indexing.onehot(op, xs[0], xs[2], ys[0], traits, 2)), Onehot)

# scatter
generated(PLANS, static(3, scatter.scatter), *SCATTERS)
generated(PLANS, static(3, scatter.scatternd), *SCATTERNDS)
generated(PLANS, copying(scatter.tensor_scatter), TensorScatter)
generated(PLANS, static(2, scatter.max_unpool), MaxUnpool)
generated(PLANS, static(3, scatter.concat_past_present), ConcatPastPresent)

# windows
generated(PLANS, computing(lambda op, xs, ys, traits: pooling.pooling(op, xs[0], ys[0], traits)), Pooling)
generated(PLANS, spread(pooling.max_pool_indices), MaxPoolIndices)
generated(PLANS, computing(static(1, unfold.fold)), Col2im)
generated(PLANS, computing(lambda op, xs, ys, traits: arithmetic.lrn(op, xs[0], ys[0], traits)), Lrn)
generated(PLANS, non_empty(computing(static(1, resize.resize))), Resize)
generated(PLANS, non_empty(spread(roi.roialign)), Roialign)
generated(PLANS, non_empty(spread(sample.grid_sample)), GridSample)

# products
generated(PLANS, spread(products.product), Dot)
generated(PLANS, computing(static(1, determinant.determinant)), Det)
generated(PLANS, computing(static(2, triangular.solve_triangular)), SolveTriangular)
generated(PLANS, computing(static(1, fourier.transform)), Dft)
generated(PLANS, spread(convolution.convolution), Convolution)
generated(PLANS, spread(convolution.backwards), ConvolutionBackwards)
generated(PLANS, computing(arithmetic.rotary), RotaryEmbedding, GqaRotaryEmbedding)
generated(PLANS, computing(linear_attention.linear_attention), LinearAttention)

# sorts, scans, reductions
generated(PLANS, computing(lambda op, xs, ys, traits: argminmax.argminmax(op, xs[0], ys[0], traits)), Argmax, Argmin)
generated(PLANS, computing(static(3, slices.reduce_slices)), ReduceSlices)
generated(PLANS, computing(static(1, scan.prefix_scan)), PrefixScanSum, PrefixScanProd)
generated(PLANS, computing(static(1, arithmetic.logical)), ReduceAny, ReduceAll)

WRITE_TOPK: Final = {
    read: computing(static(1, partial(topk.topk, read=read))) for read in ((True, True), (True, False), (False, True))
}


@offer(PLANS, Topk, name="generated", write=WRITE_TOPK[True, True])
def emit_topk(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits a kernel that leaves out the values or places if nothing reads them: a sort, or an order."""
    read = (True, True)
    if e.current is not None and op_of(e.current) is op:
        readers = [op_of(u) for u in e.current.users if u.users]
        items = {r.index if isinstance(r, GetTupleElem) else None for r in readers}
        if items in ({0}, {1}):
            e.uncacheable()  # depends on the readers
            read = (0 in items, 1 in items)
    return emit_generated(e, WRITE_TOPK[read], op, modules, args)


# data-dependent numbers of rows
counting(PLANS, spread(compaction.nonzero), Nonzero, lambda op: 1)
counting(PLANS, static(2, compaction.compress), Compress, lambda op: op.axis or 0)
counting(PLANS, computing(compaction.nonmaxsuppression), Nonmaxsuppression, lambda op: 0)

# sources
generated(PLANS, computing(random.random), RandomUniform, RandomNormal)
generated(PLANS, spread(arithmetic.dynamic_range), DynamicRange)
generated(PLANS, computing(lambda op, xs, ys, traits: arithmetic.eye_like(op, ys[0], traits)), EyeLike)
