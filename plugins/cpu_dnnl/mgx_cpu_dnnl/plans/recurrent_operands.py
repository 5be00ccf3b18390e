"""Operands of recurrent layers, checked and converted for the kernels."""

from __future__ import annotations

from mgx_core.records import dataclass
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array

__all__ = ["Operands"]


@dataclass(frozen=True)
class Operands:
    """x [t, b, i], row-major; w [d, g h, i], r [d, g h, h], bias [d, 2 g h]; initial states and cells [d, b, h] (None: zeros)."""

    x: Value
    w: Array
    r: Array
    bias: Array | None
    state: Value | None
    cell: Value | None

    @property
    def directions(self) -> int:
        return int(self.w.shape[0])
