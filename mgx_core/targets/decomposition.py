"""Decomposition of an op: the members of a group, or what its `decompose` gives."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import MgxError
from ..ir.module import Module
from ..ops.control import FusedReduce, Group, PointwiseGroup
from ..ops.operation import Operation
from ..rules.engine import Builder
from ..types.shape import AnyShape

__all__ = ["decomposed", "members_of"]


def members_of(op: Operation, modules: Sequence[Module]) -> Module | None:
    """The body of a group that can be taken apart."""
    if not isinstance(op, (Group, PointwiseGroup, FusedReduce)) or len(modules) != 1:
        return None
    members = [i for i in modules[0] if not (i.is_param or i.is_return)]
    return modules[0] if len(members) > 1 or type(members[0].op) is not type(op) or members[0].modules else None


def decomposed(op: Operation, shapes: Sequence[AnyShape | None], modules: Sequence[Module] = ()) -> Module | None:
    """Decomposes an op into a module of its operands; None if it has no decomposition for these shapes."""
    decompose = op.decompose
    if decompose is None or modules:
        return None
    body = Module("decomposed")
    operands = [body.add_absent() if s is None else body.add_parameter(f"x{n}", s) for n, s in enumerate(shapes)]
    ins = body.add(op, *operands)
    builder = Builder(body, ins)
    try:
        new = decompose(builder, *(None if i.is_absent else i for i in operands))
    except MgxError:
        return None
    if new is None:
        return None
    body.add_return([new])
    body.sweep()
    return body
