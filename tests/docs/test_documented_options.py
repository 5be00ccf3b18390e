"""Each option of the compiler and of a frontend is in a table of the page where users look for it."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    "mgx_core.options:CompileOptions": "docs/guide.md",
    "mgx_onnx.options:OnnxOptions": "plugins/frontends/onnx/README.md",
    "mgx_tf.options:TfOptions": "plugins/frontends/tf/README.md",
    "mgx_tflite.options:TfliteOptions": "plugins/frontends/tflite/README.md",
}


@pytest.mark.parametrize("record", PAGES)
def test_each_option_is_in_a_table(record):
    module, name = record.split(":")
    pytest.importorskip(module.split(".")[0])
    options = {f.name for f in dataclasses.fields(getattr(importlib.import_module(module), name))}
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / PAGES[record]).read_text(encoding="utf-8"), re.MULTILINE)
    assert options - set(re.findall(r"`(\w+)`", " ".join(rows))) == set()
