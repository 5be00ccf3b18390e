"""Third-party kernels for a target under test: their result differs from every reference, which shows the kernel that ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import HostKernel, Kernel, Kernels, Operation, Program, Shape, define_op
from mgx_core.ops import STANDARD

__all__ = ["FOREIGN", "NAME", "VALUE", "Foreign", "plans_for", "program_of"]

NAME: Final = "kernel of the kit"
VALUE: Final = 7


@define_op("mgx_conformance.foreign")
class Foreign(Operation):
    """An op without a kernel in any target.

    x: any tensor -> same shape, unchanged.
    """

    def infer(self, x: Shape) -> Shape:
        return x.as_standard()

    def compute(self, x: Any) -> Any:
        return x


FOREIGN: Final = (Foreign(), STANDARD.make("argmax", axis=1), STANDARD.make("dot"))


def plans_for(target: str, op: type[Operation]) -> Kernels:
    """Returns a third-party plan for an op, whose kernel returns `VALUE` everywhere."""
    plans = Kernels(target)

    @plans.plan(op)
    def by_the_kit(op: Operation, inputs: Sequence[Shape], context: Any) -> Kernel:
        result: Any = op.result(inputs)
        return HostKernel(NAME, lambda *xs: np.full(result.lens(), VALUE, result.dtype.numpy))

    return plans


def program_of(op: Operation) -> Program:
    """Returns a program with the op applied after another op; with two parameters if the op has two operands."""
    program = Program()
    main = program.get_main_module()
    inputs = [main.add_parameter(f"x{n}", Shape("float32", (4, 4))) for n in range(len(op.inputs))]
    main.add_return([main.add(op, main.add(STANDARD.make("relu"), inputs[0]), *inputs[1:])])
    return program
