"""Random quantized programs on the cpu target: within one unit of the reference's last quantization."""

from __future__ import annotations

import pytest

from mgx_conformance.quantized_graphs import attempt
from mgx_cpu_dnnl.target import CpuTarget


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_some(first: int) -> None:
    attempt(CpuTarget(), *range(first, first + 4))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(30))
def test_many(block: int) -> None:
    for first in range(1000 + 100 * block, 1100 + 100 * block, 10):
        attempt(CpuTarget(), *range(first, first + 10))
