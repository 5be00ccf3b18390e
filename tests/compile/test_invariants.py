"""Each stage's invariant accepts the stage's output, and its error names the fault in other modules."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mgx_core import define_op
from mgx_core.compile.invariants import claimed, groups, lowered, simplified, well_formed
from mgx_core.compile.stages import RULES
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.ops.operation import Operation
from mgx_core.passes.normalize import in_normal_form, normalized
from mgx_core.targets.kernel_table import Kernels
from mgx_core.targets.memory import overlap
from mgx_core.types.shape import Shape


def read(text: str) -> Module:
    return parse_module(f'module main\n  %x = @param["x"] -> float32[2, 3]\n{text}', STANDARD)


@define_op("example.unknown")
class Unknown(Operation):
    """An op that defines only its shape."""

    def infer(self, x: Shape) -> Shape:
        return x


GROUP = """  %1 = pointwise(%x){body}
  @return(%1)
module body
  %a = @param["a"] -> float32[2, 3]
"""


@pytest.mark.parametrize(
    ("invariant", "right", "wrong", "says"),
    [
        (normalized, "  %1 = relu(%x)\n  @return(%1)", "  %1 = identity(%x)\n  %2 = relu(%1)\n  @return(%2)", "identity"),
        (in_normal_form, "  %1 = softmax[axis=1](%x)\n  @return(%1)", "  %1 = softmax[axis=-1](%x)\n  @return(%1)", r"softmax\[axis=1\] is required"),
        (simplified(RULES), "  %1 = relu(%x)\n  @return(%1)", "  %1 = relu(%x)\n  %2 = relu(%1)\n  @return(%2)", "rule '.*' still fires"),
        (groups, GROUP + "  %2 = abs(%a)\n  @return(%2)", GROUP + "  %2 = add(%a, %x)\n  @return(%2)", "from outside"),
        (lowered, "  @return(%x)", "  %1 = relu(%x)\n  @return(%1)", "relu.* is left"),
    ],
)  # fmt: skip
def test_invariants(invariant, right, wrong, says):
    assert invariant(read(right)) is None
    found = invariant(read(wrong))
    assert found is not None
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(found)


def test_groups_read_their_inputs_and_return_their_result():
    module = read(GROUP + "  %2 = abs(%a)\n  @return(%2)")
    group = module.outputs[0]
    body = group.modules[0]
    body.add_parameter("b", Shape("float", [1]))
    assert "its module takes" in groups(module)


def test_an_op_that_no_target_can_run():
    module = read("  @return(%x)")
    module.replace_return([module.add(Unknown(), module.parameters["x"])])
    kernels = Kernels("none")
    assert "no plan of target 'none'" in claimed(lambda: kernels)(module)

    @kernels.plan(Unknown)
    def some(op, shapes, context):
        raise NotImplementedError

    assert claimed(lambda: kernels)(module) is None
    assert well_formed(module) is None


def buffer(offset: int, size: int, first: int, last: int) -> SimpleNamespace:
    return SimpleNamespace(offset=offset, bytes=size, first=first, last=last)


@pytest.mark.parametrize(
    ("buffers", "apart"),
    [
        ([buffer(0, 8, 0, 1), buffer(8, 8, 1, 2), buffer(0, 8, 2, 3)], True),
        ([buffer(0, 8, 0, 2), buffer(8, 8, 1, 2), buffer(0, 8, 2, 3)], False),
        ([buffer(0, 9, 0, 1), buffer(8, 8, 1, 2)], False),
        ([buffer(0, 0, 0, 9), buffer(0, 8, 0, 9)], True),
        ([buffer(0, 8, 3, 3), buffer(0, 64, 0, 9)], False),
    ],
)
def test_buffers_that_live_at_one_time_do_not_overlap(buffers, apart):
    assert (overlap(buffers) is None) == apart
