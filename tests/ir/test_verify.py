"""Each invariant that `verify` checks is violated once."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.ir.instruction import Instruction
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import misplaced, verify
from mgx_core.ops import STANDARD
from mgx_core.ops.builtin import Undefined
from mgx_core.types.argument import Argument
from mgx_core.types.shape import Shape


@pytest.fixture
def module() -> Module:
    return parse_module(
        """
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2]
          %k = @literal(1.0, 2.0) -> float32[2]
          %1 = add(%x, %k)
          %2 = if(%c){then, else}
          @return(%1, %2)
        module then
          %3 = abs(%1)
          @return(%3)
        module else
          @return(%x)""",
        STANDARD,
    )


def test_a_good_module(module):
    assert verify(module) == []
    assert misplaced(module) is None


def test_inputs_come_first(module):
    _, _, k, add, _, end = module
    module.move(k, end)
    (wrong,) = verify(module)
    assert "instruction 2: add(@param, @literal)" in wrong
    assert "reads @literal" in wrong
    assert "which does not come before it" in wrong
    module.move(add, end)
    assert "module 'then', instruction 0: abs(add)" in verify(module)[0]


def test_siblings_do_not_see_each_other(module):
    branch = module.outputs[1]
    then, other = branch.modules
    other.returned.inputs = (then.outputs[0],)
    wrong = verify(module)[1]
    assert "module 'else', instruction 0" in wrong
    assert "does not come before it" in wrong


def test_users_and_inputs_agree(module):
    _, x, k, add, *_ = module
    add.inputs = (x, x)
    (wrong,) = verify(module)
    assert wrong.startswith("module 'main', instruction 2: @literal")
    assert "counts add(@param, @param) -> float32[2] as a user, which does not read it" in wrong
    add.inputs = (k, k)
    x._users.clear()
    k._users.clear()
    assert [w for w in verify(module) if "is not among the users of @literal" in w]


def test_the_return_is_last(module):
    module.append(Instruction(STANDARD.make("undefined"), Undefined().infer()))
    (wrong,) = verify(module)
    assert wrong.startswith("module 'main', instruction 5: @return")
    assert wrong.endswith("is not the last instruction")


def test_shapes_follow_the_rules(module):
    add = module.outputs[0]
    add.result = Shape("float", [3])
    assert any(w.endswith("its rule gives float32[2]") for w in verify(module))
    add.op = STANDARD.make("softmax", axis=9)
    add.inputs = add.inputs[:1]
    assert any("softmax[axis=9]" in w and "axis" in w for w in verify(module))


def test_parameters_have_the_shape_they_state(module):
    module.parameters["x"].result = Shape("float", [7])
    assert any("its rule gives float32[2]" in w for w in verify(module))


def test_literals_have_the_shape_they_state(module):
    literal = next(i for i in module if i.is_literal)
    literal.literal = Argument(np.float32([1, 2, 3]))
    (wrong,) = verify(module)
    assert wrong.endswith("holds a value of shape float32[3]")
