"""Merges the op sets of plugins into the standard op set."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.opset import OpSet
from .record import PluginRecord

__all__ = ["merge_opsets"]


def merge_opsets(standard: OpSet, given: Iterable[tuple[PluginRecord, OpSet]]) -> OpSet:
    """Returns the standard ops with those of each plugin.

    An op with the name of a standard op is dropped; a name that two plugins define raises an error on lookup.  Both are recorded
    as failures of the plugin.
    """
    own, ops = set(standard), standard
    for record, found in given:
        for op in found:
            known = ops.get(op.name) if op.name in ops else None
            if known is None or known is op:
                continue
            clash = (
                f"two ops are called {op.name!r}: {known.__module__}.{known.__qualname__} and "
                f"{op.__module__}.{op.__qualname__} of {record.title}"
            )
            if known in own:
                record.fail("operations", f"{clash}; the core's is used, choose another name")
                found = OpSet(o for o in found if o is not op)
            else:
                record.fail("operations", clash)
                ops = ops.contesting(op.name, f"{clash}; uninstall one or set MGX_PLUGINS")
        ops = ops | found
    return ops
