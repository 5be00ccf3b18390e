"""Operands of kernels: address computation, and vector loads and stores along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Shape

from .code import Code, V
from .element import MEMORY, from_memory, to_memory
from .graph import Node

__all__ = ["Operands"]


class Operands:
    """Inputs, then outputs, by operand number k.

    refs: the kernel's run-time arguments; near: strides along the vector axis are small.
    """

    def __init__(self, c: Code, loads: Sequence[Node], outputs: Sequence[Shape], refs: list[V], near: bool) -> None:
        self.c, self.refs, self.near = c, refs, near
        self.dtypes = [n.dtype for n in loads] + [o.dtype for o in outputs]
        self.elems = [MEMORY[d] for d in self.dtypes]

    def step(self, k: int, axis: int) -> V | None:
        """Returns an operand's stride along an axis, in elements; None if it is 0."""
        raise NotImplementedError

    def moved(self, k: int, base: V, index: dict[int, V]) -> V:
        """Returns the address of an operand's element at an index by axis, relative to `base`."""
        c = self.c
        total: V | None = None
        for axis, i in index.items():
            step = self.step(k, axis)
            if step is not None:
                part = i if step.ref == "1" else c.op("mul", i, step)
                total = part if total is None else c.op("add", total, part)
        return base if total is None else c.gep(base, total, self.elems[k])

    def load(self, k: int, at: V, axis: int, n: int, mask: V | None) -> V:
        """Loads n lanes of an operand from an address on, along an axis."""
        c, elem = self.c, self.elems[k]
        step = self.step(k, axis)
        if step is None or not n:
            return c.splat(from_memory(c, c.load(at, elem, 0), self.dtypes[k]), n)
        if step.ref == "1":
            raw = c.load(at, elem, n, mask)
        else:
            raw = c.gather(at, c.offsets(step, n, self.near), elem, mask)
        return from_memory(c, raw, self.dtypes[k])

    def store(self, k: int, at: V, axis: int, x: V, mask: V | None) -> None:
        """Stores x to an operand from an address on, along an axis."""
        c = self.c
        step = self.step(k, axis)
        raw = to_memory(c, x, self.dtypes[k])
        if not x.n or step is None:
            c.store(at, c.splat(raw, 0) if x.n else raw)
        elif step.ref == "1":
            c.store(at, raw, mask)
        else:
            c.scatter(at, c.offsets(step, x.n, self.near), raw, mask)
