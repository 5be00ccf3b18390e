"""Plugin hooks of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def targets() -> list[Lazy]:
    return [Lazy("ref", "mgx_ref.target:RefTarget", "every op by its definition, on any machine", rank=0)]
