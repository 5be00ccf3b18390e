"""torch_migraphx's names on mgx: `fx.lower_to_mgx`, and backends of ``torch.compile``, registered as entry points."""

from __future__ import annotations

from . import fx

__all__ = ["fx"]
