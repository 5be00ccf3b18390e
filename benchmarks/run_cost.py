"""Overhead of one run: a trivial program on a target, and the share of argument validation.

python benchmarks/run_cost.py [TARGET]
"""

from __future__ import annotations

import sys
import timeit

import numpy as np

import mgx_core as mgx

RUNS, REPEATS = 20, 2000  # short series: the best of them was not disturbed by other processes


def microseconds(call: object) -> float:
    """Returns the minimum over several series of the mean time of a call."""
    return 1e6 * min(timeit.repeat(call, number=RUNS, repeat=REPEATS)) / RUNS  # type: ignore[call-overload]


def main(target: str) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [1]))
    m.add_return([m.add(mgx.op("tanh"), x)])
    program.compile(mgx.get_target(target))
    given = {"x": np.ones(1, np.float32)}
    executable = program.executable
    assert executable is not None
    (instance,) = executable.instances()
    values = executable.bind(given)
    whole = microseconds(lambda: program.run(given))
    checks = microseconds(lambda: executable.bind(given))
    runner = microseconds(lambda: instance.runner.run(values))
    print(
        f"target {target}: run {whole:.2f} us, of which argument checks {checks:.2f} us; beyond them {whole - checks:.2f} us"
    )
    print(f"the target's runner alone: {runner:.2f} us")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
