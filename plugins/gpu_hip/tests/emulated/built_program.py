"""A program under construction with random arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

import mgx_core as mgx

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
