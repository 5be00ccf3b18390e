"""Options of the TensorFlow parser: MIGraphX's, with its names, and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from mgx_core import ParameterError
from mgx_core.option_types import record_of
from mgx_core.records import dataclass

__all__ = ["TfOptions"]


@dataclass(frozen=True, kw_only=True)
class TfOptions:
    """Options of `parse_tf`: MIGraphX's, by its names, and limits.

    is_nhwc: ignored, for compatibility: operators state their own layout; channels_first: 4-D inputs and outputs, and their
    extents in map_input_dims, are images in NCHW, as MIGraphX returns for NHWC graphs; batch_size: extent of an unknown first
    axis (None: it stays symbolic); map_input_dims: extents of inputs by name; output_names: nodes or tensors (``node:1``) that a
    frozen graph returns, or a subset of a signature's outputs (default: all); signature: of a SavedModel; tags: of its MetaGraph;
    limit_max_iterations: iterations after which a loop fails at run time.
    Limits: limit_nodes: nodes after inlining; limit_depth: nested functions and branches; limit_bytes: size of a constant.
    """

    is_nhwc: bool = True
    channels_first: bool = False
    batch_size: int | None = None
    map_input_dims: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    output_names: Sequence[str] = ()
    signature: str = ""
    tags: str = "serve"
    limit_max_iterations: int = 65535
    limit_nodes: int = 1_000_000
    limit_depth: int = 64
    limit_bytes: int = 1 << 34

    def __post_init__(self) -> None:
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ParameterError(f"batch_size must be at least 1, got {self.batch_size!r}")
        if not isinstance(self.map_input_dims, Mapping):
            raise ParameterError(f"map_input_dims must be a mapping by name, got {self.map_input_dims!r}")
        if isinstance(self.output_names, str):
            raise ParameterError(f"output_names must be a list of names, got {self.output_names!r}")

    @classmethod
    def of(cls, **given: Any) -> TfOptions:
        """Creates options from keyword arguments.  Errors: ParameterError for an unknown option or an invalid value."""
        return record_of(cls, "TensorFlow parse option", given)
