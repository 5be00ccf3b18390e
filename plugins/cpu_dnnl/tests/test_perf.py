"""Timings with the work of each launch, and the machine's measured peaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx
from mgx_cpu_dnnl.target import CpuTarget


def test_launches_tell_their_work() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [16, 32]))
    y = m.add(mgx.op("dot"), x, m.add_literal(np.ones((32, 64), np.float32)))
    m.add_return([m.add(mgx.op("softmax", axis=1), y)])
    program.compile(CpuTarget())
    given = {"x": np.zeros((16, 32), np.float32)}
    timings = program.executable.time(given, 3, 1)
    dot = next(t for t in timings if t.instruction.op.of.name == "dot")
    assert dot.flops == 2 * 16 * 32 * 64
    assert all(t.bytes > 0 for t in timings)
    assert all(t.seconds[0] > 0 for t in timings)


def test_ceilings_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    target = CpuTarget(threads=1)
    found = target.ceilings(target.get_context())
    assert found["flops"] > 1e9
    assert found["bytes"] > 1e8
    assert target.ceilings(target.get_context()) == found
    (file,) = (tmp_path / "ceilings").iterdir()
    file.write_text("nonsense")
    assert set(target.ceilings(target.get_context())) == {"flops", "bytes"}
