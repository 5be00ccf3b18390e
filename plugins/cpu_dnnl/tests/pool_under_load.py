"""Many threads on the pool at the same time: a shared program, own programs, changes of the thread count, runs within host
steps.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget

SECONDS = 10.0
WEIGHTS = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)


def program_of(rows: Any) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    y = m.add(mgx.op("dot"), m.add_parameter("x", mgx.Shape("float32", [rows, 32])), m.add_literal(WEIGHTS))
    y = m.add(mgx.op("softmax", axis=1), m.add(mgx.op("tanh"), y))
    values = m.add(mgx.op("topk", k=5, axis=1), y)
    m.add_return([y, m.add(mgx.op("get_tuple_elem", index=1), values)])
    program.compile(CpuTarget())
    return program


def wanted(x: Any) -> Any:
    y = np.exp(np.tanh(x.astype(np.float64) @ WEIGHTS))
    return y / y.sum(axis=1, keepdims=True)


def main(seconds: float = SECONDS, threads: int = 8) -> int:
    """Returns the number of completed runs.  Errors: AssertionError for a wrong result."""
    shared = program_of(mgx.dim.symbol("n", 1, 64))
    end = time.monotonic() + seconds
    runs, failures = [0] * threads, []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            own = program_of(8) if number % 4 == 0 else shared
            while time.monotonic() < end:
                rows = 8 if own is not shared else int(rng.integers(1, 20))
                x = rng.standard_normal((rows, 32)).astype(np.float32)
                got = own.run({"x": x})[0].to_numpy()
                np.testing.assert_allclose(got, wanted(x), rtol=1e-4, atol=1e-6)
                runs[number] += 1
                if number == 1 and runs[1] % 50 == 0:
                    native().set_threads(1 + runs[1] // 50 % 3)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(seconds + 60)
    assert not any(w.is_alive() for w in workers), "deadlocked"
    if failures:
        raise failures[0]
    native().set_threads(native().available_threads())
    return sum(runs)


if __name__ == "__main__":
    print(main(), "runs")
