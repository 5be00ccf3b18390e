"""Fixtures of programs whose shapes change between runs."""

from __future__ import annotations

from typing import Any

import pytest

from mgx_core.run import executable


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns what is compiled: the shapes of each instance of a program or piece."""
    found: list[Any] = []
    make = executable.instantiated

    def noting(given: Any, *rest: Any) -> Any:
        found.append(given)
        return make(given, *rest)

    monkeypatch.setattr(executable, "instantiated", noting)
    return found
