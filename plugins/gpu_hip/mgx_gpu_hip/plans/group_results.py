"""Memory for the results of a group."""

from __future__ import annotations

from typing import Any

from mgx_core import Module
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.shape import TupleShape

from ..emitter import GpuEmitter

__all__ = ["group_results"]


def group_results(e: GpuEmitter, body: Module) -> tuple[Results, list[Value]]:
    """Returns new values as the group gives them, tuples where a member gives several, and in one row as a kernel writes them."""
    written: list[Value] = []

    def made(result: Any) -> Any:
        if isinstance(result, TupleShape):
            return tuple(map(made, result.items))
        written.append(e.allocate(result.dtype, result.lens()))
        return written[-1]

    results = tuple(made(o.result) for o in body.outputs)
    return results[0] if len(results) == 1 else results, written
