"""Horizontal fusion: merges several kernels into one launch, each with its own range of blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mgx_core import No

from .pointwise import kernel
from .source import NAME, Arg, Buffer, Chained, KernelLaunch, KernelSource, Tensor, finish

__all__ = ["fuse_horizontally"]

_HEAD: Final = re.compile(r"KERNEL\([^)]*\) (\w+)\(([^)]*)\) \{\n")
_WAITS: Final = ("  grid_wait();\n", "  if (chained) grid_done();\n")
_TOGETHER: Final = re.compile(r"__syncthreads|SHARED|WAVE|wave_|block_|lane_id|async_")  # cooperation within a block
MAX_ARGUMENTS: Final = 64


def fuse_horizontally(
    sources: Sequence[KernelSource], inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
) -> KernelSource | No:
    """Returns a kernel that does the work of all `sources`, which must be independent.

    inputs, outputs: of all sources, concatenated.
    """
    texts: list[str] = []
    parameters: list[str] = []
    args: list[Arg] = []
    lines: list[str] = []
    block = max(s.block for s in sources)
    first = reads = writes = 0
    for n, source in enumerate(sources):
        made = _function(source, f"{NAME}_part{n}", first, block)
        if isinstance(made, No):
            return made
        text, given = made
        names = [f"{p.split()[-1]}_{n}" for p in given]
        parameters += [f"{p} {name}" for p, name in zip((p.rpartition(" ")[0] for p in given), names, strict=True)]
        args += [_moved(a, reads, writes) for a in source.args if not isinstance(a, Chained)]
        last = first + source.grid[0]
        lines.append(f"if (blockIdx.x < {last}u) return {NAME}_part{n}({', '.join(names)});")
        texts.append(text)
        first, reads, writes = last, reads + source.inputs, writes + source.outputs
    if len(args) > MAX_ARGUMENTS:
        return No("the kernels have too many arguments")
    shared = max(s.shared_bytes for s in sources)
    launch = KernelLaunch(NAME, (first, 1, 1), block, tuple(args), shared)
    threads = block[0] * block[1] * block[2]
    words = dict.fromkeys(s.name.rpartition("_")[0] for s in sources)
    return finish(
        "_with_".join(words)[:48],
        "".join(texts) + kernel(NAME, parameters, lines, threads),
        [launch],
        inputs,
        outputs,
        flops=sum(s.flops for s in sources),
        moved=sum(s.bytes for s in sources),
    )


def _function(source: KernelSource, name: str, first: int, block: tuple[int, int, int]) -> tuple[str, list[str]] | No:
    """Returns a kernel's source turned into a device function whose first block is `first`, and its parameters."""
    heads = list(_HEAD.finditer(source.text))
    if len(source.launches) != 1 or len(heads) != 1 or source.scratch or source.extents:
        return No(f"{source.title or source.name} is not one launch on its operands alone")
    if source.grid[1:] != (1, 1) or source.origin or not all(w in source.text for w in _WAITS):
        return No(f"{source.title or source.name} does not have a one-dimensional grid")
    parameters = [p for p in heads[0].group(2).split(", ") if p != "u32 chained"]
    text = source.text
    for wait in _WAITS:
        text = text.replace(wait, "")
    guard = ""
    if source.block != block:
        if source.block[1:] != (1, 1) or block[1:] != (1, 1) or _TOGETHER.search(text):
            return No("the kernels cooperate within blocks of different sizes")
        guard = f"  if (threadIdx.x >= {source.block[0]}u) return;\n"
        text = re.sub(r"\bblockDim\.x\b", f"{source.block[0]}u", text)
    head = _HEAD.search(text)
    assert head is not None
    text = f"{text[: head.start()]}DEV void {head.group(1)}({', '.join(parameters)}) {{\n{guard}{text[head.end() :]}"
    if first:
        text = re.sub(r"\bblockIdx\.x\b", f"(blockIdx.x - {first}u)", text)
    return text.replace(source.name, name), parameters


def _moved(arg: Arg, reads: int, writes: int) -> Arg:
    """Returns a kernel's argument as an argument of the merged kernel."""
    if not isinstance(arg, Buffer):
        return arg
    return Buffer(arg.kind, arg.index + (reads if arg.kind == "input" else writes))
