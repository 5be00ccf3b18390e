"""``perf``: timings."""

from __future__ import annotations

import pytest

from mgx_core.driver.perf import statistics


def test_document(drive_json, chain):
    found = drive_json("perf", chain("exp exp tanh"), "-n", "5", "--batch", "2", "--target", "wrong")
    assert found["iterations"] == 5
    assert [i["operation"] for i in found["instructions"]] == ["exp", "exp", "tanh"]
    assert [i["kernel"] for i in found["instructions"]] == ["reference exp", "reference exp", "tanh plus a tenth"]
    assert found["instructions"][0]["sources"] == ["node0"]
    assert sum(i["share"] for i in found["instructions"]) == pytest.approx(1)
    assert {g["operation"]: g["count"] for g in found["operations"]} == {"exp": 2, "tanh": 1}
    assert found["rate_per_s"] == pytest.approx(2 / found["total_s"]["median"])
    assert found["total_s"]["min"] <= found["total_s"]["median"] <= found["total_s"]["p90"] <= found["total_s"]["max"]


def test_the_rate_counts_the_rows_that_there_are(drive_json, chain):
    found = drive_json("perf", chain("exp"), "-n", "2", "--batch", "8", "--target", "wrong")
    assert found["batch"] == 1
    assert found["rate_per_s"] == pytest.approx(1 / found["total_s"]["median"])


def test_text(drive, chain):
    text = drive("perf", chain("exp"), "-n", "3", "--warmup", "2")
    assert "3 runs after 2 of warm-up" in text
    assert "rate " in text
    assert "median" in text


def test_an_overhead_that_rounds_to_zero_has_no_sign(drive, chain, monkeypatch):
    from mgx_core.driver import perf
    from mgx_core.run.executable import Executable
    from mgx_core.targets.runner import Timing

    def timed(executable, values, runs, warmup):
        launch = next(i for i in executable.instances()[0].module if i.name == "launch")
        return [Timing(launch, [0.002 + 1e-9])]

    monkeypatch.setattr(Executable, "time", timed)
    monkeypatch.setattr(perf, "_once", lambda executable, values: 0.002)
    text = drive("perf", chain("exp"), "-n", "1", "--target", "wrong", "--warmup", "1")
    assert "instructions 2.0000 ms, overhead 0.0000 ms" in text


def test_detailed_groups_by_shape(drive_json, chain):
    found = drive_json("perf", chain("neg"), "-n", "1", "--detailed", "--target", "wrong")
    assert [g["operation"] for g in found["operations"]] == ["neg(float32[2, 3])"]


def test_statistics():
    found = statistics([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (found["min"], found["mean"], found["median"], found["max"]) == (1, 3, 3, 5)
    assert found["p90"] == pytest.approx(4.6)


def test_work_is_shown_relative_to_the_machines_peaks(drive, drive_json, chain, monkeypatch):
    from mgx_core.run.executable import Executable
    from mgx_core.targets.runner import Timing
    from mgx_core.targets.target import Target

    def timed(executable, values, runs, warmup):
        launch = next(i for i in executable.instances()[0].module if i.name == "launch")
        return [Timing(launch, [0.5], flops=2_000_000_000, bytes=500_000_000)]

    monkeypatch.setattr(Executable, "time", timed)
    monkeypatch.setattr(Target, "ceilings", lambda self, context: {"flops": 8e9, "bytes": 4e9})
    text = drive("perf", chain("exp"), "-n", "1", "--target", "wrong", "--warmup", "1", "--detailed")
    assert "4.0 (50%)" in text
    assert "1.0 (25%)" in text
    assert "at most 8.0 GFLOP/s and 4.0 GB/s" in text
    found = drive_json("perf", chain("exp"), "-n", "1", "--target", "wrong")
    assert (found["instructions"][0]["flops_per_s"], found["ceilings"]) == (4e9, {"flops": 8e9, "bytes": 4e9})
