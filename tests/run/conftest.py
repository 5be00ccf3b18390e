"""Fixtures of programs whose shapes change between runs."""

from __future__ import annotations

from typing import Any

import pytest
from compiled_instances import compiled_instances


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns what is compiled: the shapes of each instance of a program or piece."""
    return compiled_instances(monkeypatch)
