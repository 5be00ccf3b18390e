"""``mgx-driver params``: parameters and results of a model."""

from __future__ import annotations

from typing import Any

import click

from .group import DriverCommand
from .report import Report, interface_document, report_options
from .source import MANY, Source, source_options

__all__ = ["command"]


@click.command("params", cls=DriverCommand, many=MANY)
@source_options
@report_options
def command(as_json: bool, **given: Any) -> None:
    """Print names and shapes of a model's parameters and results; symbols with their bounds.

    \b
    Examples:
      mgx-driver params model.onnx
      mgx-driver params model.onnx --dim-param @batch "{min:1,max:8}"
      mgx-driver params model.onnx --json
    """
    from ..run.binding import described

    program = Source.of(given).program()
    made = zip(program.get_output_names(), program.get_output_shapes(), strict=True)
    report = Report(as_json)
    rows = [("input", n, described(s)) for n, s in program.get_parameter_shapes().items()]
    rows += [("output", n, described(s)) for n, s in made]
    report.table(["", "name", "shape"], rows)
    report.document(interface_document(program))
