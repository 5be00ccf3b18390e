"""``mgx-driver perf``: times a model, in total and per instruction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..targets.kernel import op_of
from .group import chosen_sizes
from .prepare import compiling_command, ready, requested_program
from .report import Report, report_options
from .source import Source, rows_per_run
from .viewers import measured, trace_option, write_trace

if TYPE_CHECKING:
    from ..run.executable import Executable
    from ..targets.runner import Timing

__all__ = ["command", "statistics"]


@compiling_command("perf")
@click.option("--iterations", "-n", type=click.IntRange(1), default=100, show_default=True, help="Measured runs.")
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=None,
    help="Warm-up runs [default: a tenth, at least 1].",
)
@click.option(
    "--detailed", "-d", is_flag=True, help="Group the summary by input shapes too, and show every instruction."
)
@trace_option
@report_options
def command(
    as_json: bool, iterations: int, warmup: int | None, detailed: bool, trace: Path | None, **given: Any
) -> None:
    """Time a model on random inputs: the whole, each instruction, each kind of operation.

    Times are medians after warm-up.  The rate is the batch over the median: --batch if an input begins with
    it, else 1.  Where the target counts the work of its kernels, it is shown per second, relative to the machine's measured
    peak rates.

    \b
    Examples:
      mgx-driver perf --test
      mgx-driver perf model.onnx --cpu --batch 8 -n 500
      mgx-driver perf model.onnx --dim-param @seq 128 --detailed --json
    """
    report = Report(as_json)
    program = requested_program(given)
    start = time.perf_counter()
    _, executable, values = ready(program, given)
    warm = max(1, iterations // 10) if warmup is None else warmup
    for _ in range(warm):
        executable.run(values)
    prepared = time.perf_counter() - start
    total = statistics([_once(executable, values) for _ in report.progress(range(iterations), "timing")])
    timings = measured(executable, values, iterations, warm, report)
    if trace is not None:
        write_trace(trace, executable, executable.instance(executable.bind(values)), timings)
    spent = sum(_median(t.seconds) for t in timings)
    batch = rows_per_run(program, given["batch"])
    counted = any(t.flops or t.bytes for t in timings)
    limits = executable.target.ceilings(executable.context) if counted else {}
    steps = [_step(t, spent) for t in timings]
    groups = _groups(timings, spent, detailed)
    report.document(
        {
            "model": Source.of(given).name,
            "target": executable.target.name,
            "iterations": iterations,
            "compile_and_warmup_s": prepared,
            "total_s": total,
            "batch": batch,
            "sizes": chosen_sizes(),
            "rate_per_s": batch / total["median"],
            "instructions_s": spent,
            "overhead_s": total["median"] - spent,
            "ceilings": dict(limits),
            "instructions": steps,
            "operations": groups,
        }
    )
    if timings:
        _tables(report, steps if detailed or len(steps) <= 60 else [], groups, limits)
    report.say(f"target {executable.target.name}, {iterations} runs after {warm} of warm-up")
    report.say("total   " + ", ".join(f"{name} {value * 1e3:.4f} ms" for name, value in total.items()))
    if timings:
        report.say(f"instructions {spent * 1e3:.4f} ms, overhead {(total['median'] - spent) * 1e3:z.4f} ms")
    if limits:
        report.say(
            f"at most {limits['flops'] / 1e9:.1f} GFLOP/s and {limits['bytes'] / 1e9:.1f} GB/s on this machine, as measured"
        )
    report.say(f"rate    {batch / total['median']:.1f}/s at batch {batch}")
    report.sizes()


def _tables(
    report: Report, steps: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]], limits: Mapping[str, float]
) -> None:
    """Prints the instructions, if there are any to show, and the kinds of operation."""
    if steps:
        columns = ["ms", "share", *(("GFLOP/s", "GB/s") if limits else ()), "instruction", "from"]
        rows = [(*_numbers(s), *_rates(s, limits), s["instruction"], ", ".join(s["sources"])) for s in steps]
        report.table(columns, rows, right=range(len(columns) - 2))
        report.say()
    report.table(
        ["ms", "share", "count", "operation"],
        [(*_numbers(g), g["count"], g["operation"]) for g in groups],
        right=[0, 1, 2],
    )
    report.say()


def _once(executable: Executable, values: dict[str, Any]) -> float:
    start = time.perf_counter()
    executable.run(values)
    return time.perf_counter() - start


def statistics(seconds: Sequence[float]) -> dict[str, float]:
    """Minimum, mean, median, 90th and 99th percentile, maximum."""
    import numpy as np

    median, p90, p99 = (float(v) for v in np.percentile(seconds, (50, 90, 99)))
    return {
        "min": min(seconds),
        "mean": float(np.mean(seconds)),
        "median": median,
        "p90": p90,
        "p99": p99,
        "max": max(seconds),
    }


def _median(seconds: Sequence[float]) -> float:
    return statistics(seconds)["median"]


def _share(seconds: float, spent: float) -> float:
    return seconds / spent if spent else 0.0


def _rates(step: dict[str, Any], limits: Mapping[str, float]) -> tuple[str, ...]:
    """Returns work per second, and its fraction of the measured peak."""
    if not limits:
        return ()
    return tuple(
        f"{step[of + '_per_s'] / 1e9:.1f} ({step[of + '_per_s'] / limits[of]:.0%})" if step[of] and limits[of] else ""
        for of in ("flops", "bytes")
    )


def _step(timing: Timing, spent: float) -> dict[str, Any]:
    ins = timing.instruction
    median = _median(timing.seconds)
    of = op_of(ins)
    return {
        "instruction": timing.text,
        "operation": of.name,
        "kernel": ", ".join(timing.kernels) or None,
        "sources": list(ins.sources),
        "seconds": median,
        "p90": statistics(timing.seconds)["p90"],
        "share": _share(median, spent),
        "flops": timing.flops,
        "bytes": timing.bytes,
        "flops_per_s": _share(timing.flops, median),
        "bytes_per_s": _share(timing.bytes, median),
    }


def _groups(timings: Sequence[Timing], spent: float, detailed: bool) -> list[dict[str, Any]]:
    """Medians summed by op, with `detailed` by op and input shapes; longest first."""
    groups: dict[str, list[float]] = {}
    for t in timings:
        ins = t.instruction
        name = op_of(ins).name
        if detailed:
            name += f"({', '.join('-' if i.is_absent else str(i.result) for i in ins.inputs)})"
        groups.setdefault(name, []).append(_median(t.seconds))
    rows = [
        {"operation": name, "count": len(times), "seconds": sum(times), "share": _share(sum(times), spent)}
        for name, times in groups.items()
    ]
    return sorted(rows, key=lambda row: -float(row["seconds"]))


def _numbers(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['seconds'] * 1e3:.4f}", f"{row['share']:.1%}"
