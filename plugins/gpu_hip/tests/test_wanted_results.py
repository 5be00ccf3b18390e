"""Runs that request a subset of their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_gpu_hip.runtime import Stream
from mgx_gpu_hip.target import GpuTarget


def several() -> mgx.Program:
    """A large result and a small one."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [8, 64]))
    y = m.add(mgx.op("neg"), x)
    m.add_return([y, m.add(mgx.op("reduce_sum", axes=[1]), y)])
    return program


@pytest.mark.parametrize("offload_copy", [True, False])
def test_unrequested_results_are_not_copied(offload_copy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = several()
    program.compile(GpuTarget("host", 1), offload_copy=offload_copy)
    x = np.arange(512, dtype=np.float32).reshape(8, 64)
    given = {"x": x if offload_copy else program.executable.context.upload(x)}  # type: ignore[union-attr]
    program.run(given)
    moved: list[int] = []
    out, on = Stream.copy_out, Stream.copy

    def copy_out(self: Stream, array: Any, address: int) -> None:
        moved.append(array.nbytes)
        out(self, array, address)

    def copy(self: Stream, to: int, address: int, size: int) -> None:
        moved.append(size)
        on(self, to, address, size)

    monkeypatch.setattr(Stream, "copy_out", copy_out)
    monkeypatch.setattr(Stream, "copy", copy)
    (sums,) = program.run(given, outputs=["output_1"])
    assert moved == [8 * 4]
    monkeypatch.undo()
    np.testing.assert_array_equal(sums.to_numpy(), -x.sum(1, keepdims=True))
    negated, _ = program.run(given, outputs=["output_0", "output_1"])
    np.testing.assert_array_equal(negated.to_numpy(), -x)
