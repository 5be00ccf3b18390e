"""Operands of reduction kernels: where their elements lie, and loads and stores of vectors along an axis."""

from __future__ import annotations

from .code import Code, V, i64
from .element import MEMORY, from_memory, to_memory
from .reduce_plan import Plan

__all__ = ["Operands"]


class Operands:
    """Inputs, then outputs, by their number k.

    refs: the kernel's run-time numbers.
    """

    def __init__(self, c: Code, plan: Plan, refs: list[V]) -> None:
        self.c, self.plan, self.refs = c, plan, refs
        self.dtypes = [n.dtype for n in plan.loads] + [o.dtype for o in plan.outputs]
        self.elems = [MEMORY[d] for d in self.dtypes]

    def _step(self, k: int, axis: int) -> V | None:
        """Returns the step of an operand along an axis, in elements; None if it is 0."""
        step = self.plan.axes[axis].steps[k]
        if not step:
            return None
        return i64(1) if step == 1 else self.refs[self.plan.steps[k, axis]]

    def moved(self, k: int, base: V, index: dict[int, V]) -> V:
        """Returns an operand's address `base` moved to an index, given by axis."""
        c = self.c
        total: V | None = None
        for axis, i in index.items():
            step = self._step(k, axis)
            if step is not None:
                part = i if step.ref == "1" else c.op("mul", i, step)
                total = part if total is None else c.op("add", total, part)
        return base if total is None else c.gep(base, total, self.elems[k])

    def fetch(self, k: int, at: V, axis: int, n: int, mask: V | None) -> V:
        """n lanes of an operand from an address, along an axis."""
        c, elem = self.c, self.elems[k]
        step = self._step(k, axis)
        if step is None or not n:
            return c.splat(from_memory(c, c.load(at, elem, 0), self.dtypes[k]), n)
        if step.ref == "1":
            raw = c.load(at, elem, n, mask)
        else:
            raw = c.gather(at, c.offsets(step, n, self.plan.near), elem, mask)
        return from_memory(c, raw, self.dtypes[k])

    def put(self, k: int, at: V, axis: int, x: V, mask: V | None) -> None:
        """Stores x from an address on, along an axis."""
        c = self.c
        step = self._step(k, axis)
        raw = to_memory(c, x, self.dtypes[k])
        if not x.n or step is None:
            c.store(at, c.splat(raw, 0) if x.n else raw)
        elif step.ref == "1":
            c.store(at, raw, mask)
        else:
            c.scatter(at, c.offsets(step, x.n, self.plan.near), raw, mask)
