"""Cache of an executable's instances, keyed by the shapes of its parameters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..types.argument import Value
from ..types.shape import AnyShape
from .argument_cache import ArgumentCache, ArgumentKey
from .binding import tensor_type
from .instance import Instance

__all__ = ["Instances"]


class Instances:
    """LRU cache of instances by the types of all parameters' values; thread-safe.

    parameters: their declared shapes; if all are static, the only instance is created at once.
    fits: returns True if a given number of instances may be cached.
    make: creates an instance for shapes of the parameters by name.
    evicted: called after an instance was evicted.
    """

    def __init__(
        self,
        parameters: Mapping[str, AnyShape],
        fits: Callable[[int], bool],
        make: Callable[[Mapping[str, AnyShape]], Instance],
        evicted: Callable[[], object],
    ) -> None:
        self._names = list(parameters)
        self._fits = fits
        self._make = make
        self._evicted = evicted
        self._held: OrderedDict[tuple[AnyShape, ...], Instance] = OrderedDict()
        self._making: dict[tuple[AnyShape, ...], threading.Lock] = {}  # of instances being created
        self._validated: ArgumentCache[Instance] = ArgumentCache()
        self._latest: Instance | None = None
        self._lock = threading.RLock()
        self._fixed = None if any(s.dynamic() for s in parameters.values()) else make({})

    def all(self) -> list[Instance]:
        """Returns the cached instances, least recently used first."""
        if self._fixed is not None:
            return [self._fixed]
        with self._lock:
            return list(self._held.values())

    def validated(self, key: ArgumentKey) -> Instance | None:
        """Returns the instance that has run arguments of these element types and extents before."""
        found = self._validated.get(key)
        if found is not None:
            self._use(found)
        return found

    def keep(self, key: ArgumentKey, given: Sequence[object], values: Sequence[Value]) -> None:
        """Records validated arguments with the instance that ran them, if it is still cached."""
        with self._lock:
            instance = self._fixed or self._held.get(_types(values))
            if instance is not None:
                self._validated.keep(key, given, values, instance)

    def of(self, values: Sequence[Value]) -> tuple[Instance, bool]:
        """Returns the instance for the types of these values, and True if it was just created."""
        return self.of_types(_types(values)) if self._fixed is None else (self._fixed, False)

    def of_types(self, key: tuple[AnyShape, ...]) -> tuple[Instance, bool]:
        """Like `of`, for the types of all values."""
        if self._fixed is not None:
            return self._fixed, False
        found = self._held.get(key)
        if found is not None:
            self._use(found)
            return found, False
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:  # threads wait only for an instance of their own shapes
            found = self._held.get(key)
            if found is not None:
                return found, False
            try:
                made = self._made(key)
                if made.key == key:
                    self._hold(key, made)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return made, True

    def _hold(self, key: tuple[AnyShape, ...], made: Instance) -> None:
        """Adds a new instance, and evicts the least recently used ones beyond the limit."""
        with self._lock:
            self._held[key] = self._latest = made
            while len(self._held) > 1 and not self._fits(len(self._held)):
                self._held.popitem(last=False)
                self._validated.forget()
                self._evicted()

    def restore(self, saved: Iterable[Mapping[str, AnyShape]], parameters: Mapping[str, AnyShape]) -> bool:
        """Creates the instances for saved shapes; creates none and returns False if that would evict others."""
        if self._fixed is not None:
            return True
        keys = [tuple(shapes.get(n, s) for n, s in parameters.items()) for shapes in saved]
        with self._lock:
            missing = [k for k in keys if k not in self._held]
            if not self._fits(len(self._held) + len(missing)):
                return False
            for key in missing:
                self._held[key] = self._made(key)
                self._held.move_to_end(key, last=False)
        return True

    def _made(self, key: tuple[AnyShape, ...]) -> Instance:
        made = self._make(dict(zip(self._names, key, strict=True)))
        made.key = made.key or key  # an open instance is not cached for each set of types
        return made

    def _use(self, instance: Instance) -> None:
        """Marks an instance as most recently used."""
        if instance is not self._latest and self._fixed is None:
            with self._lock:
                if instance.key in self._held:
                    self._held.move_to_end(instance.key)
                self._latest = instance


def _types(values: Sequence[Value]) -> tuple[AnyShape, ...]:
    return tuple([tensor_type(v) for v in values])
