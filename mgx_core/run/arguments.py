"""Binds the arguments of a run: input values by parameter name, and the caller's memory for results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..errors import MgxError, ParameterError, ShapeError
from ..targets.calls import failure
from ..targets.target import Target
from ..types.argument import Argument, Value, as_value, shape_of
from ..types.shape import AnyShape, matches
from ..types.symbol_binding import bind_all, bind_symbols, check_symbols
from .binding import as_parameter, described

__all__ = ["OUTPUT", "Arguments"]

OUTPUT: Final = "main:#output_"  # prefix of the parameters that provide memory for results


class Arguments:
    """Checks arguments against the parameters of one executable.

    outputs: returns the shapes of the results, if callers may provide memory for them; None if results are always new arrays.
    """

    def __init__(
        self,
        parameters: Mapping[str, AnyShape],
        target: Target,
        context: Any,
        outputs: Callable[[], Sequence[AnyShape]] | None,
    ) -> None:
        self._parameters = parameters
        self._target = target
        self._context = context
        self._outputs = outputs

    @cached_property
    def places(self) -> dict[str, AnyShape]:
        """Shapes of the results by the names of the parameters that provide their memory."""
        return {} if self._outputs is None else {f"{OUTPUT}{n}": s for n, s in enumerate(self._outputs())}

    def bind(self, parameters: Mapping[str, Any]) -> list[Value]:
        """Returns checked values in the order of the parameters.  Errors: ParameterError."""
        if not isinstance(parameters, Mapping):
            raise ParameterError(
                f"run takes a mapping from parameter names ({', '.join(map(repr, self._parameters)) or 'none here'}) to values, "
                f"got a value of type {type(parameters).__name__}"
            )
        for name in parameters:
            if name not in self._parameters and name not in self.places:
                there = ", ".join(map(repr, (*self._parameters, *self.places)))
                raise ParameterError(f"there is no parameter {name!r}; known are {there}")
        values: list[Value] = []
        symbols: dict[str, int] = {}
        for name, shape in self._parameters.items():
            if name not in parameters:
                raise ParameterError(f"parameter {name!r} ({shape}) is missing")
            values.append(self._value(name, parameters[name], shape))
        for name, value in zip(self._parameters, values, strict=True):
            self._check_extents(name, value, symbols)
            bind_symbols(self._parameters[name], value, symbols)
        bind_all(self._parameters.values(), values, symbols)
        for name, value in zip(self._parameters, values, strict=True):
            # again: symbols may be bound by later parameters
            self._check_extents(name, value, symbols)
        return values

    def _value(self, name: str, given: Any, shape: AnyShape) -> Value:
        """Returns a caller's value; one in the target's memory is used without a copy."""
        try:
            taken = self._target.accept(given, self._context)
        except (MgxError, MemoryError):
            raise
        except Exception as error:
            raise failure(self._target, "accept", error) from error
        if taken is None:
            return as_parameter(name, given, shape)
        if not matches(shape, shape_of(taken)):
            raise ParameterError(f"parameter {name!r} must be {described(shape)}, got {described(shape_of(taken))}")
        return taken

    def _check_extents(self, name: str, value: Value, symbols: Mapping[str, int]) -> None:
        try:
            check_symbols(self._parameters[name], value, symbols, f"parameter {name!r}")
        except ShapeError as error:
            raise ParameterError(error.message) from None

    def places_in(self, parameters: Mapping[str, Any]) -> dict[int, Value]:
        """Returns the caller's memory for results by index.  Errors: ParameterError if its type does not match."""
        outputs = list(self.places.values())
        found = {}
        for name, given in parameters.items():
            if name.startswith(OUTPUT):
                number = int(name[len(OUTPUT) :])
                value = self._value(name, given, outputs[number])
                shared = not isinstance(value, np.ndarray) or np.may_share_memory(value, as_value(given))
                if not shared or (isinstance(value, np.ndarray) and not value.flags.writeable):
                    raise ParameterError(f"parameter {name!r} must be writable memory for a result, got {given!r}")
                found[number] = value
        return found

    def deliver(self, results: list[Argument], places: Mapping[int, Value]) -> list[Argument]:
        """Copies results to the caller's memory, unless they were written there; returns the results."""
        for number, place in places.items():
            if shape_of(results[number].value) != shape_of(place):
                raise ParameterError(
                    f"parameter '{OUTPUT}{number}' must be {results[number].shape}, got {shape_of(place)}"
                )
            delivered = Argument.from_value(place)
            if results[number].data_ptr() != delivered.data_ptr():
                self._context.copy(results[number].value, place)
            results[number] = delivered
        return results
