"""The table of converters for TensorFlow's operators inside TFLite models; it is filled when a model has such an operator."""

from __future__ import annotations

from mgx_core.converting.converters import Converters

__all__ = ["FLEX"]


def _add() -> None:
    from .flex import add_to  # which imports every family of ours

    add_to(FLEX)


FLEX = Converters([_add])
