"""Fast path for repeated calls: finds the instance for arguments whose element types and extents were validated before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ..types.argument import Argument, Value

__all__ = ["Key", "Known", "plain"]

KINDS: Final = 64  # sets of element types and extents that are kept
NUMBERS: Final = frozenset("biufc")

Made = TypeVar("Made")  # an instance of an executable
Key = tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]


def plain(
    parameters: Mapping[str, Any], names: Iterable[str], held: Mapping[str, Argument]
) -> tuple[Key, list[Any]] | None:
    """Returns element types and extents of arguments, and all arrays; None if checks look at more of them than that.

    They look at nothing else of row-major arrays of numbers in host memory, in the machine's byte order, and of such arrays in
    an `Argument`.  held: results of an earlier run that are arguments of this one, whose types never vary.
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
        if type(value) is not np.ndarray or not value.flags.c_contiguous:
            return None
        dtype = value.dtype
        if dtype.kind not in NUMBERS or not dtype.isnative:
            return None
        key.append((dtype, value.shape))
        values.append(value)
    return (tuple(key), values) if len(key) == len(parameters) else None


class Known(Generic[Made]):
    """A bounded table; safe to use from several threads."""

    def __init__(self) -> None:
        self._instances: dict[Key, Made] = {}

    def get(self, key: Key) -> Made | None:
        """Returns the instance for arguments that have passed the checks."""
        return self._instances.get(key)

    def keep(self, key: Key, given: Sequence[Any], values: Sequence[Value], instance: Made) -> None:
        """Notes arguments that have passed, if they are run as they were given."""
        if all(v is g for v, g in zip(values, given, strict=True)):
            if len(self._instances) >= KINDS:
                self._instances = {}
            self._instances[key] = instance

    def forget(self) -> None:
        """Drops all entries, since an instance was dropped."""
        self._instances = {}
