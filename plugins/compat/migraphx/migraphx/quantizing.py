"""`migraphx.quantize_fp16` and its like."""

from __future__ import annotations

from collections.abc import Iterable

import mgx_core as mgx
from mgx_core.ir.module import nested

from .programs import program

__all__ = ["quantize_bf16", "quantize_fp16"]

ALL = ("all",)


def quantize_fp16(prog: program, ins_names: Iterable[str] = ALL) -> program:
    """Lets the named operations, or all, compute in float16; changes the program and returns it."""
    mgx.quantize_fp16(prog.core, _named(prog, ins_names))
    return prog


def quantize_bf16(prog: program, ins_names: Iterable[str] = ALL) -> program:
    """Lets the named operations, or all, compute in bfloat16; changes the program and returns it."""
    mgx.quantize_bf16(prog.core, _named(prog, ins_names))
    return prog


def _named(prog: program, names: Iterable[str]) -> set[str]:
    """The names, each one of the program's for ``all``: the core's own "all" leaves out operations that need the range."""
    chosen = set(names)
    if "all" in chosen:
        return {ins.name for m in nested(prog.core.get_main_module()) for ins in m}
    return chosen
