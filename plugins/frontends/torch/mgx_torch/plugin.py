"""Plugin hooks of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def frontends() -> list[Lazy]:
    return [Lazy("pt2", "mgx_torch.frontend:TorchFrontend", "PyTorch programs that torch.export.save wrote")]
