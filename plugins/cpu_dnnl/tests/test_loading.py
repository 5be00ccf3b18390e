"""Imports caused by loading a model on the cpu target, which delay the start of each process."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from mgx_core.ops.fill import Fill
from mgx_core.ops.standard import STANDARD
from mgx_cpu_dnnl.plans import LAZY
from mgx_cpu_dnnl.plans.representation import VIEWS

# what only messages, users, large data or rare types need
SPARED = {
    "mgx_core.ir.text.writer",
    "mgx_onnx.deferred",
    "mgx_onnx.ops.maps",
    "difflib",
    "google.protobuf.internal.decoder",
    "google.protobuf.text_format",
    "hashlib",
    "heapq",
    "hmac",
    "importlib.metadata",
    "logging",
    "numpy.fft",
    "numpy.ma",
    "numpy.polynomial",
    "numpy.random",
    "numpy.testing",
    "pkgutil",
    "pydoc",
    "unittest",
}
# families that a convolutional network does not need
FAMILIES = {
    f"mgx_core.ops.{name}"
    for name in (
        "attention", "bitwise", "fourier", "nms", "optional", "random", "recurrent", "recurrent_layer",
        "recurrent_states", "roi", "rotary", "scan", "scatter", "select", "sequence", "signal", "trees",
    )
}  # fmt: skip
# what writes code of loops, which are compiled with the package, and plans for ops that few networks have
WRITERS = {f"mgx_cpu_dnnl.{name}" for name in ("jit.math", "jit.primitive", "jit.scope", *(f"plans.{m}" for m in LAZY))}
# the most modules of our packages in a process that compiles the network and runs it, and in one that runs its program file, a few
# more than there are: each takes 0.1 to 0.3 ms.  Raise them only for what such processes need.
MOST_TO_COMPILE = 355
MOST_TO_RUN_A_FILE = 90
SOURCE = """
import sys
import numpy as np
import mgx_core as mgx
program = mgx.parse(sys.argv[1])
program.compile(mgx.get_target("cpu"), threads=1)
print(*sys.modules)
program.run({"x": np.ones((1, 3, 16, 16), np.float32)})
print(*sys.modules)
program.save(sys.argv[2])
"""
RUN_FILE = """
import sys
import numpy as np
import mgx_core as mgx
program = mgx.load(sys.argv[2])
program.run({"x": np.ones((1, 3, 16, 16), np.float32)})
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """Returns the modules of a process that has loaded and compiled a convolution with its bounds, those after a run, and those of
    a process that has run its program file."""
    folder: Path = tmp_path_factory.mktemp("loading")
    weights = numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4), helper.make_node("Relu", ["y"], ["z"])]
    x, z = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", c, 16, 16]) for n, c in (("x", 3), ("z", 8))
    )  # fmt: skip
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [z], [weights]))
    save(model, folder / "net.onnx")
    said = ""
    for source in (SOURCE, RUN_FILE):
        command = [sys.executable, "-c", source, str(folder / "net.onnx"), str(folder / "net.mxr")]
        said += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [set(line.split()) for line in said.splitlines()]


def own(modules: set[str]) -> list[str]:
    return sorted(m for m in modules if m.startswith("mgx_"))


def test_libraries_that_only_messages_need_are_not_loaded(loaded: list[set[str]]) -> None:
    assert "mgx_cpu_dnnl.target" in loaded[0]
    assert loaded[0] & SPARED == set()


def test_families_that_the_model_has_no_op_of_are_not_loaded(loaded: list[set[str]]) -> None:
    assert "mgx_cpu_dnnl.runner" in loaded[1]
    assert loaded[1] & FAMILIES == set()


def test_writers_of_code_and_rare_plans_are_not_loaded(loaded: list[set[str]]) -> None:
    assert "mgx_cpu_dnnl.plans.winograd" in loaded[1]
    assert loaded[1] & WRITERS == set()


def test_no_more_modules_are_loaded_than_the_network_needs(loaded: list[set[str]]) -> None:
    assert len(own(loaded[1])) <= MOST_TO_COMPILE, own(loaded[1])


def test_no_more_modules_are_loaded_than_a_program_file_needs(loaded: list[set[str]]) -> None:
    assert "mgx_cpu_dnnl.saved_runner" in loaded[2]
    assert len(own(loaded[2])) <= MOST_TO_RUN_A_FILE, own(loaded[2])
    assert loaded[2] & SPARED == set()


@pytest.mark.parametrize("module", LAZY)
def test_rare_plans_are_named_by_their_ops(module: str) -> None:
    plans = import_module(f"mgx_cpu_dnnl.plans.{module}").PLANS
    named = {f"mgx_core.ops.{one}" for one in LAZY[module].split()}
    assert {f"{op.__module__}:{op.__qualname__}" for op in plans.ops()} == named


def test_every_view_of_the_standard_set_has_its_plan() -> None:
    """The plans refer to them, so that families without any need not be loaded."""
    assert set(VIEWS) == {cls for cls in STANDARD if cls.view is not None and cls is not Fill}
