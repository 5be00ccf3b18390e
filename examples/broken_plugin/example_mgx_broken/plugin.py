"""Raises when it is imported, on purpose."""

from __future__ import annotations

from mgx_core import Lazy, hookimpl

raise OSError("libaccelerator.so.7: cannot open shared object file")


@hookimpl
def targets() -> list[Lazy]:
    return [Lazy("broken", "example_mgx_broken.target:BrokenTarget")]
