"""Options of the TFLite parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from mgx_core.option_types import record_of
from mgx_core.records import dataclass

__all__ = ["TfliteOptions"]


@dataclass(frozen=True, kw_only=True)
class TfliteOptions:
    """The options of the TFLite frontend.

    signature: the signature to parse (default: the first, or subgraph 0 if there is none); map_input_dims, map_dyn_input_dims:
    extents of inputs by name, which override those in the file.
    Limits: limit_max_iterations: iterations of a loop at run time; limit_nodes: operators after inlining; limit_depth: nested
    subgraphs; limit_bytes: size of a constant.
    """

    signature: str = ""
    map_input_dims: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    map_dyn_input_dims: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    limit_max_iterations: int = 65535
    limit_nodes: int = 1_000_000
    limit_depth: int = 64
    limit_bytes: int = 1 << 34

    @classmethod
    def of(cls, **given: Any) -> TfliteOptions:
        """Creates options from keyword arguments.  Errors: ParameterError for an unknown option."""
        return record_of(cls, "TFLite parse option", given)
