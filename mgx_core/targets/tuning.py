"""Tuning results: the fastest candidate by problem, for a machine or device; in memory, on disk and in program files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import RLock
from typing import Any, Final

from ..cache import DiskCache

__all__ = ["TuningStore"]

FORMAT: Final = 1


class TuningStore:
    """Choices by problem.  A choice is plain data; problems are identified by text.

    machine: what times depend on, e.g. the processor or the device; choices made for another are not taken; folder: where
    they are kept, by default ``tuning`` in the user's cache folder.
    """

    def __init__(self, machine: str, folder: Path | None = None) -> None:
        self.machine = machine
        self.lock = RLock()
        self._disk = DiskCache("tuning", FORMAT, folder)
        self._changed = False
        self.choices: dict[str, Any] = self._read()

    def keep(self, problem: str, choice: Any) -> None:
        """Takes down what was measured."""
        with self.lock:
            self.choices[problem] = choice
            self._changed = True

    def learn(self, choices: Mapping[str, Any]) -> None:
        """Takes over choices from a program file, where nothing is known yet."""
        with self.lock:
            self.choices = {**choices, **self.choices}

    def save(self) -> None:
        """Writes new choices to disk, joined with those that other processes have written meanwhile."""
        with self.lock:
            if self._changed:
                self.choices = {**self._read(), **self.choices}
                lasting = {p: choice for p, choice in self.choices.items() if self.lasts(choice)}
                self._disk.put(self.machine, json.dumps(lasting).encode())
                self._changed = False

    def lasts(self, choice: Any) -> bool:
        """True if a choice is worth keeping on disk (override)."""
        return True

    def _read(self) -> dict[str, Any]:
        found = self._disk.get(self.machine)
        return {} if found is None else dict(json.loads(found))
