"""Results of the loop compiler: a function with everything needed to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from mgx_core.records import dataclass

from .code import Code
from .engine import Engine, Function
from .native_loop import NativeLoop

__all__ = ["Interpreted", "JitKernel", "code_of"]


@dataclass
class JitKernel:
    """A compiled loop, or one of the native module, and the figures its executor needs.

    C signature: ``void f(void* const* buffers, const int64_t* args, int64_t begin, int64_t end, void* scratch)``.
    buffers: inputs, then outputs; work: items, [begin, end) is a range of them; grain: least items worth a thread of their
    own; scratch_bytes: 64-byte aligned memory for each thread; flops, bytes: rough figures for reports; inplace: inputs on which
    an output of the same element type and strides may lie; after: kernels to run next on the same buffers and
    workspace; workspace_bytes: memory shared by all threads, the last buffer (absent if 0); spare: of a loop
    that the machine runs, what it is compiled from later (`spare.py`).
    """

    name: str
    code: Function | NativeLoop
    work: int
    grain: int
    args: tuple[int, ...]
    scratch_bytes: int
    inputs: int
    outputs: int
    flops: int = 0
    bytes: int = 0
    inplace: frozenset[int] = frozenset()
    workspace_bytes: int = 0
    spare: list[Any] | None = None
    after: tuple[JitKernel, ...] = field(default=())

    @property
    def address(self) -> int:
        """The function's address; reading it compiles all pending functions."""
        return self.code.address

    @property
    def owner(self) -> Any:
        """Returns the object that keeps the machine code alive."""
        return self.code.engine


@dataclass
class Interpreted:
    """Numbers for the machine, and the bytes of scratch that it needs."""

    numbers: list[int]
    scratch_bytes: int


def code_of(
    engine: Engine, key: str, write: Callable[[Code], None], interpreted: Callable[[], Interpreted | None] | None
) -> tuple[Function, Interpreted | None]:
    """Returns what runs a loop: its own code, or the machine with the loop's numbers where LLVM would have to compile it.

    interpreted: gives these numbers, None for a loop that the machine cannot run; None where the machine may not run it.
    """
    code = engine.found(key, write)
    if code is None and interpreted is not None and engine.machine is not None:
        numbers = interpreted()
        if numbers is not None:
            return engine.machine, numbers
    return code or engine.function(key, write), None
