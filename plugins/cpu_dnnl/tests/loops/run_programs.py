"""Runs programs of one native runner next to their reference implementations."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Program
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.runner import CpuRunner

__all__ = ["by_definition", "compare", "runner_of"]


def by_definition(program: Program, given: dict[str, Any]) -> list[Any]:
    module = program.get_main_module()
    return Interpreter().run(module, [given[name] for name in module.parameters])


def runner_of(program: Program) -> CpuRunner:
    assert program.executable is not None
    runner = program.executable.instances()[-1].runner
    assert isinstance(runner, CpuRunner)
    return runner


def compare(program: Program, given: dict[str, Any], compiled: Program) -> None:
    for found, expected in zip(compiled.run(given), by_definition(program, given), strict=True):
        assert np.asarray(found).dtype == expected.dtype and np.asarray(found).shape == expected.shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)
