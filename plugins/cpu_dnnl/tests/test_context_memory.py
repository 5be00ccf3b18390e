"""The context's report of cache memory."""

from __future__ import annotations

import gc
import subprocess
import sys

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


ASKED_AT_ONCE = """
import threading, time
from mgx_cpu_dnnl import packing

def slow(self, made=packing.Weights.__init__):
    time.sleep(0.1)
    made(self)

packing.Weights.__init__ = slow
found = []

def ask():
    from mgx_cpu_dnnl.shared import shared
    found.append(shared())

threads = [threading.Thread(target=ask) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert len(found) == 4 and len(set(map(id, found))) == 1, found
"""


def test_concurrent_first_requests_get_the_same_caches():
    subprocess.run([sys.executable, "-c", ASKED_AT_ONCE], check=True)
