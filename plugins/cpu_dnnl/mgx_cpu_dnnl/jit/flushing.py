"""Code in which numbers below the normal range count as 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .code import Code, V

__all__ = ["flushed"]

FLUSH: Final = 0x8040  # of the processor's mode: such results are 0, and so are such operands


def flushed(c: Code, body: Callable[[], None]) -> None:
    """Writes `body` so that it runs in that mode: an operation on one such number takes the processor 100 times longer."""
    usual = c.stack("i32", 2)
    flushing = c.gep(usual, 1, "i32")
    c.declared["stmxcsr"] = "declare void @llvm.x86.sse.stmxcsr(ptr)"
    c.declared["ldmxcsr"] = "declare void @llvm.x86.sse.ldmxcsr(ptr)"
    c.emit(f"call void @llvm.x86.sse.stmxcsr(ptr {usual.ref})")
    c.store(flushing, c.op("or", c.load(usual, "i32", 0), V(str(FLUSH), "i32", 0)))
    c.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {flushing.ref})")
    body()
    c.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {usual.ref})")
