"""Measures the run time of a module."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["benchmark"]


def benchmark(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    n: int = 100,
    batch_size: int | None = None,
    benchmark_submods: bool = True,
    print_results: bool = True,
) -> dict[str, float]:
    """Returns milliseconds per call and samples per second, measured over `n` calls after three warm-up calls.

    batch_size: samples per call, by default the first extent of the first input.  A module is one program here, so there are no
    submodules to time.
    """
    size = batch_size or next((x.shape[0] for x in inputs if isinstance(x, torch.Tensor) and x.dim()), 1)
    with torch.no_grad():
        for _ in range(3):
            model(*inputs)
        _finish(inputs)
        start = time.perf_counter()
        for _ in range(n):
            model(*inputs)
        _finish(inputs)
    each = (time.perf_counter() - start) / n
    found = {"time_ms": each * 1e3, "rate": size / each}
    if print_results:
        print(f"{found['time_ms']:.3f} ms a call, {found['rate']:.1f} samples/s")
    return found


def _finish(inputs: Sequence[Any]) -> None:
    if any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs):
        torch.cuda.synchronize()
