"""``mgx-driver ranges``: runs with profiler ranges (roctx, NVTX)."""

from __future__ import annotations

from typing import Any

import click

from . import data, source
from .compiling import compile_options
from .data import data_options
from .group import DriverCommand
from .prepare import ready, requested_program
from .report import Report, report_options
from .source import source_options

__all__ = ["command"]


@click.command("ranges", cls=DriverCommand, many=(*source.MANY, *data.MANY))
@source_options
@compile_options
@data_options
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
