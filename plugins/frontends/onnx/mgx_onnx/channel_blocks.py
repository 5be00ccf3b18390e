"""Blocks of channels in files that onnxruntime saved after all its optimizations (domain com.microsoft.nchwc)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mgx_core.log import log

from .messages import onnx

__all__ = ["BLOCKED", "block_of"]

BLOCKED: Final = "com.microsoft.nchwc"
KINDS: Final = onnx.AttributeProto
WITH_GRAPHS: Final = (KINDS.UNDEFINED, KINDS.GRAPH, KINDS.GRAPHS)  # undefined: old files do not state the type


def block_of(graph: onnx.GraphProto) -> int:
    """Returns the channels per block in the filters of a graph and its sub-graphs; 0 if no node has the domain.

    The file does not say it: it is meant for the machine that wrote it.  A filter with channels that sixteen does not divide
    was made for blocks of eight; if there is none, the blocks are those that onnxruntime uses on this machine, with a warning.
    """
    filters: list[str] = []
    dims: dict[str, Sequence[int]] = {}
    blocked = False
    for inner in _graphs_of(graph):
        dims.update((t.name, t.dims) for t in inner.initializer)
        for node in inner.node:
            if node.domain == BLOCKED:
                blocked = True
                filters += node.input[1:2]
    if not blocked:
        return 0
    if any(dims[name][0] % 16 for name in filters if dims.get(name)):
        return 8
    assumed = _block_here()
    log.warning(
        "the model was saved by onnxruntime for one kind of processor: its filters are read in blocks of %d channels, as on "
        "this machine (option channel_block: 8 if it was saved on one without AVX-512, else 16)",
        assumed,
    )
    return assumed


def _graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields a graph and the graphs of its nodes' attributes, at any depth."""
    waiting = [graph]
    while waiting:
        inner = waiting.pop()
        yield inner
        for node in inner.node:
            for a in node.attribute:
                if a.type in WITH_GRAPHS:
                    waiting += [*([a.g] if a.HasField("g") else ()), *a.graphs]


def _block_here() -> int:
    """Returns the block of onnxruntime on this machine."""
    if os.uname().machine not in ("x86_64", "amd64"):
        return 16
    try:
        return 16 if "avx512f" in Path("/proc/cpuinfo").read_text() else 8
    except OSError:
        return 8
