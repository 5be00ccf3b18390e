"""Merges a frontend's converters with those of plugins; a conflict affects only its own operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import PluginError
from ..ir.instruction import Instruction
from ..plugins.manager import PluginRecord
from ..plugins.manager import manager as plugin_manager
from .converters import Converter, Converters, Entry

__all__ = ["Joined", "with_plugins"]


def with_plugins(own: Converters, frontend: str) -> Converters:
    """Returns a frontend's converters merged with those that installed packages register for it."""
    given = plugin_manager().tables("converters", Converters, frontend=frontend)
    return Joined(own, given, frontend) if given else own


class Joined(Converters):
    """The merged converters of a frontend and of plugins.

    If both convert an operator, the frontend's converter is used, unless the plugin's declares ``replaces=True``; if two plugins
    do, models with the operator are rejected.  Both are recorded as failures of the plugins; other operators are not affected.
    Lazy tables of plugins are loaded for operators that the frontend lacks.
    """

    def __init__(self, own: Converters, given: Sequence[tuple[PluginRecord, Converters]], frontend: str) -> None:
        super().__init__()
        self._own = own
        self._given = given
        self._frontend = frontend
        self._joined: dict[tuple[str, str], tuple[tuple[Entry, ...], tuple[Entry, ...]]] = {}

    def entries(self, domain: str, name: str) -> tuple[Entry, ...]:
        mine = self._own.entries(domain, name)  # a frontend may import more converters between calls
        before, joined = self._joined.get((domain, name), ((), ()))
        if not joined or before != mine:
            joined = self._join(domain, name, mine)
            self._joined[domain, name] = mine, joined
        return joined

    def names(self) -> list[tuple[str, str]]:
        found = sorted({n for table in (self._own, *(t for _, t in self._given)) for n in table.names()})
        for domain, name in found:
            self.entries(domain, name)  # so that the records hold every conflict
        return found

    def _join(self, domain: str, name: str, mine: tuple[Entry, ...]) -> tuple[Entry, ...]:
        operator = f"{domain}{'::' if domain else ''}{name}"
        plain: dict[str, tuple[PluginRecord, list[Entry]]] = {}
        replacing: dict[str, tuple[PluginRecord, list[Entry]]] = {}
        for record, table in self._given:
            if mine and not table.complete:
                continue
            for entry in table.entries(domain, name):
                if mine and not entry.replaces:
                    record.fail(
                        "converters",
                        f"the frontend {self._frontend!r} has a converter for {operator}, which stays: "
                        f"{_named(entry.converter)} is left out; with replaces=True in converts(...) it takes its place",
                    )
                    continue
                (replacing if entry.replaces else plain).setdefault(record.key, (record, []))[1].append(entry)
        below = mine or self._single(operator, plain.values())
        above = self._single(operator, replacing.values())
        first = min((e.since for e in above), default=None)
        kept = [e for e in below if first is None or e.since < first]
        return tuple(sorted((*above, *kept), key=lambda e: -e.since))

    def _single(self, operator: str, of: Iterable[tuple[PluginRecord, list[Entry]]]) -> Sequence[Entry]:
        """Returns the converters of the only plugin that has some; if several do, one that rejects every node."""
        groups = list(of)
        if len(groups) < 2:
            return [e for _, entries in groups for e in entries]
        what = " and ".join(f"{_named(entries[0].converter)} of {record.title}" for record, entries in groups)
        clash = (
            f"{len(groups)} plugins convert {operator} for the frontend {self._frontend!r}: {what}; uninstall one, set "
            f"MGX_PLUGINS=-{groups[-1][0].name} to leave one out, or let one of them say replaces=True in converts(...)"
        )
        for record, _ in groups:
            record.fail("converters", clash)

        def refuse(node: Any, *inputs: Instruction | None) -> Instruction:
            raise PluginError(clash)

        return [Entry(min(e.since for _, entries in groups for e in entries), refuse)]


def _named(converter: Converter) -> str:
    return f"{getattr(converter, '__module__', '?')}.{getattr(converter, '__qualname__', repr(converter))}"
