"""Runs C kernels on buffers with guard bytes, to detect out-of-bounds writes (option ``validate``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core.errors import PluginError
from mgx_core.targets.kernel_emission import HostFunction
from mgx_core.types.argument import Array

__all__ = ["guarded"]

MARGIN: Final = 4096  # guard bytes on each side
ALIGNMENT: Final = 64
PATTERN: Final = 0xA5
SIGNATURE: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def guarded(
    title: str,
    address: int,
    owner: Any,
    numbers: Sequence[int],
    count: int,
    scratch_bytes: int,
    results: Sequence[Shape],
) -> HostFunction:
    """Returns a function on arrays that calls a C function on guarded copies of them.

    title: of the kernel, for messages; owner: kept alive; the others as in the executor.
    Raises PluginError if the function writes to an operand, or outside of a result or its scratch memory.
    """
    function = SIGNATURE(address)
    alive = function, owner

    def call(arrays: Sequence[Array]) -> list[Array]:
        operands = [_Guarded(a.nbytes, a) for a in arrays]
        made = [_Guarded(s.bytes()) for s in results]
        scratch = _Guarded(scratch_bytes)
        buffers = (ctypes.c_void_p * (len(operands) + len(made)))(*(g.address for g in (*operands, *made)))
        args = (ctypes.c_int64 * len(numbers))(*numbers)
        alive[0](buffers, args, 0, count, scratch.address)
        for what, memories in (("operand", operands), ("result", made), ("scratch memory", [scratch])):
            for n, memory in enumerate(memories):
                at = memory.damaged()
                if at is not None:
                    where = f"its {what}" + ("" if memory is scratch else f" {n}")
                    raise PluginError(
                        f"{title} wrote at byte {at} of {where}, which has {memory.inside.size} bytes; "
                        "kernels may only write to their results and scratch memory"
                    )
        return [g.inside.view(s.dtype.numpy).reshape(s.lens()) for g, s in zip(made, results, strict=True)]

    return call


class _Guarded:
    """A buffer between guard bytes; given: initial contents, which must not change."""

    def __init__(self, size: int, given: Array | None = None) -> None:
        self._memory = np.full(size + 2 * MARGIN + ALIGNMENT, PATTERN, np.uint8)
        start = MARGIN + -(self._memory.ctypes.data + MARGIN) % ALIGNMENT
        self._before, self.inside = self._memory[:start], self._memory[start : start + size]
        self._after = self._memory[start + size :]
        self.address = self._memory.ctypes.data + start
        self._kept: Array | None = None
        if given is not None:
            self.inside[:] = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
            self._kept = self.inside.copy()

    def damaged(self) -> int | None:
        """Returns the offset of the first byte that was wrongly overwritten; None if there is none."""
        before, after = np.flatnonzero(self._before != PATTERN), np.flatnonzero(self._after != PATTERN)
        if before.size:
            return int(before[0]) - self._before.size
        if after.size:
            return self.inside.size + int(after[0])
        if self._kept is not None and not np.array_equal(self._kept, self.inside):
            return int(np.flatnonzero(self._kept != self.inside)[0])
        return None
