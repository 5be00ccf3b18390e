"""Hooks of this package for mgx."""

from __future__ import annotations

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def targets() -> list[Lazy]:
    # rank -1: never the default where another target is installed
    return [Lazy("tiny", "example_mgx_tiny_target.target:TinyTarget", "a few numpy kernels in float32", rank=-1)]
