"""Converter table of Flex operators in TFLite models, filled when a model contains the first one."""

from __future__ import annotations

from mgx_core.converting.converters import Converters

__all__ = ["FLEX"]


def _add() -> None:
    from .flex import add_to  # imports all converter families

    add_to(FLEX)


FLEX = Converters([_add])
