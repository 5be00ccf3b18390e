"""Parsing and running models without TensorFlow and Keras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mgx_tf import converters

SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras", "tf_keras", "ai_edge_litert", "tflite_runtime"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import mgx_core as mgx

program = mgx.parse(sys.argv[1])
program.compile(mgx.get_target("ref"))
print(np.asarray(program.run({"x": np.float32([-1, 2])})[0]).tolist(), "mgx_tf.converters.sparse" in sys.modules)
assert "SparseReshape" in mgx.get_tf_operators()
import mgx_tflite.parser
assert mgx_tflite.parser.all_converters() is not None
"""


def test_models_are_read_without_tensorflow(tmp_path: Path, new_graph: Any):
    """Only required converter families are imported; `operators` imports all."""
    g = new_graph()
    g.placeholder("x", np.dtype(np.float32), [2])
    g.node("Relu", "y", "x", T=np.dtype(np.float32))
    (tmp_path / "net.pb").write_bytes(g.data)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "net.pb")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "[0.0, 2.0] False\n", done.stderr


def test_converters_of_complex_numbers_are_asked_first():
    """An operator converted by two families has its complex converter in a family that is loaded before all others."""
    converters.load_all()
    both = {name for _, name in converters.STANDARD.names()} & {name for _, name in converters.VALUES.names()}
    found = {converters.VALUES.find("", name, 1) for name in both}
    families = {getattr(converter, "__module__", "").rpartition(".")[2] for converter in found}
    assert "Mul" in both and families == set(converters.FIRST[:2])
