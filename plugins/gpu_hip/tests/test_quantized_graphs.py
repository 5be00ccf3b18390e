"""Random quantized programs on the emulated device, with both wave sizes: within one unit of the reference."""

from __future__ import annotations

import pytest

from mgx_conformance.quantized_graphs import attempt
from mgx_gpu_hip.target import GpuTarget


@pytest.mark.slow
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_some(first: int, device: int) -> None:
    attempt(GpuTarget("host", device), *range(first, first + 20))
