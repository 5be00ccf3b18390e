"""The complete target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import HostKernel, Kernel, Kernels, No, Operation, Target
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Add, Max, Mul, Sub
from mgx_core.ops.trigonometry import Tanh
from mgx_core.types.dtype import float32

__all__ = ["TinyTarget"]

plans = Kernels("tiny")
ELEMENTWISE = {Add: np.add, Sub: np.subtract, Mul: np.multiply, Max: np.maximum, Tanh: np.tanh}


@plans.plan(*ELEMENTWISE, dtypes=[float32])
def elementwise(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
    function = ELEMENTWISE[type(op)]
    return HostKernel(f"tiny {function.__name__}", function)


@plans.plan(Dot, dtypes=[float32])
def matrix(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
    a, b = inputs
    if a.rank != 2 or b.rank != 2:
        return No(f"matrices only, got ranks {a.rank} and {b.rank}")
    return HostKernel("tiny matrix product", np.matmul)


@plans.plan(Dot, dtypes=[float32])
def batched(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
    """Tried after `matrix`: the order of definition is the order of preference."""
    if inputs[0].rank > 3:
        return No(f"batches of matrices up to rank 3 only, got rank {inputs[0].rank}")
    return HostKernel("tiny batched product", np.matmul)


class TinyTarget(Target):
    """Numpy kernels for a few operations in float32."""

    name = "tiny"

    def kernels(self, context: Any) -> Kernels:
        return plans
