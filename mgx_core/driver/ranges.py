"""``mgx-driver ranges``: runs with profiler ranges (roctx, NVTX)."""

from __future__ import annotations

from typing import Any

import click

from .prepare import compiling_command, ready, requested_program
from .report import Report, report_options

__all__ = ["command"]


@compiling_command("ranges")
@click.option("--iterations", "-n", type=click.IntRange(1), default=1, show_default=True, help="Number of runs.")
@report_options
def command(as_json: bool, iterations: int, **given: Any) -> None:
    """Run a model with a profiler range around each instruction.

    Start it under the profiler, which shows the ranges above the kernels that they launched.  One run before is not marked.

    \b
    Examples:
      rocprofv3 --marker-trace --kernel-trace -- mgx-driver ranges model.onnx --gpu
      nsys profile -t cuda,nvtx mgx-driver ranges model.onnx --gpu
    """
    report = Report(as_json)
    _, executable, values = ready(requested_program(given), given)
    executable.run(values)
    for _ in range(iterations):
        count = executable.mark(values)
    report.document({"target": executable.target.name, "iterations": iterations, "ranges": count})
    report.say(f"{iterations} runs on {executable.target.name}, each in {count} ranges")
