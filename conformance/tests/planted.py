"""Targets with one fault each, as third parties might write them; the kit must detect each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgx_core import HostKernel, Kernel, Kernels, Launch, No, Operation, Reference, Target
from mgx_core.ops.linear import Dot
from mgx_core.ops.softmax import Softmax
from mgx_core.targets.host_runner import HostRunner
from mgx_core.types.dtype import float32


class Planted(Target):
    """A target with one kernel for one op in float32; other ops run on the host."""

    name = "planted"
    op: type[Operation] = Softmax

    def make(self, op: Any) -> Callable[..., Any] | Kernel:
        raise NotImplementedError

    def kernels(self, context: Any) -> Kernels:
        plans = Kernels(self.name)

        @plans.plan(self.op)
        def only(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
            if inputs[0].dtype is not float32:
                return No(f"float32 only, got {inputs[0].dtype}")
            made = self.make(op)
            return made if hasattr(made, "run") else HostKernel(f"planted {op.name}", made)

        return plans


def softmax(x: Any, axis: int) -> Any:
    if not x.size:
        return np.empty(x.shape, x.dtype)
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


class Right(Planted):
    """Has no fault."""

    def make(self, op: Any) -> Any:
        return lambda x: softmax(x, op.axis)


class Overflows(Planted):
    """Does not subtract the maximum first: wrong for large values only."""

    def make(self, op: Any) -> Any:
        def run(x: Any) -> Any:
            with np.errstate(all="ignore"):
                e = np.exp(x)
                return e / e.sum(axis=op.axis, keepdims=True)

        return run


class DropsTail(Planted):
    """Computes a product in blocks of four columns and omits the remainder."""

    op = Dot

    def make(self, op: Any) -> Any:
        def run(a: Any, b: Any) -> Any:
            out = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
            n = b.shape[-1] // 4 * 4
            out[..., :n] = a @ b[..., :n]
            return out

        return run


class HalfPrecision(Planted):
    """Accumulates a product in 16 bits."""

    op = Dot

    def make(self, op: Any) -> Any:
        def run(a: Any, b: Any) -> Any:
            return (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)

        return run


class WritesInput(Planted):
    """Computes in place, overwriting its input."""

    def make(self, op: Any) -> Any:
        def run(x: Any) -> Any:
            out = softmax(x, op.axis)
            if x.flags.writeable and x.size:
                x[...] = out
            return out

        return run


class WritesBeyond(Planted):
    """Writes one element past the end of its input's memory."""

    def make(self, op: Any) -> Any:
        def run(x: Any) -> Any:
            out = softmax(x, op.axis)
            if x.size and x.flags.writeable and x.flags.c_contiguous:
                np.lib.stride_tricks.as_strided(x.reshape(-1), (x.size + 1,), (4,))[x.size] = 1
            return out

        return run


class Unstable(Planted):
    """Returns correct results that are not bitwise reproducible."""

    def make(self, op: Any) -> Any:
        turn = itertools.count()

        def run(x: Any) -> Any:
            out = softmax(x, op.axis)
            return np.nextafter(out, np.float32(1)) if next(turn) % 3 == 2 else out

        return run


class OneBuffer(Planted):
    """Writes the results of all runs to the same memory."""

    def make(self, op: Any) -> Any:
        kept: dict[Any, Any] = {}

        def run(x: Any) -> Any:
            out = kept.setdefault(x.shape, np.empty(x.shape, np.float32))
            out[...] = softmax(x, op.axis)
            return out

        return run


class Leaks(Planted):
    """Leaks a buffer in every run."""

    def make(self, op: Any) -> Any:
        kept: list[Any] = []

        def run(x: Any) -> Any:
            kept.append(np.ones(512, np.float32))
            return softmax(x, op.axis)

        return run


class ClaimsReference(Planted):
    """Reports an op as run on the target, but calls the reference implementation."""

    def make(self, op: Any) -> Any:
        return Reference(op)


class ClaimsSmall(Planted):
    """The same for products of few rows; products of more rows are reported on the host."""

    op = Dot

    def kernels(self, context: Any) -> Kernels:
        plans = Kernels(self.name)

        @plans.plan(self.op)
        def only(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
            return Reference(op) if inputs[0].dims[0] <= 4 else No("too many rows")

        return plans


class ClaimsQuietly(Planted):
    """The same with a kernel name of its own."""

    def make(self, op: Any) -> Any:
        return lambda x: op.compute(x)


class Raises(Planted):
    """Accepts everything and raises at run time."""

    def make(self, op: Any) -> Any:
        def run(x: Any) -> Any:
            raise NotImplementedError("no such axis")

        return run


class WrongType(Planted):
    """Returns float64."""

    def make(self, op: Any) -> Any:
        return lambda x: softmax(x.astype(np.float64), op.axis)


class IgnoresPlugins(Planted):
    """Runs every op with its reference implementation, whichever kernel its launch has."""

    def make(self, op: Any) -> Any:
        return lambda x: softmax(x, op.axis)

    def runner(self, module: Any, plan: Any, context: Any, options: Any) -> Any:
        for ins in module:
            if isinstance(ins.op, Launch):
                of = ins.op.of
                module.replace_op(ins, Launch(Reference(of), of, ins.op.result_shape), ins.result)
        return super().runner(module, plan, context, options)


class FirstOutputs(Right):
    """Returns the first results when a subset is requested."""

    def runner(self, module: Any, plan: Any, context: Any, options: Any) -> Any:
        class Runner(HostRunner):
            def run_some(self, args: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
                return list(self.run(args)[: len(wanted)])

        return Runner(module)
