"""Defaults of a context whose target overrides nothing."""

from __future__ import annotations

from mgx_core import HostContext, Target


def test_nothing_is_held_and_nothing_to_wait_for():
    class Empty(Target):
        name = "empty"

    context = HostContext(Empty())
    context.finish()
    assert context.memory() == {}
