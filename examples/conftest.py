"""The example packages' tests are excluded here: `test_strangers.py` installs each package and runs them."""

from __future__ import annotations

collect_ignore_glob = ["*/tests/*"]
