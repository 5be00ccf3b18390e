"""Conversions to wider types that are moved to the readers of an op."""

from __future__ import annotations

import numpy as np

from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.passes.widening import WidenLate


def test_each_reader_gets_a_copy_and_extents_keep_their_symbols() -> None:
    module = parse_module(
        """
        symbol k in 0..4
        module main
          %x = @param["x"] -> int8[4]
          %s = @literal(0.5) -> float32[]
          %1 = dequantizelinear(%x, %s) -> float32[4]
          %2 = nonzero(%1) -> int64[1, k]
          %3 = reshape[dims=[k]](%2) -> int64[k]
          %4 = neg(%1) -> float32[4]
          @return(%3, %4)
        """,
        STANDARD,
    )
    assert WidenLate().apply(module)
    (found,) = (i for i in module if i.op.name == "nonzero")
    (flat,) = (i for i in module if i.op.name == "reshape")
    assert [i.op.name for i in module].count("dequantizelinear") == 2
    assert found.result.dims[1:] == flat.op.dims
    where, negative = evaluate_module(module, [np.int8([0, 2, 0, 4])])
    assert where.tolist() == [1, 3]
    assert negative.tolist() == [0, -1, 0, -2]
