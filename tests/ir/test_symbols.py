"""Instructions that define symbols: which of those without readers stay for their extents."""

from __future__ import annotations

from mgx_core.ir.symbols import needed_for_extents
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD


def test_a_definition_of_a_symbol_is_unneeded_if_it_is_redefined_later() -> None:
    m = parse_module(
        """\
symbol d?0
symbol d?1
module main
  %x = @param["x"] -> float32[6]
  %d = @param["d"] -> int64[2]
  %1 = reshape(%x, %d) -> float32[d?0, d?1]
  %2 = neg(%x) -> float32[6]
  %3 = reshape(%2, %d) -> float32[d?0, d?1]
  %4 = relu(%3) -> float32[d?0, d?1]
  %y = multibroadcast[out_lens=[3, d?1]](%4) -> float32[3, d?1]
  @return(%y)""",
        STANDARD,
    )
    first, again = (i for i in m if i.name == "reshape")
    assert not needed_for_extents(first)
    m.sweep()
    assert needed_for_extents(again)
    assert [i.name for i in m if not i.is_param] == ["neg", "reshape", "relu", "multibroadcast", "@return"]


def test_a_definition_of_a_symbol_is_unneeded_if_it_was_defined_before() -> None:
    m = parse_module(
        """\
symbol d?0
symbol d?1
module main
  %x = @param["x"] -> float32[6]
  %d = @param["d"] -> int64[2]
  %1 = reshape(%x, %d) -> float32[d?0, d?1]
  %2 = reshape(%x, %d) -> float32[d?0, d?1]
  %3 = relu(%1) -> float32[d?0, d?1]
  @return(%3)""",
        STANDARD,
    )
    first, again = (i for i in m if i.name == "reshape")
    assert not needed_for_extents(again)
    m.sweep()
    assert needed_for_extents(first)
