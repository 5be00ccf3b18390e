"""Options of the ONNX parser: MIGraphX's, with its names and defaults, and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from mgx_core import ParameterError
from mgx_core.extents import requested_range
from mgx_core.option_types import record_of
from mgx_core.records import dataclass

__all__ = ["OnnxOptions"]


@dataclass(frozen=True, kw_only=True)
class OnnxOptions:
    """The options of `parse_onnx`.

    default_dim_value: the extent of unknown dimensions (0: they stay symbolic); default_dyn_dim_value: the range of such
    dimensions; dim_params: an int or a range by symbol name; map_input_dims, map_dyn_input_dims: extents of inputs by name;
    skip_unknown_operators: convert them to `unknown` instructions instead of raising an error; print_program_on_error: print the
    instructions built so far; use_dyn_output: results of NonZero, NonMaxSuppression and loops have their true extent, else they
    are zero-padded to the maximum, and a loop's rows have at least one axis; max_loop_iterations: maximum trip count of loops
    for which the model states none; limit_max_iterations: trip count above which a loop fails at run time; use_debug_symbols:
    ignored, since node names are always kept; external_data_path: the folder of external data (default: the model's); strict:
    reject attributes that an operator does not define (default: warn); use_symbolic_shapes: show unknown extents as expressions
    of their names and not as ranges; channel_block: 8 or 16, the channels in a block of files that onnxruntime saved for one
    kind of processor (0: as the file's filters or this machine suggest); override: inputs that the model gives an initializer,
    which become parameters of the program instead of constants.
    Limits: limit_nodes nodes after inlining functions, limit_depth nested subgraphs and functions, limit_bytes of one constant.
    """

    default_dim_value: int = 0
    default_dyn_dim_value: Any = None
    dim_params: Mapping[str, Any] = field(default_factory=dict)
    map_input_dims: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    map_dyn_input_dims: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    skip_unknown_operators: bool = False
    print_program_on_error: bool = False
    max_loop_iterations: int = 10
    limit_max_iterations: int = 65535
    use_dyn_output: bool = True
    use_debug_symbols: bool = False
    external_data_path: str | os.PathLike[str] | None = ""
    strict: bool = False
    use_symbolic_shapes: bool = False
    channel_block: int = 0
    override: Sequence[str] = ()
    limit_nodes: int = 1_000_000
    limit_depth: int = 64
    limit_bytes: int = 1 << 34

    def __post_init__(self) -> None:
        if self.default_dim_value and self.default_dyn_dim_value is not None:
            raise ParameterError("default_dim_value and default_dyn_dim_value exclude each other")
        if self.channel_block not in (0, 8, 16):
            raise ParameterError(f"channel_block must be 0, 8 or 16, got {self.channel_block}")
        for name in ("dim_params", "map_input_dims", "map_dyn_input_dims"):
            if not isinstance(getattr(self, name), Mapping):
                raise ParameterError(f"{name} must be a mapping by name, got {getattr(self, name)!r}")
        both = set(self.map_input_dims) & set(self.map_dyn_input_dims)
        if both:
            raise ParameterError(f"input {sorted(both)[0]!r} is in both map_input_dims and map_dyn_input_dims")
        if self.default_dyn_dim_value is not None:
            requested_range(self.default_dyn_dim_value, "default_dyn_dim_value")
        for name, value in self.dim_params.items():
            requested_range(value, f"dim_params[{name!r}]")
        for name, ranges in self.map_dyn_input_dims.items():
            for value in ranges:
                requested_range(value, f"map_dyn_input_dims[{name!r}]")

    def check_inputs(self, names: Sequence[str]) -> None:
        """Errors: ParameterError if an option names an input that the model lacks."""
        for option in ("map_input_dims", "map_dyn_input_dims", "override"):
            for name in getattr(self, option):
                if name not in names:
                    raise ParameterError(
                        f"{option}: there is no input {name!r}; known are {', '.join(map(repr, names))}"
                    )

    @classmethod
    def of(cls, **given: Any) -> OnnxOptions:
        """Creates options from keyword arguments.  Errors: ParameterError for an unknown option or an invalid value."""
        return record_of(cls, "ONNX parse option", given)
