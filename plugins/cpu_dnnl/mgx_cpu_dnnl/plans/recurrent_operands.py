"""Operands of recurrent layers."""

from __future__ import annotations

from mgx_core.records import dataclass
from mgx_core.targets.values import Value

__all__ = ["Operands"]


@dataclass(frozen=True)
class Operands:
    """x [t, b, i]; w [d, g h, i], r [d, g h, h], bias [d, 2 g h]; lengths [b]; states, cells [d, b, h]; peepholes [d, 3 h].

    All except w, r and bias are row-major.  None: no bias, full lengths, zeros, no peepholes.
    """

    x: Value
    w: Value
    r: Value
    bias: Value | None
    lengths: Value | None
    state: Value | None
    cell: Value | None
    peepholes: Value | None

    @property
    def directions(self) -> int:
        return self.w.lens[0]
