"""Kernels: the result of the loop compiler, a function with all that an executor needs to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from mgx_core.records import dataclass

from .code import Code
from .deferred import Deferred
from .engine import Engine, Function
from .native_loop import NativeLoop

__all__ = ["Interpreted", "JitKernel", "code_of"]


@dataclass
class JitKernel:
    """A compiled loop or a loop of the native module, with the metadata that the executor needs.

    C signature: ``void f(void* const* buffers, const int64_t* args, int64_t begin, int64_t end, void* scratch)``.
    buffers: inputs, then outputs; work: number of work items, [begin, end) is a range of them; grain: minimum items per thread;
    scratch_bytes: 64-byte aligned memory per thread; flops, bytes: estimates for reports; inplace: inputs that may alias an
    output of the same element type and strides; after: kernels to run next on the same buffers and workspace; workspace_bytes:
    memory shared by all threads, passed as the last buffer (absent if 0); deferred: of an interpreted loop, the description
    from which it is compiled later (`deferred.py`); second: a kernel that runs next on the same buffers, as part of the same
    step, so that one compiled loop can replace both.
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
    deferred: Deferred | None = None
    after: tuple[JitKernel, ...] = field(default=())
    second: JitKernel | None = None

    @property
    def address(self) -> int:
        """Returns the function's address; compiles all pending functions."""
        return self.code.address

    @property
    def owner(self) -> Any:
        """Returns the object that owns the machine code."""
        return self.code.engine if self.second is None else (self.code.engine, self.second.owner)

    @property
    def then(self) -> list[tuple[int, Sequence[int], int, int]]:
        """Returns address, arguments, work and grain of the kernels that run in the same step."""
        last = self.second
        return [] if last is None else [(last.address, last.args, last.work, last.grain), *last.then]


@dataclass
class Interpreted:
    """Bytecode for the native interpreter, and the bytes of scratch memory that it needs."""

    numbers: list[int]
    scratch_bytes: int


def code_of(
    engine: Engine, key: str, write: Callable[[Code], None], interpreted: Callable[[], Interpreted | None] | None
) -> tuple[Function, Interpreted | None]:
    """Returns a loop's compiled function, or the interpreter and the loop's bytecode if LLVM would have to compile it.

    interpreted: encodes the loop; returns None if the interpreter does not support it. None: never interpret.
    """
    code = engine.found(key, write)
    if code is None and interpreted is not None and engine.interpreter is not None:
        numbers = interpreted()
        if numbers is not None:
            return engine.interpreter, numbers
    return code or engine.function(key, write), None
