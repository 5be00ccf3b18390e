"""The notebook of the documentation runs, cell by cell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[3] / "examples" / "serving" / "serving.ipynb"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the notebook calls curl")
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, Any] = {}
    try:
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
        assert names["accuracy"] > 0.97
        asked = names["statistics"]
        assert int(asked["inference_count"]) == 1 + len(names["images"]) and int(asked["execution_count"]) == 2
        assert names["server"].returncode == 0
    finally:
        if "server" in names:
            names["server"].kill()
            names["server"].wait()
            names["server"].stdout.close()
