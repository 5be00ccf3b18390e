"""Groups of a product and its epilogue, for kernels that fuse both, and allocation of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mgx_core import Instruction, Module, Shape
from mgx_core.ops.linear import Dot
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.dtype import DType
from mgx_core.types.shape import TupleShape

from ..codegen.bodies import flat
from ..codegen.generators import Inputs
from ..codegen.product_epilogue import FusedEpilogue, product_epilogue
from ..emitter import GpuEmitter

__all__ = ["ProductGroup", "epilogue_of_parts", "group_results", "operand"]


@dataclass(frozen=True)
class ProductGroup:
    """A flat group: its product, and the reshapes between the product and its epilogue."""

    body: Module
    anchor: Instruction
    chain: tuple[Instruction, ...]

    @classmethod
    def of(cls, body: Module, *products: type) -> ProductGroup:
        """Matches a group around one of these ops, by default a matrix product."""
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
        """Matches a group with the extents of the given tensors."""
        shapes = {n: Shape.of(x.dtype, x.lens) for n, x in zip(body.parameters, given, strict=True) if x is not None}
        return cls.of(body.clone(parameters=shapes), *products)

    @property
    def joint(self) -> Instruction:
        """The product's result as the epilogue reads it."""
        return self.chain[-1] if self.chain else self.anchor

    def before(self) -> list[Instruction]:
        """Returns the instructions that compute the product, in order."""
        found = dict.fromkeys(self.anchor.inputs)
        pending = list(found)
        while pending:
            for i in pending.pop().inputs:
                if i not in found:
                    found[i] = None
                    pending.append(i)
        return [i for i in self.body if i in found]

    def operands(self, e: GpuEmitter, args: Sequence[Any]) -> tuple[list[Any], dict[Instruction, Any]]:
        """Emits the product's operands; returns their values, and the values of all members emitted."""
        env: dict[Instruction, Any] = dict(zip(self.body.parameters.values(), args, strict=True))
        for ins in self.before():
            if ins not in env and not ins.is_literal and not ins.is_absent:
                env[ins] = e.emit(ins, env)
        return [e.value_of(i, env) for i in self.anchor.inputs], env

    def epilogue_reads(self) -> list[bool]:
        """Returns for each parameter True if the epilogue reads it."""
        skipped = {*self.before(), self.anchor, *self.chain}
        return [not all(u in skipped for u in p.users) for p in self.body.parameters.values()]

    def epilogue_args(
        self, args: Sequence[Value], known: Callable[[Value], bool] = lambda v: True
    ) -> list[Value | None]:
        """Returns the operands of the epilogue; None for others, unless their extents must be passed (`known` is False)."""
        return [v if used or not known(v) else None for v, used in zip(args, self.epilogue_reads(), strict=True)]

    def finish(self, given: Inputs, dims: Sequence[int], first: int, held: DType | None = None) -> FusedEpilogue:
        """Returns the epilogue for a generator; given, first: its operands, and the index of the first; held: of the sums."""
        return product_epilogue(self.body, [self.joint], given, dims, first, held=held)


def operand(e: GpuEmitter, ins: Instruction, env: dict[Instruction, Any]) -> Value:
    """Returns the value of a group's member or literal; emits a member that `env` lacks, after its operands."""
    if ins not in env and not ins.is_literal:
        for i in ins.inputs:
            if not i.is_absent:
                operand(e, i, env)
        env[ins] = e.emit(ins, env)
    value: Value = e.value_of(ins, env)
    return value


def epilogue_of_parts(
    tail: Instruction, parts: Sequence[Instruction], given: Inputs, dims: Sequence[int], first: int
) -> FusedEpilogue:
    """Returns a pointwise group that reads a product, or slices of it, as the product's epilogue.

    tail, parts: the group and the operands of it that are sums, in order; given, first, dims: as of `ProductGroup.finish`.
    """
    body = flat(tail.modules[0])
    parameters = list(body.parameters.values())
    return product_epilogue(body, [parameters[tail.inputs.index(p)] for p in parts], given, dims, first)


def group_results(e: GpuEmitter, body: Module) -> tuple[Results, list[Value]]:
    """Allocates the group's results, tuples where a member has several; returns them also as the kernel's flat list."""
    written: list[Value] = []

    def made(result: Any) -> Any:
        if isinstance(result, TupleShape):
            return tuple(map(made, result.items))
        written.append(e.allocate(result.dtype, result.lens()))
        return written[-1]

    results = tuple(made(o.result) for o in body.outputs)
    return results[0] if len(results) == 1 else results, written
