"""A compiled model of ONNX's backend interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.backend.base import BackendRep

import migraphx
from mgx_core import Argument
from mgx_core.errors import takes

__all__ = ["MIGraphXBackendRep"]


class MIGraphXBackendRep(BackendRep):  # type: ignore[misc,unused-ignore]
    """Runs a compiled program on arrays by position or by name."""

    def __init__(self, program: migraphx.program) -> None:
        self.program = program

    def run(self, inputs: Any, **options: Any) -> list[Any]:  # type: ignore[override,unused-ignore]
        """Returns the results.  Errors: ValueError for a wrong number of inputs."""
        names = self.program.get_parameter_names()
        if not isinstance(inputs, Mapping):
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) != len(names):
                raise ValueError(f"the model {takes(len(names), len(names), names, len(given))}")
            inputs = dict(zip(names, given, strict=True))
        return [_plain(r) for r in self.program.run({n: _given(v) for n, v in inputs.items()})]


def _given(value: Any) -> Any:
    """Converts a tensor to an argument; sequences and absent optionals stay lists and None."""
    return value if value is None or isinstance(value, list) else migraphx.argument(np.asarray(value))


def _plain(result: Argument) -> Any:
    """Converts a result to an array, a list for a sequence, None for an absent optional."""
    value = result.value
    if isinstance(value, (list, tuple)):
        return [_plain(r) for r in result.get_sub_objects()]
    return value if value is None else np.array(result)
