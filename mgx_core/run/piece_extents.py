"""Passes pieces the values whose extents they mention."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.symbols import introduced, lone_symbols, mentioned

__all__ = ["take_extents"]


def take_extents(body: Module, takes: list[Instruction], sources: Sequence[Instruction]) -> bool:
    """Adds parameters to a piece for extents that it mentions and does not define; returns False if one remains undefined.

    takes: the values that are its parameters; sources: values that it may take.
    """
    wanted = mentioned(body).difference(
        *(introduced(i) for i in body if not i.is_param), *(lone_symbols(p.result) for p in body.parameters.values())
    )
    for source in sources:
        if wanted & lone_symbols(source.result):
            body.add_parameter(str(len(takes)), source.result)
            takes.append(source)
            wanted -= lone_symbols(source.result)
    return not wanted
