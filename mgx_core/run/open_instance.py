"""Instances that run for all values of extents that keep changing."""

from __future__ import annotations

from collections.abc import Mapping

from ..targets.open_program import OpenProgram
from ..types.dim import Sym, Symbol, substitute
from ..types.shape import AnyShape, Shape
from .argument_cache import ArgumentKey
from .instance import Instance

__all__ = ["OpenInstance"]


class OpenInstance:
    """An instance that a target has opened for changing extents.

    parameters: the declared types.
    """

    def __init__(self, program: OpenProgram, instance: Instance, parameters: Mapping[str, AnyShape]) -> None:
        self.program = program
        self.instance = instance
        self._declared = [_declared(shape) for shape in parameters.values()]

    def takes(self, key: ArgumentKey) -> bool:
        """Returns True if it runs for arguments of these element types and extents, and they are valid."""
        if len(key) != len(self._declared):
            return False
        known: dict[str, int] = {}
        derived: list[tuple[int, Sym]] = []
        for (dtype, lens), declared in zip(key, self._declared, strict=True):
            if declared is None or dtype != declared[0] or len(lens) != len(declared[1]):
                return False
            for n, d in zip(lens, declared[1], strict=True):
                if isinstance(d, int):
                    if n != d:
                        return False
                elif isinstance(d, Sym):
                    derived.append((n, d))
                elif known.setdefault(d.name, n) != n or not d.lo <= n <= d.hi:
                    return False
        return all(substitute(d, known) == n for n, d in derived) and self.program.fits(known)


def _declared(shape: AnyShape) -> tuple[object, list[int | Symbol | Sym]] | None:
    """Returns the element type and extents of a tensor: numbers, symbols and expressions; None for other parameters."""
    if not isinstance(shape, Shape) or not shape.ranked:
        return None
    return shape.numpy_dtype, [d if isinstance(d, int) else d.symbol or d for d in shape.dims]
