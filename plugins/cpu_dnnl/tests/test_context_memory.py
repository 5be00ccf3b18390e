"""What the context reports of the caches behind it."""

from __future__ import annotations

import gc

import numpy as np

import mgx_core as mgx
from mgx_cpu_dnnl.target import CpuTarget


def test_constants_are_counted_while_a_program_holds_them():
    target = CpuTarget()
    context = target.get_context()
    gc.collect()
    before = context.memory()
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [8, 64]))
    weights = m.add_literal(np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32))
    m.add_return([m.add(mgx.op("sin"), m.add(mgx.op("dot"), x, weights))])
    program.compile(target)
    program.run({"x": np.zeros((8, 64), np.float32)})
    during = context.memory()
    grown = sum(during[n].bytes - before[n].bytes for n in ("constants", "packed weights"))
    assert grown >= 64 * 48 * 4
    loops = during["compiled loops"]
    assert loops.entries > 0
    assert loops.bytes > 100 * loops.entries
    del program, m, x, weights
    gc.collect()
    after = context.memory()
    assert sum(after[n].bytes - before[n].bytes for n in ("constants", "packed weights")) < 64 * 48 * 4
