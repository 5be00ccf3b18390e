"""The standard ops joined with those of plugins."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.opset import OpSet
from .record import PluginRecord

__all__ = ["joined"]


def joined(standard: OpSet, given: Iterable[tuple[PluginRecord, OpSet]]) -> OpSet:
    """Returns the standard ops and those of each plugin.

    A plugin's op with a standard op's name is left out; a name that two plugins give is refused when it is asked for.  Both stand
    on the records of the plugins.
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
                record.fail("operations", f"{clash}; the core's stays, choose another name")
                found = OpSet(o for o in found if o is not op)
            else:
                record.fail("operations", clash)
                ops = ops.contesting(op.name, f"{clash}; uninstall one or set MGX_PLUGINS")
        ops = ops | found
    return ops
