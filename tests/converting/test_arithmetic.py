"""Arithmetic whose definition differs between formats."""

from __future__ import annotations

import numpy as np

from mgx_core.converting.arithmetic import turn
from mgx_core.converting.builder import InstructionBuilder
from mgx_core.converting.filling import drawn
from mgx_core.converting.known import Known
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.module import Module
from mgx_core.types.shape import Shape


class Node(InstructionBuilder):
    """A node that belongs to no format."""

    def __init__(self) -> None:
        self.made = Module()
        self.values = Known()

    @property
    def module(self) -> Module:
        return self.made

    @property
    def known(self) -> Known:
        return self.values

    def absent(self) -> Instruction:
        return self.made.add_absent()

    def sources(self) -> tuple[str, ...]:
        return ()


def test_angles_are_those_of_numpy() -> None:
    y, x = np.meshgrid(np.array([-2, -0.5, 0, 0.5, 2, np.nan], np.float32), np.array([-1, 0, 1, np.nan], np.float32))
    node = Node()
    given = [node.made.add_parameter(name, Shape("float", list(y.shape))) for name in "yx"]
    node.made.add_return([turn(node, *given)])
    (found,) = evaluate_module(node.made, [y, x])
    np.testing.assert_allclose(np.asarray(found), np.arctan2(y, x), rtol=1e-6)


def test_no_class_after_the_last_is_drawn() -> None:
    """The probabilities sum to 1 minus rounding errors, and random numbers between that sum and 1 occur."""
    node = Node()
    logits = node.made.add_parameter("x", Shape("half", [1, 15]))
    node.made.add_return([drawn(node, node.literal([3]), logits, node.literal([4000]))])
    (found,) = evaluate_module(node.made, [np.zeros((1, 15), np.float16)])
    assert set(np.asarray(found).reshape(-1)) == set(range(15))
