"""Cases for the ops of an installed package: those it provides, and generated ones for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final

from mgx_core import Operation, OpSet, PluginError, plugin_manager

from .cases.case import Case, Family, table
from .schema_cases import schema_cases

__all__ = ["GROUP", "cases_of", "ops_of"]

GROUP: Final = "mgx_conformance"  # entry points of this group name a package's `Family` of cases


def ops_of(package: str) -> list[type[Operation]]:
    """Returns the ops that a package registers through the hook `operations`.

    package: the name of a distribution, of its entry point, or of the Python package.
    Errors: PluginError if no such package registers ops, listing those that do; any error raised by loading.
    """
    manager = plugin_manager()
    owners = {}
    for plugin, lazy in manager.offered("operations"):
        record = next(r for r in manager.records if r.name == plugin)
        root = lazy.path.partition(":")[0].partition(".")[0]
        owners[lazy] = {plugin, record.distribution, record.distribution.replace("-", "_"), root}
    found = [lazy for lazy, names in owners.items() if package in names]
    if not found:
        known = ", ".join(sorted({lazy.path.partition(".")[0] for lazy in owners})) or "none"
        raise PluginError(f"no installed package {package!r} brings ops; those that do: {known}")
    sets: list[OpSet] = [lazy.load() for lazy in found]
    return [cls for ops in sets for name in ops.names() if (cls := ops.get(name)) is not None]


def cases_of(package: str) -> Iterator[Case | str]:
    """Yields every case of a package's ops; for an op without any, the op's name.

    Uses the cases that the package provides (an entry point of the group `mgx_conformance` that names a `Family`), else cases
    generated from the op's schema.
    """
    ops = ops_of(package)
    names = {op.name for op in ops}
    families = [e.load() for e in entry_points(group=GROUP)]
    given = Family(package)
    for family in families:
        given.makers |= {n: maker for n, maker in family.makers.items() if n in names}
        given.reasons |= {n: reason for n, reason in family.reasons.items() if n in names}
    yield from table([given])
    for op in ops:
        if op.name in given.makers or op.name in given.reasons:
            continue
        made = {case.id: case for case in schema_cases(op)}
        yield from made.values() or [op.name]
