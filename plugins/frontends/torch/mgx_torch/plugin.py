"""Plugin hooks of this package: it is found, and brings converters of other packages together."""

from __future__ import annotations

mgx_interface = 1
