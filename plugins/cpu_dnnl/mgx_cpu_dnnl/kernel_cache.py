"""Loops shared by structurally equal groups: the layers of a network repeat a few, so each is read and planned once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from threading import Lock
from typing import Any, Final

from mgx_core import Module, Shape
from mgx_core.ir.equality import signature

__all__ = ["cached_kernel"]

KEPT: Final = 512
_numbers: OrderedDict[Hashable, int] = OrderedDict()
_next = count(1)
_lock = Lock()


def cached_kernel(
    engine: Any, body: Module | None, about: Hashable, shapes: Sequence[Shape], make: Callable[[], Any]
) -> Any:
    """Returns the kernel that `make` gives, or the one made earlier for a structurally equal body and equal shapes."""
    ident = 0 if body is None else body.derive("loop signature", _number)
    if ident is None:
        return make()
    kernels, key = engine.kernels, (ident, about, *shapes)
    with _lock:
        found = kernels.get(key)
        if found is not None:
            kernels.move_to_end(key)
    if found is None:
        found = make()
        with _lock:
            kernels[key] = found
            while len(kernels) > KEPT:
                kernels.popitem(last=False)
    return found


def _number(body: Module) -> int | None:
    """A number that stands for the signature, so that it is compared once."""
    parts = signature(body)
    if parts is None:
        return None
    with _lock:
        found = _numbers.get(parts)
        if found is None:
            found = _numbers[parts] = next(_next)
            while len(_numbers) > KEPT:
                _numbers.popitem(last=False)
        else:
            _numbers.move_to_end(parts)
    return found
