"""Everything that the programs of a process share: compiled loops, constants, and weights in other layouts."""

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
    """The owner of the target's caches; contexts report what it holds."""

    def __init__(self) -> None:
        self.weights = Weights()
        self.kernels = KernelCache()

    @cached_property
    def engine(self) -> Engine:
        """The loop compiler for this machine."""
        return Engine(ready=list(mgx_cpu_dnnl.__path__))

    def held(self) -> dict[str, Held]:
        """Returns what each cache holds in memory."""
        return {"compiled loops": self.engine.held(), "loop kernels": self.kernels.held(), **self.weights.held()}


def _told_by_types(body: Module) -> bool:
    """Returns True if the attributes of ops that have symbols follow from the types of their results."""
    return all(i.is_param or isinstance(i.op, (Broadcast, Multibroadcast)) or not i.op.symbols() for i in body)


KEPT: Final = 512


class KernelCache:
    """Kernels by signature of the body and shapes, and a number for each signature; the least recently used go first."""

    def __init__(self) -> None:
        self._kernels: Recent[Any] = Recent(KEPT)
        self._numbers: Recent[int] = Recent(KEPT)
        self._next = count(1)

    def kernel(self, body: Module | None, about: Hashable, shapes: Sequence[Shape], make: Callable[[], Any]) -> Any:
        """Returns the kernel that `make` gives, or the one made earlier for a structurally equal body and equal shapes.

        Errors: Refused if `make` refuses.
        """
        ident = 0 if body is None else body.derive("loop signature", self._ident)
        if ident is None:
            return or_refused(make())
        key = (ident, about, *shapes)
        found = self._kernels.get(key)
        return or_refused(self._kernels.put(key, make()) if found is None else found)

    def held(self) -> Held:
        """Returns the number of kernels; their code is the engine's."""
        return Held(len(self._kernels), 0)

    def _ident(self, body: Module) -> Hashable | None:
        """Returns what stands for the signature: of a copy, what it was copied from and the types in it, where these tell all."""
        pattern = body.pattern
        number: int | None = None
        if pattern is not body and pattern.derive("told by types", _told_by_types):
            number = pattern.derive("loop number", self._number)
        return self._number(body) if number is None else (number, *[i.result for i in body if not i.is_return])

    def _number(self, body: Module) -> int | None:
        """Returns a number that stands for the signature, so that it is compared once."""
        parts = signature(body)
        if parts is None:
            return None
        return self._numbers.get(parts) or self._numbers.put(parts, next(self._next))


OWNER: Final = Shared()  # made here, so that threads which ask first get the same


def shared() -> Shared:
    """Returns the process's one owner of caches."""
    return OWNER
