"""``mgx-driver params``: what a model takes and gives."""

from __future__ import annotations

from typing import Any

import click

from .group import DriverCommand
from .report import Report, report_options, shape_document
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
    taken = program.get_parameter_shapes()
    made = dict(zip(program.get_output_names(), program.get_output_shapes(), strict=True))
    report = Report(as_json)
    rows = [("takes", n, described(s)) for n, s in taken.items()] + [
        ("gives", n, described(s)) for n, s in made.items()
    ]
    report.table(["", "name", "shape"], rows)
    report.document(
        {
            "parameters": {n: shape_document(s) for n, s in taken.items()},
            "outputs": {n: shape_document(s) for n, s in made.items()},
        }
    )
