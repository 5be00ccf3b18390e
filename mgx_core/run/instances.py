"""Cache of an executable's instances, keyed by the shapes of its parameters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..types.argument import Value
from ..types.shape import AnyShape
from .binding import tensor_type
from .instance import Instance
from .known import Key, Known

__all__ = ["Instances"]


class Instances:
    """Instances by the types of all parameters' values; safe to use from several threads.

    parameters: their declared shapes; where none is open there is one instance, made at once.
    fits: tells whether so many are held; the one that was not used for the longest time is given up first.
    make: returns a new instance for shapes of the parameters by name.
    given_up: called after an instance was given up.
    """

    def __init__(
        self,
        parameters: Mapping[str, AnyShape],
        fits: Callable[[int], bool],
        make: Callable[[Mapping[str, AnyShape]], Instance],
        given_up: Callable[[], object],
    ) -> None:
        self._names = list(parameters)
        self._fits = fits
        self._make = make
        self._given_up = given_up
        self._held: OrderedDict[tuple[AnyShape, ...], Instance] = OrderedDict()
        self._making: dict[tuple[AnyShape, ...], threading.Lock] = {}  # by the types of those that are being made
        self._known: Known[Instance] = Known()
        self._latest: Instance | None = None
        self._lock = threading.RLock()
        self._fixed = None if any(s.dynamic() for s in parameters.values()) else make({})

    def all(self) -> list[Instance]:
        """Returns those made so far, least recently used first."""
        if self._fixed is not None:
            return [self._fixed]
        with self._lock:
            return list(self._held.values())

    def known(self, key: Key) -> Instance | None:
        """Returns the instance that ran arguments of these element types and extents before."""
        found = self._known.get(key)
        if found is not None:
            self._use(found)
        return found

    def keep(self, key: Key, given: Sequence[object], values: Sequence[Value]) -> None:
        """Notes arguments that have passed all checks, with the instance that ran them if it was not given up since."""
        with self._lock:
            instance = self._fixed or self._held.get(_types(values))
            if instance is not None:
                self._known.keep(key, given, values, instance)

    def of(self, values: Sequence[Value]) -> tuple[Instance, bool]:
        """Returns the instance for the types of these values, and True if it was made now."""
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
        with making:  # threads that ask for one shape at once wait for the first; others go on
            found = self._held.get(key)
            if found is not None:
                return found, False
            try:
                made = self._made(key)
                self._hold(key, made)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return made, True

    def _hold(self, key: tuple[AnyShape, ...], made: Instance) -> None:
        """Keeps a new instance, and gives up those that are too many."""
        with self._lock:
            self._held[key] = self._latest = made
            while len(self._held) > 1 and not self._fits(len(self._held)):
                self._held.popitem(last=False)
                self._known.forget()
                self._given_up()

    def restore(self, saved: Iterable[Mapping[str, AnyShape]], parameters: Mapping[str, AnyShape]) -> bool:
        """Makes the instances for saved shapes of open parameters; False, and none, if some would have to go for that."""
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
        made.key = key
        return made

    def _use(self, instance: Instance) -> None:
        """Notes that an instance is used."""
        if instance is not self._latest and self._fixed is None:
            with self._lock:
                if instance.key in self._held:
                    self._held.move_to_end(instance.key)
                self._latest = instance


def _types(values: Sequence[Value]) -> tuple[AnyShape, ...]:
    return tuple([tensor_type(v) for v in values])
