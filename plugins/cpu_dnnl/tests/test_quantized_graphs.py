"""Random quantized programs on the processor: within one unit of the last quantization of their definitions."""

from __future__ import annotations

import pytest

from mgx_conformance.quantized_graphs import attempt
from mgx_cpu_dnnl.target import CpuTarget


@pytest.mark.parametrize("seed", range(6))
def test_some(seed: int) -> None:
    attempt(seed, CpuTarget())


@pytest.mark.slow
@pytest.mark.parametrize("block", range(30))
def test_many(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        attempt(seed, CpuTarget())
