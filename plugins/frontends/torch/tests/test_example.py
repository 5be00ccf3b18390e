"""The example that runs on torch's stream, and this package's documentation page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[4] / "examples" / "python" / "asynchronous_torch.py"
PAGE = Path(__file__).parents[1] / "README.md"


def test_it_gives_what_torch_gives() -> None:
    said = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True).stdout
    assert said.startswith("the largest difference from torch is small")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), names)
    assert "{'input': float32[2, 4]}" in capsys.readouterr().out
    model, rows = names["model"], torch.randn(5, 4)
    torch.testing.assert_close(names["compiled"](rows), model(rows))
    torch.testing.assert_close(names["module"](rows), model(rows).detach())
    torch.testing.assert_close(torch.from_dlpack(names["result"]), model(names["x"]).detach())
    assert {p.name for p in tmp_path.iterdir()} == {"model.mxr", "model.pt2"}
