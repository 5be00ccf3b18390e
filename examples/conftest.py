"""The example packages are tested where they are installed: `test_strangers.py` sees to that."""

from __future__ import annotations

collect_ignore_glob = ["*/tests/*"]
