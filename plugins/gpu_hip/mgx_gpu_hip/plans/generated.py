"""Registers the generated kernels of single ops, by family."""

from __future__ import annotations

from mgx_core import Kernels
from mgx_core.ops.broadcast import Tile
from mgx_core.ops.columns import Col2im
from mgx_core.ops.concat import Concat
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards
from mgx_core.ops.fill import DynamicRange, EyeLike
from mgx_core.ops.index import Gather, GatherElements, Gathernd, Onehot, Trilu
from mgx_core.ops.kv_cache import ConcatPastPresent
from mgx_core.ops.linear import Det, Dot
from mgx_core.ops.local_response import Lrn
from mgx_core.ops.movement import Reverse, ReverseSequence
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.pad import FixedPad, Pad
from mgx_core.ops.pooling import MaxPoolIndices, MaxUnpool, Pooling
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

from ..codegen import arithmetic, extremes, indexing, products, selection, unfold
from ..codegen import convolution as convolving
from ..codegen import determinant as determining
from ..codegen import movement as moving
from ..codegen import pooling as windows
from ..codegen import random as drawing
from ..codegen import resize as resizing
from ..codegen import roi as regions
from ..codegen import sample as sampling
from ..codegen import scan as scanning
from ..codegen import scatter as scattering
from ..codegen import topk as choosing
from ..codegen.writing import carrying, computing, picking, spread, static
from .offer import counting, generated

__all__ = ["PLANS"]

PLANS = Kernels("gpu")

# movement
generated(PLANS, static(1, moving.pad), Pad, FixedPad)
generated(PLANS, static(1, moving.reverse), Reverse)
generated(PLANS, static(1, lambda op, x, y, traits: moving.tile(x, y, traits)), Tile)
generated(PLANS, carrying(lambda op, xs, ys, traits: moving.concat(op, xs, ys[0], traits)), Concat)
generated(PLANS, carrying(arithmetic.trilu), Trilu)

# gather
generated(PLANS, picking(static(2, indexing.gather)), Gather)
generated(PLANS, picking(static(2, indexing.gather_elements)), GatherElements)
generated(PLANS, picking(static(2, indexing.gathernd)), Gathernd)
generated(PLANS, picking(static(2, indexing.scan_slice)), ScanSlice)
generated(PLANS, static(2, indexing.reverse_sequence), ReverseSequence)
generated(PLANS, computing(lambda op, xs, ys, traits: indexing.onehot(op, xs[0], xs[2], ys[0], traits, 2)), Onehot)

# scatter
generated(PLANS, static(3, scattering.scatter), *SCATTERS)
generated(PLANS, static(3, scattering.scatternd), *SCATTERNDS)
generated(PLANS, carrying(scattering.tensor_scatter), TensorScatter)
generated(PLANS, static(2, scattering.max_unpool), MaxUnpool)
generated(PLANS, static(3, scattering.concat_past_present), ConcatPastPresent)

# windows
generated(PLANS, computing(lambda op, xs, ys, traits: windows.pooling(op, xs[0], ys[0], traits)), Pooling)
generated(PLANS, spread(windows.max_pool_indices), MaxPoolIndices)
generated(PLANS, computing(static(1, unfold.fold)), Col2im)
generated(PLANS, computing(lambda op, xs, ys, traits: arithmetic.lrn(op, xs[0], ys[0], traits)), Lrn)
generated(PLANS, picking(computing(static(1, resizing.resize))), Resize)
generated(PLANS, picking(spread(regions.roialign)), Roialign)
generated(PLANS, picking(spread(sampling.grid_sample)), GridSample)

# products
generated(PLANS, spread(products.product), Dot)
generated(PLANS, computing(static(1, determining.determinant)), Det)
generated(PLANS, spread(convolving.convolution), Convolution)
generated(PLANS, spread(convolving.backwards), ConvolutionBackwards)
generated(PLANS, computing(arithmetic.rotary), RotaryEmbedding, GqaRotaryEmbedding)

# sorts, scans, arg reductions
generated(PLANS, computing(lambda op, xs, ys, traits: extremes.extreme(op, xs[0], ys[0], traits)), Argmax, Argmin)
generated(PLANS, computing(static(1, choosing.topk)), Topk)
generated(PLANS, computing(static(1, scanning.prefix_scan)), PrefixScanSum, PrefixScanProd)
generated(PLANS, computing(static(1, arithmetic.logical)), ReduceAny, ReduceAll)

# data-dependent numbers of rows
counting(PLANS, spread(selection.nonzero), Nonzero, lambda op: 1)
counting(PLANS, static(2, selection.compress), Compress, lambda op: op.axis or 0)
counting(PLANS, computing(selection.nonmaxsuppression), Nonmaxsuppression, lambda op: 0)

# sources
generated(PLANS, computing(drawing.random), RandomUniform, RandomNormal)
generated(PLANS, spread(arithmetic.dynamic_range), DynamicRange)
generated(PLANS, computing(lambda op, xs, ys, traits: arithmetic.eye_like(op, ys[0], traits)), EyeLike)
