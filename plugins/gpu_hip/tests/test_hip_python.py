"""Programs that mix calls of hip-python with ours, on the fake of AMD's runtime.

The package is hip-python itself if it is installed, otherwise a fake with its conventions.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "hip_with_mgx.py"
OBJECTS = """
import numpy as np
from hip import hip
import mgx_core as mgx
from mgx_gpu_hip import hip_python
from mgx_gpu_hip.runtime import CallError

context = mgx.get_gpu_context()
assert context.device.kind == "hip"
assert int(hip_python.stream(context)) == context.queue

# memory that hip-python made: the same under our names
error, made = hip.hipMalloc(64)
made = made.configure(typestr="float32", shape=(4, 4))
taken, pointed = mgx.to_gpu(made), mgx.argument_from_pointer(mgx.Shape("float32", [4, 4]), made)
assert taken.data_ptr() == pointed.data_ptr() == int(made) and taken.on_device and pointed.on_device
x = np.arange(16, dtype=np.float32).reshape(4, 4)
context.copy(x, taken.value)
np.testing.assert_array_equal(pointed.to_numpy(), x)

# and the other way; values of the host have no such array
ours = mgx.to_gpu(x)
theirs = hip_python.array(ours)
assert int(theirs) == ours.data_ptr() and tuple(theirs.__cuda_array_interface__["shape"]) == (4, 4)
try:
    hip_python.array(mgx.Argument(x))
except mgx.ParameterError as refused:
    assert "on the host" in str(refused)
else:
    raise AssertionError("an array of the host was taken")

# a run on its arrays, waited for by its events
program = mgx.Program()
module = program.get_main_module()
module.add_return([module.add(mgx.op("neg"), module.add_parameter("x", mgx.Shape("float32", [4, 4])))])
program.compile(context, offload_copy=False)
error, event = hip.hipEventCreateWithFlags(2)
context.record(event)
context.wait_for(event)
(result,) = program.run({"x": made})
assert hip.hipEventQuery(event)[0] == hip.hipError_t.hipSuccess
np.testing.assert_array_equal(result.to_numpy(), -x)

# errors have its names
try:
    context.device.driver.free(16)
except CallError as failure:
    assert hip_python.error(failure).name == failure.error == "hipErrorInvalidValue"
    assert "hipErrorInvalidValue" in str(failure)
else:
    raise AssertionError("memory that was never allocated was freed")
"""


@pytest.fixture
def rocm(fake_hip: Path, tmp_path: Path) -> dict[str, str]:
    """An environment whose ROCm is the fake, which can be found only by hip-python's search."""
    (tmp_path / "rocm" / "lib").mkdir(parents=True)
    for name in ("libamdhip64.so", "libhiprtc.so"):
        (tmp_path / "rocm" / "lib" / name).symlink_to(fake_hip)
    kept = {k: v for k, v in os.environ.items() if k not in ("MGX_HIP_LIBRARY", "MGX_HIPRTC_LIBRARY")}
    environment = kept | {"ROCM_PATH": str(tmp_path / "rocm"), "MGX_GPU_DEVICE": "hip:1"}
    if importlib.util.find_spec("hip") is None:
        environment["PYTHONPATH"] = str(Path(__file__).parent / "hip_python")
    return environment


def ran(environment: dict[str, str], *command: object) -> str:
    done = subprocess.run([sys.executable, *map(str, command)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_streams_events_arrays_and_errors(rocm: dict[str, str]) -> None:
    ran(rocm, "-c", OBJECTS)


def test_the_example(rocm: dict[str, str]) -> None:
    assert "from numpy is small" in ran(rocm | {"MGX_GPU_DEVICE": "hip:0"}, EXAMPLE)


def test_libraries_are_found_by_it(rocm: dict[str, str]) -> None:
    """Including libraries that are not in ROCm's folders: hip-python knows their location in wheels."""
    code = "from mgx_gpu_hip.runtime.driver import candidates; print(candidates('hip')[0])\n"
    code += "from mgx_gpu_hip.library.miopen import MIOPEN\nfrom mgx_gpu_hip.library.loading import candidates\n"
    code += "print(next(candidates(MIOPEN)))\n"
    assert ran(rocm, "-c", code).split() == [f"{rocm['ROCM_PATH']}/lib/libamdhip64.so", "libMIOpen.so"]
