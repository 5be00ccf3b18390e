"""Groups of a product with pointwise work behind it, for kernels that do both, and memory for what groups give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mgx_core import Instruction, Module, Shape
from mgx_core.ops.linear import Dot
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.shape import TupleShape

from ..codegen.after_product import Finish, after_product
from ..codegen.bodies import flat
from ..codegen.writing import Inputs
from ..emitter import GpuEmitter

__all__ = ["ProductGroup", "group_results"]


@dataclass(frozen=True)
class ProductGroup:
    """A flat group: its product, and the reshapes between that and what reads the sums."""

    body: Module
    anchor: Instruction
    chain: tuple[Instruction, ...]

    @classmethod
    def of(cls, body: Module, *products: type) -> ProductGroup:
        """Reads a group around one of these ops, by default a product of matrices."""
        body = flat(body)
        anchor = next(i for i in body if isinstance(i.op, products or Dot))
        chain: list[Instruction] = []
        at = anchor
        while len(at.users) == 1 and at.users[0].op.reshapes:
            at = at.users[0]
            chain.append(at)
        return cls(body, anchor, tuple(chain))

    @classmethod
    def fixed(cls, body: Module, given: Inputs, *products: type) -> ProductGroup:
        """Reads a group on the extents of the tensors at hand."""
        shapes = {n: Shape.of(x.dtype, x.lens) for n, x in zip(body.parameters, given, strict=True) if x is not None}
        return cls.of(body.clone(parameters=shapes), *products)

    @property
    def joint(self) -> Instruction:
        """The sums as the work behind them reads them."""
        return self.chain[-1] if self.chain else self.anchor

    def before(self) -> list[Instruction]:
        """Returns everything that the product is computed from, in order."""
        found = dict.fromkeys(self.anchor.inputs)
        pending = list(found)
        while pending:
            for i in pending.pop().inputs:
                if i not in found:
                    found[i] = None
                    pending.append(i)
        return [i for i in self.body if i in found]

    def operands(self, e: GpuEmitter, args: Sequence[Any]) -> tuple[list[Any], dict[Instruction, Any]]:
        """Returns the values of the product's operands, and of members: those that they are made by are emitted."""
        env: dict[Instruction, Any] = dict(zip(self.body.parameters.values(), args, strict=True))
        for ins in self.before():
            if ins not in env and not ins.is_literal and not ins.is_absent:
                env[ins] = e.emit(ins, env)
        return [e.value_of(i, env) for i in self.anchor.inputs], env

    def read_behind(self) -> list[bool]:
        """Returns for each parameter whether the work behind the sums reads it."""
        skipped = {*self.before(), self.anchor, *self.chain}
        return [not all(u in skipped for u in p.users) for p in self.body.parameters.values()]

    def behind(self, args: Sequence[Value], known: Callable[[Value], bool] = lambda v: True) -> list[Value | None]:
        """Returns the operands of the work behind the sums; None for others whose extents are `known` without them."""
        return [v if used or not known(v) else None for v, used in zip(args, self.read_behind(), strict=True)]

    def finish(self, given: Inputs, dims: Sequence[int], first: int) -> Finish:
        """Returns the work behind the sums for a generator; given, first: its operands, and the number of the first."""
        return after_product(self.body, [self.joint], given, dims, first)


def group_results(e: GpuEmitter, body: Module) -> tuple[Results, list[Value]]:
    """Returns new values as the group gives them, tuples where a member gives several, and in one row as a kernel writes them."""
    written: list[Value] = []

    def made(result: Any) -> Any:
        if isinstance(result, TupleShape):
            return tuple(map(made, result.items))
        written.append(e.allocate(result.dtype, result.lens()))
        return written[-1]

    results = tuple(made(o.result) for o in body.outputs)
    return results[0] if len(results) == 1 else results, written
