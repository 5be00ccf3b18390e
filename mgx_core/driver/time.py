"""``mgx-driver time``: times whole runs, without instructions."""

from __future__ import annotations

import time
from typing import Any

import click

from .group import chosen_sizes
from .prepare import compiling_command, ready, requested_program
from .report import Report, report_options

__all__ = ["command"]


@compiling_command("time")
@click.option("--iterations", "-n", type=click.IntRange(1), default=100, show_default=True, help="Number of runs.")
@report_options
def command(as_json: bool, iterations: int, **given: Any) -> None:
    """Print the mean time of a run; `perf` has details.

    \b
    Examples:
      mgx-driver time model.onnx --cpu
      mgx-driver time model.onnx --gpu -n 1000
    """
    report = Report(as_json)
    _, executable, values = ready(requested_program(given), given)
    executable.run(values)
    start = time.perf_counter()
    for _ in range(iterations):
        executable.run(values)
    seconds = (time.perf_counter() - start) / iterations
    report.document(
        {"target": executable.target.name, "iterations": iterations, "seconds": seconds, "sizes": chosen_sizes()}
    )
    report.say(f"Total time: {seconds * 1e3:.4f} ms")
    report.sizes()
