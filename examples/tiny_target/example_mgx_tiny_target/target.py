"""The whole target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import HostKernel, Kernel, Kernels, No, Operation, Target
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Add, Max, Mul, Sub, Tanh
from mgx_core.types.dtype import float32

__all__ = ["TinyTarget"]

plans = Kernels("tiny")
ELEMENTWISE = {Add: np.add, Sub: np.subtract, Mul: np.multiply, Max: np.maximum, Tanh: np.tanh}


@plans.plan(*ELEMENTWISE)
def elementwise(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
    if inputs[0].dtype is not float32:
        return No(f"float32 only, got {inputs[0].dtype}")
    function = ELEMENTWISE[type(op)]
    return HostKernel(f"tiny {function.__name__}", function)


@plans.plan(Dot)
def matrix(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
    a, b = inputs
    if a.dtype is not float32:
        return No(f"float32 only, got {a.dtype}")
    if a.rank != 2 or b.rank != 2:
        return No(f"matrices only, got ranks {a.rank} and {b.rank}")
    return HostKernel("tiny matrix product", np.matmul)


@plans.plan(Dot)
def batched(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel | No:
    """Asked after `matrix`: the order of definition is the order of preference."""
    if inputs[0].dtype is not float32 or inputs[0].rank > 3:
        return No("batches of float32 matrices only, up to rank 3")
    return HostKernel("tiny batched product", np.matmul)


class TinyTarget(Target):
    """Numpy kernels for a few operations in float32."""

    name = "tiny"

    def kernels(self, context: Any) -> Kernels:
        return plans
