"""The Python code of gpu.md's chapters on running and on kernels runs on the emulated device."""

from __future__ import annotations

import re
from pathlib import Path


def ran(chapter, count):
    """Runs the `count` blocks of a chapter; returns their names."""
    page = Path(__file__).parents[3] / "docs" / "gpu.md"
    text = page.read_text(encoding="utf-8").partition(f"## {chapter}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == count
    namespace = {"__name__": "gpu.md"}
    for block in blocks:
        exec(block, namespace)
    return namespace


def test_running(monkeypatch):
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [])
    assert ran("Running", 2)["result"].to_numpy().tolist() == [[6, 6], [6, 6]]


def test_kernels_of_your_own():
    assert ran("Kernels of your own", 2)["placed"].kernel == "scaled sum"
