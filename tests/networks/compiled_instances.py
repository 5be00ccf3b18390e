"""Notes what is compiled, for tests of programs with changing shapes."""

from __future__ import annotations

from typing import Any

import pytest

from mgx_core.run import executable
from mgx_core.run.instantiation import instantiated

__all__ = ["compiled_instances"]


def compiled_instances(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns a list to which the shapes of each compiled instance of a program or piece are added."""
    found: list[Any] = []

    def noting(given: Any, *rest: Any) -> Any:
        found.append(given)
        return instantiated(given, *rest)

    monkeypatch.setattr(executable, "instantiated", noting)
    return found
