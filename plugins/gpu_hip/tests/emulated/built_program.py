"""A program under construction with random arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_gpu_hip.target import GpuTarget

__all__ = ["BuiltProgram"]

Array = Any


class BuiltProgram:
    """A program with its arguments by name."""

    def __init__(self, seed: int) -> None:
        self.program = mgx.Program()
        self.main = self.program.get_main_module()
        self.feed: dict[str, Array] = {}
        self.rng = np.random.default_rng(seed)

    def add(self, name: str, *xs: Any, **attributes: Any) -> Any:
        return self.main.add(mgx.op(name, **attributes), *xs)

    def argument(self, *dims: int, kind: str = "float16") -> tuple[Any, Array]:
        """Returns a new parameter and its value."""
        name, array = f"x{len(self.feed)}", self.rng.standard_normal(dims).astype(kind)
        self.feed[name] = array
        return self.main.add_parameter(name, mgx.Shape(kind, dims)), array

    def checked_steps(self, result: Any, device: int, close: float) -> list[Any]:
        """Returns the steps of the program on an emulated device, whose result it compares with that of ref.

        close: the largest difference, relative to the largest value if that is above 1.
        """
        self.main.add_return([result])
        plain = self.program.clone()
        plain.compile(mgx.get_target("ref"))
        wanted = plain.run(self.feed)[0].to_numpy().astype(np.float64)
        self.program.compile(GpuTarget("host", device))
        got = self.program.run(self.feed)[0].to_numpy().astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=close * max(1.0, np.abs(wanted).max()))
        executable: Any = self.program.executable
        (instance,) = executable.instances()
        return list(instance.runner.schedule.steps)
