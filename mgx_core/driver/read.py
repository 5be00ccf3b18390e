"""``mgx-driver read``: a model as a program, in one of several forms."""

from __future__ import annotations

from typing import Any

import click

from .edit import refusals
from .forms import brief, form_options, write
from .group import DriverCommand
from .report import Report, report_options
from .source import MANY, Source, source_options

__all__ = ["command"]


@click.command("read", cls=DriverCommand, many=MANY)
@source_options
@form_options
@click.option("--why", metavar="RULE", help="Print where a rewriting rule of the usual passes did not fire, and why.")
@report_options
def command(as_json: bool, why: str | None, **given: Any) -> None:
    """Print a model as a program, or write it in another form.

    \b
    Examples:
      mgx-driver read model.onnx                            text
      mgx-driver read model.onnx --brief                    counts only
      mgx-driver read model.onnx -O -g -o model.dot         optimised, for graphviz
      mgx-driver read model.onnx --input-dim @x 1 3 64 64   with another input size
      mgx-driver read model.onnx -p fold-constants          one pass applied
      mgx-driver read model.onnx --why gelu-from-erf        why a rewriting rule did not fire
      mgx-driver read model.onnx -o model.mxr               saved; --binary, --json, --text choose the form
    """
    program = Source.of(given).program()
    if why is not None:
        found = refusals(program, why)
        report = Report(as_json)
        report.document([r._asdict() for r in found])
        for r in found:
            report.say(f"{r.instruction}" + (f" (from {', '.join(r.sources)})" if r.sources else "") + f": {r.why}")
        if not found:
            report.say(f"rule {why!r} was never refused")
    elif given["brief"]:
        brief(program, Report(as_json))
    else:
        write(program, given, as_json)
