"""Networks of this folder, quantized by the default methods, lose no more than `measure.py` allows."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mgx_onnx")
pytest.importorskip("mgx_cpu_dnnl")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def measure():
    """The script as a module, with its neighbor `docstrings` importable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        spec = importlib.util.spec_from_file_location("measure", HERE / "measure.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.HELD_OUT = 64
        yield module


@pytest.fixture(scope="module")
def of_floats(measure):
    """Measures a network that is not quantized, once for all methods."""
    return cache(lambda name: measure.measured(name, None))


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("digits", "int8"),
        ("residual", "int8"),
        ("vision_transformer", "int8"),
        ("digits", "fp8"),
        ("residual", "fp8"),
        ("language", "int8"),
        ("language", "int4 weights"),
    ],
)
def test_lost_accuracy(measure, of_floats, name, method):
    points, part = measure.MOST[method]
    lost = measure.lost(name, of_floats(name), measure.measured(name, method))
    assert lost <= (part if name == "language" else points)


def test_held_out_text_is_no_training_text(measure):
    seen, held = (set(islice(measure.docstrings(h), 500)) for h in (False, True))
    assert len(held & seen) < 25
    rows = measure.windows(held_out=True, most=10)
    assert rows.shape == (10, 129)
    assert rows.dtype == np.int64


@pytest.mark.slow
def test_the_whole_table(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "measure.py", tmp_path], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("*.html"))) == 10
    assert "<svg" in (tmp_path / "language_int8.html").read_text()
