"""What the context reports of the caches behind it."""

from __future__ import annotations

import numpy as np

from mgx_gpu_hip.target import GpuTarget


def test_constants_are_counted_while_somebody_holds_them() -> None:
    context = GpuTarget("host").get_context()
    assert context.memory() == {"derived constants": (0, 0), "device constants": (0, 0)}
    array = np.arange(100, dtype=np.float32)
    derived = context.constants.derived(array, "twice", lambda: np.tile(array, 2))
    uploaded = context.constants.uploaded([array], context.device)
    held = context.memory()
    assert held["derived constants"] == (1, 800)
    assert held["device constants"] == (1, 400)
    assert held["free device memory"].bytes >= 0
    del derived, uploaded
    assert context.memory()["device constants"] == (0, 0)
