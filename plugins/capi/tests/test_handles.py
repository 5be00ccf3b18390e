"""Handles by themselves."""

from __future__ import annotations

import pytest

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
