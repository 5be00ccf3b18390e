"""The handle table."""

from __future__ import annotations

from typing import Any

import pytest

from mgx_c import options, tensors
from mgx_c.handles import HandleError, Handles


def test_borrowed_results_alias_the_newest_value_and_end_with_their_owner() -> None:
    handles = Handles()
    owner = handles.new("program", "p")
    owned = handles.owned(owner, "context", "context", "first")
    assert handles.owned(owner, "context", "context", "second") is owned
    assert handles.get(owned.address, "context").value == "second"
    handles.destroy(owner.address, "program")
    with pytest.raises(HandleError, match="destroyed"):
        handles.get(owned.address, "context")
    assert len(handles) == 0


def test_no_record_reuses_the_address_of_a_destroyed_one() -> None:
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


@pytest.mark.parametrize("get", [tensors.arguments_get, tensors.shapes_get, tensors.dynamic_dimensions_get])
def test_elements_beyond_a_list_are_refused_with_its_length(get: Any) -> None:
    assert get(["a", "b"], 1) == "b"
    for index in (2, (1 << 64) - 1):
        with pytest.raises(IndexError, match=f"an index below 2 is required, got {index}"):
            get(["a", "b"], index)
