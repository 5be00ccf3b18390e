from __future__ import annotations

from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.passes.normalize import Normalize, normalized


def run(text: str) -> str:
    module = parse_module(text, STANDARD)
    changed = Normalize().apply(module)
    module.sweep()
    assert verify(module) == []
    assert normalized(module) is None
    assert changed or module.text() == parse_module(text, STANDARD).text()
    assert not Normalize().apply(module)
    return module.text()


def test_identities_go():
    before = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = identity(%x) -> float32[2]
  %2 = identity(%1) -> float32[2]
  %3 = add(%1, %2) -> float32[2]
  @return(%3)"""
    after = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = add(%x, %x) -> float32[2]
  @return(%1)"""
    assert run(before) == after


def test_an_identity_that_is_returned_stays():
    text = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = identity(%x) -> float32[2]
  @return(%1)"""
    assert run(text) == text


def test_axes_become_non_negative():
    before = """\
symbol n in 1..4
module main
  %x = @param["x"] -> float32[n, 3, 2]
  %1 = softmax[axis=-1](%x) -> float32[n, 3, 2]
  %2 = concat[axis=-3](%1, %x) -> float32[2*n, 3, 2]
  @return(%2)"""
    assert run(before) == before.replace("axis=-1", "axis=2").replace("axis=-3", "axis=0")


def test_lists_of_axes():
    text = """\
module main
  %x = @param["x"] -> float32[2, 1, 3, 1]
  %1 = squeeze[axes=[-1, 1]](%x) -> float32[2, 3]
  @return(%1)"""
    assert "squeeze[axes=[3, 1]]" in run(text)


def test_axes_that_count_in_the_results_rank_are_left_alone():
    text = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = unsqueeze[axes=[-1]](%x) -> float32[2, 1]
  @return(%1)"""
    module = parse_module(text, STANDARD)
    Normalize().apply(module)
    assert module.output_shapes()[0].lens() == [2, 1]


def test_nested_modules():
    before = """\
module main
  %x = @param["x"] -> float32[2, 3]
  %1 = group[tag="g"](%x){body} -> float32[2, 3]
  @return(%1)
module body
  %y = @param["y"] -> float32[2, 3]
  %2 = identity(%y) -> float32[2, 3]
  %3 = softmax[axis=-2](%2) -> float32[2, 3]
  @return(%3)"""
    after = before.replace("  %2 = identity(%y) -> float32[2, 3]\n", "").replace(
        "%3 = softmax[axis=-2](%2)", "%2 = softmax[axis=0](%y)"
    )
    assert run(before) == after.replace("@return(%3)", "@return(%2)")


def test_the_invariant_names_what_is_left():
    module = parse_module(
        'module main\n  %x = @param["x"] -> float32[2]\n  %1 = identity(%x)\n  %2 = relu(%1)\n  @return(%2)', STANDARD
    )
    assert normalized(module) == "identity(@param) -> float32[2] is left"


def test_an_extent_that_depends_on_data_keeps_its_symbol():
    """In a slice of two axes, the bounds of one become simpler: the other's extent has users that refer to its symbol."""
    text = """\
symbol n?0
symbol h in 0..9
symbol w
module main
  %x = @param["x"] -> float32[h, w]
  %1 = slice[axes=[0, 1], starts=[3, 1], ends=[-4, 3], steps=[-1, 1]](%x) -> float32[n?0, max(-min(1, w)+min(3, w), 0)]
  %2 = multibroadcast[out_lens=[2, n?0, max(-min(1, w)+min(3, w), 0)]](%1) -> float32[2, n?0, max(-min(1, w)+min(3, w), 0)]
  @return(%2)"""
    module = parse_module(text, STANDARD)
    cut, spread = list(module)[1:3]
    assert Normalize().apply(module)
    assert cut.op.starts != (3, 1)
    assert cut.result.dims == spread.op.out_lens[1:]


def test_the_last_cells_of_a_layer_are_an_item_of_its_result():
    """A tuple that another op reads has no memory: the layer would run on the host."""
    text = """\
module main
  %x = @param["x"] -> float32[3, 2, 4]
  %w = @param["w"] -> float32[1, 20, 4]
  %r = @param["r"] -> float32[1, 20, 5]
  %1 = lstm[hidden_size=5](%x, %w, %r) -> (float32[3, 1, 2, 5], float32[1, 2, 5])
  %2 = rnn_last_cell_output(%1) -> float32[1, 2, 5]
  @return(%2)"""
    assert "%2 = get_tuple_elem[index=1](%1) -> float32[1, 2, 5]" in run(text)
