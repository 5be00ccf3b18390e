from __future__ import annotations

import pytest

from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.passes.merge_common import MergeCommon


def run(text: str) -> Module:
    module = parse_module(text, STANDARD)
    MergeCommon().apply(module)
    module.sweep()
    assert verify(module) == []
    assert not MergeCommon().apply(module)
    return module


def test_equal_instructions_merge_and_keep_both_sources():
    module = run("""\
module main
  %x = @param["x"] -> float32[2]
  %1 = relu(%x)  # a
  %2 = relu(%x)  # b
  %3 = neg(%1)
  %4 = neg(%2)
  %5 = add(%3, %4)
  @return(%5, %2)""")
    assert (
        module.text()
        == """\
module main
  %x = @param["x"] -> float32[2]
  %1 = relu(%x) -> float32[2]  # a, b
  %2 = neg(%1) -> float32[2]
  %3 = add(%2, %2) -> float32[2]
  @return(%3, %1)"""
    )


def test_literals_merge_by_value_and_type():
    module = run("""\
module main
  %1 = @literal(1.0, 2.0) -> float32[2]
  %2 = @literal(1.0, 2.0) -> float32[2]
  %3 = @literal(1.0, 2.0) -> float64[2]
  %4 = @literal(1.0, 2.0) -> float32[1, 2]
  %5 = @literal(0.0) -> float32[]
  %6 = @literal(-0.0) -> float32[]
  %7 = @literal("a") -> string[1]
  @return(%1, %2, %3, %4, %5, %6, %7)""")
    outputs = module.outputs
    assert outputs[0] is outputs[1]
    assert len(set(outputs)) == 6


@pytest.mark.parametrize(
    "line",
    [
        "%1 = softmax[axis=0](%x)\n  %2 = softmax[axis=1](%x)",
        "%1 = sub(%x, %y)\n  %2 = sub(%y, %x)",
        "%1 = leaky_relu[alpha=0.0](%x)\n  %2 = leaky_relu[alpha=-0.0](%x)",
        "%1 = random_seed()\n  %2 = random_seed()",
        "%1 = group(%x){a}\n  %2 = group(%x){b}",
    ],
)
def test_differing_ops_stay(line):
    text = f"""\
module main
  %x = @param["x"] -> float32[2, 2]
  %y = @param["y"] -> float32[2, 2]
  {line}
  @return(%1, %2)"""
    if "group" in line:
        text += '\nmodule a\n  %p = @param["p"] -> float32[2, 2]\n  %3 = relu(%p)\n'
        text += 'module b\n  %q = @param["q"] -> float32[2, 2]\n  %4 = abs(%q)'
    first, second = run(text).outputs
    assert first is not second


def test_modules_reuse_outer_values_but_not_each_others():
    module = run("""\
module main
  %c = @param["c"] -> bool[]
  %x = @param["x"] -> float32[2]
  %1 = relu(%x)
  %2 = if(%c){then, else}
  %3 = neg(%x)
  @return(%1, %2, %3)
module then
  %4 = relu(%x)
  %5 = neg(%x)
  %6 = add(%4, %5)
  @return(%6)
module else
  %7 = neg(%x)
  @return(%7)""")
    relu, branch, neg = module.outputs
    then, other = branch.modules
    assert [i.name for i in then] == ["neg", "add", "@return"]
    assert then.outputs[0].inputs[0] is relu
    assert other.outputs[0] is not neg
    assert other.outputs[0].parent is other


def test_groups_reuse_no_outer_values():
    """A program that was compiled before has groups, whose modules may read only their inputs."""
    module = run("""\
module main
  %x = @param["x"] -> float32[2]
  %1 = @literal(1.0) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  %3 = pointwise(%x){inner}
  @return(%2, %3)
module inner
  %x0 = @param["x0"] -> float32[2]
  %4 = @literal(1.0) -> float32[]
  %5 = multibroadcast[out_lens=[2]](%4) -> float32[2]
  %6 = add(%x0, %5)
  @return(%6)""")
    (inner,) = module.outputs[1].modules
    assert all(read.parent is inner for ins in inner for read in ins.inputs)


def test_readers_of_many_equal_values_change_once():
    """Otherwise joining n equal values takes O(n^2) steps."""
    count = 50
    values = "".join(f"  %{n} = relu(%x)  # node{n}\n" for n in range(1, count + 1))
    parts = ", ".join(f"%{n}" for n in range(1, count + 1))
    text = f'module main\n  %x = @param["x"] -> float32[2]\n{values}  %0 = concat[axis=0]({parts})\n  @return(%0)'
    module = parse_module(text, STANDARD)
    before = module.version
    assert MergeCommon().apply(module)
    assert module.version - before == 2  # of the reader's module, and of the module the pass was applied to
    (joined,) = module.outputs
    (first,) = set(joined.inputs)
    assert first.users == (joined,)
    assert first.sources == tuple(f"node{n}" for n in range(1, count + 1))
    module.sweep()
    assert verify(module) == []
    assert [i.name for i in module] == ["@param", "relu", "concat", "@return"]
