"""Predicates on groups for plans: their tag and their anchor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import No
from ..ir.module import Module
from ..ops.operation import Operation
from ..types.shape import AnyShape
from .emitted import Check

__all__ = ["around", "tagged"]


def tagged(tag: str, what: str) -> Check:
    """Declines groups with another tag; what: describes groups with this tag, for the reason."""

    def check(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
        return None if op.tag == tag else No(f"the group is not {what}")

    return check


def around(*anchors: type[Operation], when: Check | None = None, tag: str | None = None) -> Check:
    """Declines groups that contain none of these ops, or whose first one is declined by `when`.

    tag: required tag, if any.
    """

    def check(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
        anchor = next((i for i in modules[0] if isinstance(i.op, anchors)), None)
        if anchor is None or tag not in (None, op.tag):
            return No(f"the group is not a {' or '.join(a.name for a in anchors)} with an epilogue")
        return None if when is None else when(anchor.op, [i.result for i in anchor.inputs], ())

    return check
