"""Sizes of tensors, and facts about their memory, as numbers."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core.types.dim import Dim

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
    """What torch knows of its memory: an instruction's own says nothing of it."""
    values = n.value if isinstance(n.value, (list, tuple)) else [n.value]
    if not all(n.graph.extents.knows(v) for v in values):
        n.unsupported(f"the place of its elements in memory depends on sizes that no tensor has yet: {n.value}")
    found = [n.graph.extents.of(v) for v in values]
    return found if isinstance(n.value, (list, tuple)) else found[0]


@converts_complex("sym_is_contiguous")
@converts("sym_is_contiguous")
def sym_is_contiguous(n: Node, x: Instruction | Complex, memory_format: Any = None) -> bool:
    found: bool | None = n.value.node.maybe_as_bool()
    if found is None:
        n.unsupported(f"whether its memory is contiguous depends on sizes: {n.value}")
    return bool(found)


def _real(x: Instruction | Complex) -> Instruction:
    return x.real if isinstance(x, Complex) else x


def _met(n: Node, found: Dim) -> Dim:
    """Returns an extent, which a symbol of torch that depends on data stands for from here on."""
    n.graph.extents.learn(n.value, found)
    return found
