"""Prints the parts of a pyproject.toml that affect an environment: ``python installed.py pyproject.toml``.

Settings of tools that only read the sources (style, types, import layers, tests) change often and are omitted.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

READERS = ("importlinter", "mypy", "pytest", "ruff", "tox")

data = tomllib.loads(Path(sys.argv[1]).read_text())
data["tool"] = {name: table for name, table in data.get("tool", {}).items() if name not in READERS}
print(json.dumps(data, indent=1, sort_keys=True))
