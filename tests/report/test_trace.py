"""The trace: the fields that Perfetto requires of each event, and the recorded facts."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np

from mgx_core.report import chrome_trace


def traced(program, target, runs=2):
    made = program()
    made.compile(target)
    executable = made.executable
    timings = executable.time({"x": np.ones((8, 16), np.float32)}, runs=runs, warmup=0)
    instance = executable.instances()[0]
    return executable, instance, timings, chrome_trace(executable, instance, timings, [("parse", 0.5)])


def test_events_have_the_fields_that_the_format_requires(program, target):
    *_, trace = traced(program, target)
    assert json.loads(json.dumps(trace)) == trace
    for event in trace["traceEvents"]:
        assert event["ph"] in "MX"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= 0
    tracks = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert tracks == {1: "compile", 2: "run on picky", 3: "run on host"}


def test_phases_passes_and_launches_are_there(program, target):
    executable, instance, timings, trace = traced(program, target)
    by_kind = {}
    for event in trace["traceEvents"]:
        by_kind.setdefault(event.get("cat"), []).append(event)
    (parse,) = by_kind["phase"]
    assert (parse["ts"], parse["dur"]) == (0, 500000)
    records = [*executable.records, *instance.records]
    assert [e["name"] for e in by_kind["pass"]] == [r.name for r in records]
    assert {"lower", "plan-memory", "make-runner"} <= {r.name for r in records}
    for event, record in zip(by_kind["pass"], records, strict=True):
        assert abs(event["dur"] - record.seconds * 1e6) < 0.01
    assert len(by_kind["run"]) == 2
    assert len(by_kind["launch"]) == 2 * len(timings)
    topk = [e for e in by_kind["launch"] if e["name"] == "topk"]
    assert [(e["args"]["target"], e["tid"], e["args"]["sources"]) for e in topk] == [("host", 3, ["best"])] * 2
    fast = next(e for e in by_kind["launch"] if e["args"]["kernel"] == "fast argmax")
    assert (fast["args"]["target"], fast["tid"], fast["args"]["sources"]) == ("picky", 2, ["where"])


def test_events_of_a_track_do_not_overlap(program, target):
    *_, trace = traced(program, target)
    for kind in ("pass", "stage", "launch", "run"):
        events = sorted((e for e in trace["traceEvents"] if e.get("cat") == kind), key=lambda e: e["ts"])
        assert events
        for one, following in pairwise(events):
            assert one["ts"] + one["dur"] <= following["ts"] + 0.01


def test_a_trace_shows_few_runs(program, target):
    *_, trace = traced(program, target, runs=13)
    assert sum(1 for e in trace["traceEvents"] if e.get("cat") == "run") == 10
