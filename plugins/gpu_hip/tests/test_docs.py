"""The Python of gpu.md's chapter on kernels runs, on the emulated device."""

from __future__ import annotations

import re
from pathlib import Path


def test_kernels_of_your_own():
    page = Path(__file__).parents[3] / "docs" / "gpu.md"
    chapter = page.read_text(encoding="utf-8").partition("## Kernels of your own")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)
    namespace = {"__name__": "gpu.md"}
    for block in blocks:
        exec(block, namespace)
    assert len(blocks) == 2
    assert namespace["placed"].kernel == "scaled sum"
