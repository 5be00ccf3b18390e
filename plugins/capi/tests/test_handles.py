"""Handles by themselves."""

from __future__ import annotations

import pytest

from mgx_c import options
from mgx_c.handles import HandleError, Handles


def test_what_is_lent_stands_for_the_newest_value_and_ends_with_its_owner() -> None:
    handles = Handles()
    owner = handles.new("program", "p")
    lent = handles.lend(owner, "context", "context", "first")
    assert handles.lend(owner, "context", "context", "second") is lent
    assert handles.get(lent.address, "context").value == "second"
    handles.destroy(owner.address, "program")
    with pytest.raises(HandleError, match="destroyed"):
        handles.get(lent.address, "context")
    assert len(handles) == 0


def test_no_record_lies_where_one_that_was_destroyed_did() -> None:
    handles = Handles()
    seen: set[int] = set()
    for _ in range(200):
        handle = handles.new("compile_options", options.compile_options_create())
        assert handle.address not in seen
        seen.add(handle.address)
        handles.destroy(handle.address, "compile_options")
    for address in seen:
        with pytest.raises(HandleError, match="destroyed"):
            handles.get(address, "compile_options")
