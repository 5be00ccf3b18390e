"""Sizes, strides and storage queries of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim

from ..calls import only_computed_with
from ..converter import converts, converts_complex
from ..node import Complex, Node

__all__: list[str] = []


@converts_complex("sym_size")
@converts("sym_size")
def sym_size(n: Node, x: Instruction | Complex, dim: int | None = None) -> Dim | list[Dim]:
    dims = _real(x).shape.dims
    if dim is None:
        return list(dims)
    return _met(n, dims[n.axis(dim, len(dims))])


@converts_complex("sym_numel")
@converts("sym_numel")
def sym_numel(n: Node, x: Instruction | Complex) -> Dim:
    x = _real(x)
    return _met(n, n.size(x, range(x.shape.rank)))


@converts_complex("sym_stride", "sym_storage_offset")
@converts("sym_stride", "sym_storage_offset")
def memory(n: Node, x: Instruction | Complex, dim: int | None = None) -> Any:
    """Returns the result of a memory query from torch's metadata, since an instruction's layout does not reflect it."""
    values = n.value if isinstance(n.value, (list, tuple)) else [n.value]
    if not all(n.graph.extents.knows(v) for v in values):
        n.unsupported(f"its memory layout depends on sizes that are not known yet: {n.value}")
    found = [n.graph.extents.of(v) for v in values]
    return found if isinstance(n.value, (list, tuple)) else found[0]


@converts_complex("sym_is_contiguous")
@converts("sym_is_contiguous")
def sym_is_contiguous(n: Node, x: Instruction | Complex, memory_format: Any = None) -> bool:
    found: bool | None = n.value.node.maybe_as_bool()
    if found is None:
        n.unsupported(f"its contiguity depends on symbolic sizes: {n.value}")
    return bool(found)


def _real(x: Instruction | Complex) -> Instruction:
    return x.real if isinstance(x, Complex) else x


def _met(n: Node, found: Dim) -> Dim:
    """Binds a data-dependent symbol of torch to an extent, which is returned."""
    n.graph.extents.learn(n.value, found)
    return found


@converts("_local_scalar_dense", "item")
def item(n: Node, x: Instruction) -> Instruction | Dim:
    """Returns the only element, as an extent if torch uses it as a size or other integer."""
    value = n.reshape(x, ())
    if not isinstance(n.value, torch.SymInt) or only_computed_with(n.fx):
        return value
    number, zero = n.convert(value, dt.int64), n.literal(0, dt.int64)
    signs = (number, n.add("neg", number)) if n.graph.extents.may_be_negative(n.value) else (number,)
    counts = [n.reshape(n.add("max", sign, zero), (1,)) for sign in signs]
    empty = n.literal(np.zeros((1,) * len(counts) + (0,)), dt.uint8)
    carrier = n.add("broadcast_with_dims", empty, n.add("concat", *counts, n.literal([0], dt.int64), axis=0))
    n.graph.meet(carrier)
    above, *below = carrier.shape.dims[:-1]
    return _met(n, above - below[0] if below else above)
