"""Fixes or bounds extents of a parsed program's parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from .errors import ParameterError, suggestion
from .ir.graph import Graph
from .log import log
from .program import Program
from .types.dim import Dim, symbols_of
from .types.dynamic_dimension import DynamicDimension
from .types.shape import AnyShape, Shape

__all__ = ["EXTENT_OPTIONS", "check_symbols", "requested_dims", "requested_range", "warn_overridden", "with_extents"]

EXTENT_OPTIONS: Final = (
    "default_dim_value",
    "default_dyn_dim_value",
    "dim_params",
    "map_input_dims",
    "map_dyn_input_dims",
)


def with_extents(
    program: Program,
    *,
    default_dim_value: int = 0,
    default_dyn_dim_value: Any = None,
    dim_params: Mapping[str, Any] | None = None,
    map_input_dims: Mapping[str, Sequence[Any]] | None = None,
    map_dyn_input_dims: Mapping[str, Sequence[Any]] | None = None,
) -> Program:
    """Returns the program with extents fixed or bounded; the same object if no option is set.

    default_dim_value: the extent of all other symbols (0: they stay symbolic); default_dyn_dim_value: their range; dim_params:
    an int or a range by symbol; map_input_dims, map_dyn_input_dims: all extents of parameters, by name.
    Errors: ParameterError for an unknown parameter or conflicting options; ShapeError for inconsistent extents.
    """
    if default_dim_value and default_dyn_dim_value is not None:
        raise ParameterError("default_dim_value and default_dyn_dim_value exclude each other: set one of them")
    shapes = program.get_parameter_shapes()
    check_symbols(dim_params or {}, _symbols_of(shapes.values()))
    symbols: dict[str, Dim] = {
        n: requested_range(v, f"dim_params[{n!r}]").named(n) for n, v in (dim_params or {}).items()
    }
    wanted = requested_dims(map_input_dims or {}, map_dyn_input_dims or {})
    parameters: dict[str, AnyShape] = {}
    for name, dims in wanted.items():
        shape = shapes.get(name)
        if not isinstance(shape, Shape):
            raise ParameterError(f"there is no tensor parameter {name!r}; {suggestion(name, shapes)}")
        if shape.ranked:
            warn_overridden(name, shape.dims, dims)
        parameters[name] = Shape.of(shape.dtype, dims)
    if default_dim_value or default_dyn_dim_value is not None:
        rest = sorted(_symbols_of(shapes.values()) - set(symbols))
        if default_dim_value:
            symbols |= dict.fromkeys(rest, default_dim_value)
        else:
            every = requested_range(default_dyn_dim_value, "default_dyn_dim_value")
            symbols |= {name: every.named(name) for name in rest}
    if not symbols and not parameters:
        return program
    main = program.get_main_module().clone(symbols, parameters=parameters)
    made = Program(Graph(main), program.get_output_names(), program.states)
    made.files, made.beside = program.files, program.beside
    return made


def requested_dims(
    map_input_dims: Mapping[str, Sequence[Any]], map_dyn_input_dims: Mapping[str, Sequence[Any]]
) -> dict[str, list[Dim]]:
    """Returns the extents requested by the two options, by input.  Errors: ParameterError for a name in both, invalid ranges."""
    for option, given in (("map_input_dims", map_input_dims), ("map_dyn_input_dims", map_dyn_input_dims)):
        if not isinstance(given, Mapping):
            raise ParameterError(f"{option} must be a mapping by name, got {given!r}")
    wanted: dict[str, list[Dim]] = {n: list(d) for n, d in map_input_dims.items()}
    for name, ranges in map_dyn_input_dims.items():
        if name in wanted:
            raise ParameterError(f"input {name!r} is in both map_input_dims and map_dyn_input_dims")
        places = enumerate(ranges)
        wanted[name] = [requested_range(r, f"map_dyn_input_dims[{name!r}]").named(f"{name}_{n}") for n, r in places]
    return wanted


def check_symbols(given: Iterable[str], known: Collection[str]) -> None:
    """Checks that names in `dim_params` are symbols of the model.  Errors: ParameterError."""
    for name in given:
        if name not in known:
            raise ParameterError(
                f"dim_params: no extent of the model's inputs is called {name!r}; {suggestion(name, sorted(known))}"
            )


def _symbols_of(shapes: Iterable[AnyShape]) -> set[str]:
    tensors = [s for s in shapes if isinstance(s, Shape) and s.ranked]
    return {s.name for shape in tensors for d in shape.dims for s in symbols_of(d)}


def warn_overridden(name: str, stated: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Logs a warning if static extents of the model are overridden; setting unknown extents is expected."""
    if len(stated) != len(wanted) or any(isinstance(d, int) and d != w for d, w in zip(stated, wanted, strict=True)):
        has, gets = (f"[{', '.join('?' if d is None else str(d) for d in dims)}]" for dims in (stated, wanted))
        log.warning("input %r: the extents %s of the model are overridden by %s", name, has, gets)


def requested_range(value: Any, option: str) -> DynamicDimension:
    """Converts an option's value to a range.  Errors: ParameterError that names the option."""
    try:
        return DynamicDimension.of(value)
    except (TypeError, KeyError, IndexError, ValueError):
        raise ParameterError(f"{option} must be an int or a range, got {value!r}") from None
