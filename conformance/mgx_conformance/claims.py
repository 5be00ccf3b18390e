"""Verifies placement reports: ops reported as placed on the target must not run by their reference implementation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mgx_core import Launch, Operation, Reference
from mgx_core.ops.control import GetTupleElem

from .known import OPS

__all__ = ["DEFINITION", "false_claims", "launches", "watched"]

DEFINITION = "ref"  # the target whose kernels are the reference implementations


@contextmanager
def watched(*ops: type[Operation]) -> Iterator[set[str]]:
    """Context manager: records the ops whose reference implementation runs; those in `ops` also if called directly."""
    seen: set[str] = set()
    evaluate = Operation.evaluate
    kept: list[tuple[type[Operation], Any]] = []

    def noted(self: Operation, *args: Any, **keywords: Any) -> Any:
        seen.add(self.name)
        return evaluate(self, *args, **keywords)

    Operation.evaluate = noted  # type: ignore[method-assign]
    for cls in dict.fromkeys(ops):
        compute = cls.__dict__.get("compute")
        if compute is not None:
            kept.append((cls, compute))
            cls.compute = _noting(cls.name, compute, seen)
    try:
        yield seen
    finally:
        Operation.evaluate = evaluate  # type: ignore[method-assign]
        for cls, compute in kept:
            cls.compute = compute


def _noting(name: str, compute: Any, seen: set[str]) -> Any:
    def noted(self: Any, *args: Any, **keywords: Any) -> Any:
        seen.add(name)
        return compute(self, *args, **keywords)

    return noted


def launches(module: Any) -> Iterator[Any]:
    """Yields all launches of a lowered module and its nested modules."""
    for ins in module:
        if isinstance(ins.op, Launch):
            yield ins
        else:
            for inner in ins.modules:
                yield from launches(inner)


def members(modules: Any) -> set[str]:
    """Returns names of all ops in some modules."""
    return {i.name for m in modules for i in m} | {n for m in modules for i in m for n in members(i.modules)}


def false_claims(executable: Any, evaluated: set[str]) -> str:
    """Returns descriptions of the placement claims that an executable violates; empty if there are none.

    evaluated: ops whose reference implementation ran during the run.
    """
    if executable.target.name == DEFINITION:
        return ""
    on_host: set[str] = set()
    for instance in executable.instances():
        hosted = Counter(p.op for p in instance.placements if p.place == "host")
        # those that report it come first; the remaining count was placed on the host later, like bodies of control flow
        for ins in sorted(launches(instance.module), key=lambda ins: ins.op.place != "host"):
            if ins.op.place == "host" or hosted[ins.op.text] > 0:
                hosted[ins.op.text] -= 1
                on_host |= {ins.op.of.name} | members(ins.modules)
            elif isinstance(ins.op.kernel, Reference):
                return f"{ins.op.of.name} is reported on the target, but its kernel is the reference"
        on_host |= {op.partition("[")[0] for op in hosted}
    hidden = evaluated - on_host - _controls()
    if hidden:
        return f"the definition of {', '.join(sorted(hidden))} ran, but the placement report has it on the target"
    return ""


@cache
def _controls() -> frozenset[str]:
    """Returns the ops that decide what runs, or only pass on results."""
    return frozenset(op.name for op in OPS if op.control or op is GetTupleElem)
