"""The thread team: oneDNN uses it instead of OpenMP, results do not depend on it, and a forked child does not need it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

RECURRENT = """
    import numpy as np
    import mgx_core as mgx
    rng = np.random.default_rng(0)
    w, r = (rng.standard_normal((2, 3 * 24, k)).astype(np.float32) / 5 for k in (16, 24))
    x = rng.standard_normal((9, 6, 16)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape("float32", list(x.shape)))
    op = mgx.op("gru", hidden_size=24, direction="bidirectional", actv_func=["sigmoid", "tanh"] * 2, linear_before_reset=1)
    m.add_return([m.add(op, given, m.add_literal(w), m.add_literal(r))])
    program.compile(mgx.get_target("cpu"))
    for _ in range(5):
        y = np.asarray(program.run({"x": x})[0])
"""
CONVOLUTION = """
    import numpy as np
    import mgx_core as mgx
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 32, 40, 40)).astype(np.float32), rng.standard_normal((48, 32, 3, 3)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape("float32", list(x.shape)))
    m.add_return([m.add(mgx.op("convolution", padding=[1, 1]), given, m.add_literal(w))])
    program.compile(mgx.get_target("cpu"), fast_math=False)
    for _ in range(5):
        y = np.asarray(program.run({"x": x})[0])
"""
SAVED = "\nimport sys; np.save(sys.argv[1], y)"


def run(code: str, *arguments: str, **env: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("isa", ["ALL", "AVX2"])  # on AVX2, products with barriers inside are selected
@pytest.mark.parametrize("code", [RECURRENT, CONVOLUTION], ids=["gru", "convolution"])
def test_results_do_not_depend_on_the_threads(code: str, isa: str, tmp_path: object) -> None:
    results = []
    for threads in "1", "3":
        path = f"{tmp_path}/{threads}.npy"
        run(textwrap.dedent(code) + SAVED, path, MGX_CPU_THREADS=threads, ONEDNN_MAX_CPU_ISA=isa)
        results.append(np.load(path))
    assert np.abs(results[0]).max() > 0.1
    np.testing.assert_array_equal(results[1], results[0])


def test_onednn_starts_no_threads_of_its_own() -> None:
    """A copy starts the team's threads; a product then uses them, where OpenMP would start others."""
    code = """
        import os
        import numpy as np
        from mgx_cpu_dnnl.native_library import native
        n = native()
        n.set_threads(3)
        program = n.NativeProgram("copy", 0)
        x, out = program.input(np.float32, (1 << 20,)), program.output(np.float32, (1 << 20,))
        program.add_loop("copy", n.native_loop("copy_4"), None, [x, out], [1, 1 << 20, 1, 1], 1 << 20)
        program.finish()
        threads = [len(os.listdir("/proc/self/task"))]
        program.run_arrays([np.ones(1 << 20, np.float32)])
        threads.append(len(os.listdir("/proc/self/task")))
        d = n.MemoryDesc([256, 256], "float32")
        a, y = np.ones((256, 256), np.float32), np.empty((256, 256), np.float32)
        product = n.matmul(d, d, d)
        product.execute({n.ARG_SRC: a.ctypes.data, n.ARG_WEIGHTS: a.ctypes.data, n.ARG_DST: y.ctypes.data})
        assert (y == 256).all()
        threads.append(len(os.listdir("/proc/self/task")))
        print(*threads)
    """
    before, copied, multiplied = map(int, run(code).split())
    assert (copied, multiplied) == (before + 2, before + 2)


def test_idle_threads_spin_after_steps_of_a_run_alone() -> None:
    code = """
        import time
        import numpy as np
        from mgx_cpu_dnnl.native_library import native
        n = native()
        n.set_threads(2)
        w = np.ones((1024, 1024), np.float32)
        plain, wanted = n.MemoryDesc([1024, 1024], "float32"), n.MemoryDesc([1024, 1024], "float32", [1, 1024])
        for _ in range(20):  # not one of a run's steps: Python code follows
            n.pack(w.ctypes.data, plain, wanted)
            time.sleep(0.002)
        packed = n.team_counts()[2]
        program = n.NativeProgram("copy", 0)
        x, out = program.input(np.float32, (1 << 20,)), program.output(np.float32, (1 << 20,))
        program.add_loop("copy", n.native_loop("copy_4"), None, [x, out], [1, 1 << 20, 1, 1], 1 << 20)
        program.finish()
        for _ in range(1000):  # on busy processors threads seldom spin
            program.run_arrays([np.ones(1 << 20, np.float32)])
            time.sleep(0.002)
            if n.team_counts()[2]:
                break
        print(packed, n.team_counts()[2])
    """
    packed, ran = map(int, run(code).split())
    assert packed == 0 < ran


def test_a_forked_child_runs_primitives_alone() -> None:
    forked = """
import os
child = os.fork()
if child == 0:
    again = np.asarray(program.run({"x": x})[0])
    os._exit(0 if (again == y).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(textwrap.dedent(CONVOLUTION) + forked, MGX_CPU_THREADS="2").strip() == "0"
