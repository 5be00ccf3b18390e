"""Fast path for repeated calls: finds the instance for arguments whose element types and extents were validated before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ..types.argument import Argument, Value

__all__ = ["ArgumentCache", "ArgumentKey", "argument_key"]

MOST_KEYS: Final = 64  # cached sets of element types and extents
NUMERIC: Final = frozenset("biufc")
STRINGS: Final = frozenset([str])

Made = TypeVar("Made")  # an instance of an executable
ArgumentKey = tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]


def argument_key(
    parameters: Mapping[str, Any],
    names: Iterable[str],
    held: Mapping[str, Argument],
    accept: Callable[[Any], Value | None] | None = None,
) -> tuple[ArgumentKey, list[Any]] | None:
    """Returns the key (element types and extents) and the arrays of arguments; None if the key does not determine validity.

    It does for C-contiguous arrays in host memory of numbers in native byte order or of `str`, also inside an `Argument`, and
    for tensors in the target's memory.
    held: results of an earlier run used as arguments, whose types never change; accept: returns a tensor in the target's memory,
    None for other values.
    """
    if type(parameters) is not dict:
        return None
    key = []
    values = []
    for name in names:
        if name in held:
            value = held[name].value
            if type(value) is not np.ndarray:
                return None
            values.append(value)
            continue
        value = parameters.get(name)
        if isinstance(value, Argument):
            value = value.value
        if type(value) is not np.ndarray:
            there = None if accept is None else _accepted(accept, value)
            if there is None:
                return None
            shape = there.device_shape
            key.append((shape.numpy_dtype, shape.dims))
            values.append(there)
            continue
        if not value.flags.c_contiguous:
            return None
        dtype = value.dtype
        if dtype.kind in NUMERIC:
            valid = dtype.isnative
        else:
            valid = dtype.kind == "O" and STRINGS.issuperset(map(type, value.ravel().tolist()))
        if not valid:
            return None
        key.append((dtype, value.shape))
        values.append(value)
    return (tuple(key), values) if len(key) == len(parameters) else None


def _accepted(accept: Callable[[Any], Any], value: Any) -> Any:
    """Returns a tensor in the target's memory; None for other values, and for those whose binding reports an error."""
    try:
        return accept(value)
    except Exception:
        return None


class ArgumentCache(Generic[Made]):
    """Instances by key; a bounded, thread-safe cache."""

    def __init__(self) -> None:
        self._instances: dict[ArgumentKey, Made] = {}

    def get(self, key: ArgumentKey) -> Made | None:
        """Returns the instance for arguments that were validated before."""
        return self._instances.get(key)

    def keep(self, key: ArgumentKey, given: Sequence[Any], values: Sequence[Value], instance: Made) -> None:
        """Adds validated arguments, if binding passed them through without conversion."""
        if all(v is g for v, g in zip(values, given, strict=True)):
            if len(self._instances) >= MOST_KEYS:
                self._instances = {}
            self._instances[key] = instance

    def forget(self) -> None:
        """Removes all entries after an instance was evicted."""
        self._instances = {}
