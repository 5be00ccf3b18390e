"""Exports compilation and runs as a trace in Chrome's JSON format, for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..targets.kernel import Launch, op_of
from .formatting import title

if TYPE_CHECKING:
    from ..run.executable import Executable
    from ..run.instance import Instance
    from ..targets.runner import Timing

__all__ = ["chrome_trace"]

PROCESS = 1
COMPILE, ON_TARGET, ON_HOST = 1, 2, 3  # the tracks
RUNS = 10  # most runs in a trace


def chrome_trace(
    executable: Executable,
    instance: Instance | None = None,
    timings: Sequence[Timing] = (),
    phases: Iterable[tuple[str, float]] = (),
) -> dict[str, Any]:
    """Returns a trace of `phases` before compilation (name, seconds), passes, lowering, planning and launches.

    Times are microseconds; passes and launches are shown in execution order, without gaps.
    """
    target = executable.target.name
    events: list[dict[str, Any]] = [
        _named("process_name", 0, "mgx"),
        _named("thread_name", COMPILE, "compile"),
        _named("thread_name", ON_TARGET, f"run on {target}"),
        _named("thread_name", ON_HOST, "run on host"),
    ]
    at = 0.0
    for name, seconds in phases:
        events.append(_event(name, "phase", COMPILE, at, seconds, {}))
        at += seconds
    records = [*executable.records, *(instance.records if instance is not None else ())]
    for n, record in enumerate(records):
        if n == 0 or records[n - 1].stage != record.stage:
            total = 0.0
            for later in records[n:]:
                if later.stage != record.stage:
                    break
                total += later.seconds
            events.append(_event(record.stage, "stage", COMPILE, at, total, {}))
        args: dict[str, Any] = {
            "stage": record.stage,
            "changed": record.changed,
            "before": record.before,
            "after": record.after,
        }
        args |= {"rules": {c.rule: c.fired for c in record.rules if c.fired}} if record.rules else {}
        events.append(_event(record.name, "pass", COMPILE, at, record.seconds, args))
        at += record.seconds
    for run in range(min(RUNS, max((len(t.seconds) for t in timings), default=0))):
        start = at
        launches = []
        for timing in timings:
            if run < len(timing.seconds):
                launches.append(_launch(timing, target, at, timing.seconds[run]))
                at += timing.seconds[run]
        events.append(_event(f"run {run + 1}", "run", COMPILE, start, at - start, {"target": target}))
        events += launches
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"target": target, "tool": "mgx"},
    }


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": PROCESS, "tid": track, "args": {"name": name}}


def _event(name: str, category: str, track: int, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": PROCESS,
        "tid": track,
        "ts": round(start * 1e6, 3),
        "dur": round(seconds * 1e6, 3),
        "args": args,
    }


def _launch(timing: Timing, target: str, start: float, seconds: float) -> dict[str, Any]:
    ins = timing.instruction
    op = ins.op
    hosted = isinstance(op, Launch) and op.place == "host"
    args = {
        "operation": op_of(ins).name,
        "sources": list(ins.sources),
        "result": str(ins.result),
        "target": "host" if hosted else target,
        "kernel": ", ".join(timing.kernels),
    }
    return _event(title(ins), "launch", ON_HOST if hosted else ON_TARGET, start, seconds, args)
