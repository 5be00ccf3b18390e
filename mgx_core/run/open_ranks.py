"""Programs in which extents decide ranks, for all values of changing extents from two on, which decide the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..compile.shape_specialization import needs_shapes, specialize_ranks
from ..compile.stages import optimize_module
from ..ir.module import Module
from ..ir.symbols import lone_symbols
from ..options import CompileOptions
from ..targets.open_program import OpenProgram
from ..targets.target import Target
from ..types.dim import Dim, symbol, symbols_of
from ..types.shape import Shape, symbols_in
from ..types.traced_int import SMALLEST
from .branch_pieces import deciding_rank
from .device_pieces import DeviceMemory
from .open_pieces import OpenPart, OpenPieces

__all__ = ["open_ranks"]


def open_ranks(
    module: Module,
    known: Mapping[str, int],
    changing: frozenset[str],
    target: Target,
    context: Any,
    options: CompileOptions,
    make: Callable[[Module, frozenset[str]], OpenPart],
    failed: Callable[[], None],
    memory: DeviceMemory | None = None,
) -> OpenProgram | None:
    """Returns the program of a module for all values of the changing extents; None if ranks remain unknown.

    known: extents of a run; make: compiles a module for changing extents; failed, memory: as of `OpenPieces`.
    """
    types = [p.result for p in module.parameters.values()]
    if not changing <= frozenset[str]().union(*map(lone_symbols, types)) or not symbols_in(types) <= known.keys():
        return None
    ranked = _ranked(module, known, changing, target, context, options)
    if ranked is None:
        return None
    found = None if deciding_rank(ranked) else OpenPieces.program(ranked, known, changing, make, failed, memory)
    if found is None:
        found = OpenPieces.whole(ranked, changing, make, failed, memory).opened(known, changing, replaced=True)
    return found._replace(fits=lambda given: min(given[n] for n in changing) >= SMALLEST and found.fits(given))


def _ranked(
    module: Module,
    known: Mapping[str, int],
    changing: frozenset[str],
    target: Target,
    context: Any,
    options: CompileOptions,
) -> Module | None:
    """Returns an optimized copy of a module whose changing extents are at least SMALLEST; None if ranks remain unknown."""
    declared = {name: p.result for name, p in module.parameters.items()}
    values: dict[str, Dim] = {}
    for dim in (d for s in declared.values() if isinstance(s, Shape) and s.ranked for d in s.dims):
        for s in symbols_of(dim):
            values[s.name] = symbol(s.name, max(s.lo, SMALLEST), s.hi) if s.name in changing else known[s.name]
    copy = module.clone(values, parameters={name: s.substitute(values) for name, s in declared.items()})
    optimize_module(copy, options, target, context, before="legalize")
    while (found := specialize_ranks(copy)) is not None:
        copy = found
        optimize_module(copy, options, target, context, before="legalize")
    if needs_shapes(copy):
        return None
    optimize_module(copy, options, target, context)
    return copy
