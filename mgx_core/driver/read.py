"""``mgx-driver read``: a model as a program, in one of several forms."""

from __future__ import annotations

from typing import Any

import click

from .forms import brief, form_options, write
from .group import DriverCommand
from .report import Report, report_options
from .source import MANY, Source, source_options

__all__ = ["command"]


@click.command("read", cls=DriverCommand, many=MANY)
@source_options
@form_options
@report_options
def command(as_json: bool, **given: Any) -> None:
    """Print a model as a program, or write it in another form.

    \b
    Examples:
      mgx-driver read model.onnx                            text
      mgx-driver read model.onnx --brief                    counts only
      mgx-driver read model.onnx -O -g -o model.dot         optimised, for graphviz
      mgx-driver read model.onnx --input-dim @x 1 3 64 64   with another input size
      mgx-driver read model.onnx -p fold-constants          one pass applied
      mgx-driver read model.onnx -o model.mxr               saved; --binary, --json, --text choose the form
    """
    program = Source.of(given).program()
    if given["brief"]:
        brief(program, Report(as_json))
    else:
        write(program, given, as_json)
