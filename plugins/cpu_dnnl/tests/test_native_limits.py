"""Limits of encoders and of the arrays on the stack of the native loops that they encode for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgx_cpu_dnnl.jit import (
    bytecode,
    bytecode_writer,
    native_chains,
    native_columns,
    native_gemm,
    native_loop,
    native_moves,
)
from mgx_cpu_dnnl.plans import links, native_loops

SOURCES = Path(__file__).parents[1] / "src"


@pytest.mark.parametrize(
    ("limit", "header", "name"),
    [
        (bytecode_writer.MAX_SLOTS, "interpreter_loop.h", "most_slots"),
        (bytecode.MAX_OPERANDS, "interpreter_loop.h", "most_operands"),
        (bytecode.MAX_AXES, "interpreter_loop.h", "most_axes"),
        (bytecode.MAX_PASSES, "interpreter_loop.h", "most_passes"),
        (native_chains.MAX_AXES, "chain_loop.h", "max_axes"),
        (native_columns.MAX_AXES, "column_loop.h", "max_axes"),
        (native_loop.MAX_LOADS, "chain_loop.h", "max_loads"),
        (native_loop.MAX_LOADS, "column_loop.h", "max_loads"),
        (native_moves.MAX_AXES, "move_loop.h", "max_axes"),
        (native_loops.MAX_AXES, "box.h", "most_axes"),
        (links.MAX_LINKS, "links.h", "most_links"),
        (native_gemm.SLOTS, "product_tile_loop.h", "most_terms"),
    ],
)
def test_an_encoder_stays_within_the_array_of_its_loop(limit: int, header: str, name: str) -> None:
    """A longer encoding would be written past the end of the array."""
    (found,) = re.findall(rf"\b{name} = (\d+)", (SOURCES / header).read_text(encoding="utf-8"))
    assert limit <= int(found)
