"""The process-wide caches: compiled loops, constants and packed weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from itertools import count
from typing import Any, Final

import mgx_cpu_dnnl
from mgx_core import Module, Shape
from mgx_core.cache import Held, Recent
from mgx_core.errors import or_refused
from mgx_core.ir.equality import signature
from mgx_core.ops.broadcast import Broadcast, Multibroadcast

from .jit.engine import Engine
from .packing import Weights

__all__ = ["KernelCache", "Shared", "shared"]


class Shared:
    """Owns the target's caches; contexts report their sizes."""

    def __init__(self) -> None:
        self.weights = Weights()
        self.kernels = KernelCache()

    @cached_property
    def engine(self) -> Engine:
        """The loop compiler."""
        return Engine(ready=list(mgx_cpu_dnnl.__path__))

    def held(self) -> dict[str, Held]:
        """Reports the size of each cache."""
        return {"compiled loops": self.engine.held(), "loop kernels": self.kernels.held(), **self.weights.held()}


def _determined_by_types(body: Module) -> bool:
    """Returns True if the symbolic attributes of ops are determined by their result types."""
    return all(i.is_param or isinstance(i.op, (Broadcast, Multibroadcast)) or not i.op.symbols() for i in body)


KEPT: Final = 512


class KernelCache:
    """An LRU cache of kernels by signature of body and shapes, with interned signatures."""

    def __init__(self) -> None:
        self._kernels: Recent[Any] = Recent(KEPT)
        self._numbers: Recent[int] = Recent(KEPT)
        self._next = count(1)

    def kernel(self, body: Module | None, about: Hashable, shapes: Sequence[Shape], make: Callable[[], Any]) -> Any:
        """Returns the cached kernel for a structurally equal body and equal shapes, else that of `make`.

        Errors: Refused if `make` refuses.
        """
        ident = 0 if body is None else body.derive("loop signature", self._ident)
        if ident is None:
            return or_refused(make())
        key = (ident, about, *shapes)
        found = self._kernels.get(key)
        return or_refused(self._kernels.put(key, make()) if found is None else found)

    def held(self) -> Held:
        """Reports the number of kernels; their code belongs to the engine."""
        return Held(len(self._kernels), 0)

    def _ident(self, body: Module) -> Hashable | None:
        """Returns a key equivalent to the signature: for a copy, its original and result types, if these determine it."""
        pattern = body.pattern
        number: int | None = None
        if pattern is not body and pattern.derive("determined by types", _determined_by_types):
            number = pattern.derive("loop number", self._number)
        return self._number(body) if number is None else (number, *[i.result for i in body if not i.is_return])

    def _number(self, body: Module) -> int | None:
        """Interns the signature: returns its number, so that it is compared only once."""
        parts = signature(body)
        if parts is None:
            return None
        return self._numbers.get(parts) or self._numbers.put(parts, next(self._next))


OWNER: Final = Shared()  # created eagerly, so that concurrent first calls get the same object


def shared() -> Shared:
    """Returns the process-wide caches."""
    return OWNER
