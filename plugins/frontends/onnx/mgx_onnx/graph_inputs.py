"""Types of a graph's inputs: those in the file, overridden by options."""

from __future__ import annotations

import re
from typing import Any

from mgx_core.extents import warn_overridden
from mgx_core.types.dim import Dim, Sym, symbol
from mgx_core.types.dynamic_dimension import DynamicDimension
from mgx_core.types.polynomial import UNBOUNDED
from mgx_core.types.shape import AnyShape

from .messages import onnx
from .options import OnnxOptions
from .tensors import shape_of_type

__all__ = ["input_shape", "word"]


def input_shape(info: onnx.ValueInfoProto, options: OnnxOptions) -> AnyShape:
    """Returns the type of a graph input, with extents overridden by options."""
    mapped = options.map_input_dims.get(info.name)
    ranged = options.map_dyn_input_dims.get(info.name)

    def dims(tensor: Any) -> list[Dim] | None:
        if mapped is not None:
            stated = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
            warn_overridden(info.name, stated if tensor.HasField("shape") else mapped, mapped)
            return list(mapped)
        if ranged is not None:
            return [DynamicDimension.of(r).named(f"{word(info.name)}_{n}") for n, r in enumerate(ranged)]
        if not tensor.HasField("shape"):
            return None
        return [_extent(d, f"{word(info.name)}_{n}", options) for n, d in enumerate(tensor.shape.dim)]

    return shape_of_type(info.type, dims)  # type: ignore[no-any-return]


def _extent(d: Any, default_name: str, options: OnnxOptions) -> Dim:
    if d.HasField("dim_value") and d.dim_value > 0:
        return int(d.dim_value)
    if d.HasField("dim_value") and d.dim_value == 0:
        return 0
    if d.HasField("dim_param") and d.dim_param in options.dim_params:
        given = options.dim_params[d.dim_param]
        if isinstance(given, Sym):
            return given
        return _named(DynamicDimension.of(given), word(d.dim_param), options)
    if options.default_dim_value:
        return int(options.default_dim_value)
    name = word(d.dim_param) if d.HasField("dim_param") and d.dim_param else default_name
    if options.default_dyn_dim_value is not None:
        return _named(DynamicDimension.of(options.default_dyn_dim_value), name, options)
    return _named(DynamicDimension(0, UNBOUNDED), name, options)


def _named(of: DynamicDimension, name: str, options: OnnxOptions) -> Dim:
    if options.use_symbolic_shapes and not of.is_symbolic():
        return symbol(re.sub(r"\W", "_", name), of.min, of.max, of.optimals, written=True)
    return of.named(name)


def word(text: str) -> str:
    """Returns a name that is valid in the text form."""
    cleaned = re.sub(r"[^A-Za-z0-9_.]", "_", text)
    return cleaned if not cleaned[:1].isdigit() else "_" + cleaned
