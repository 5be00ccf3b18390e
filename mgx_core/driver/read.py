"""``mgx-driver read``: prints or converts a model's program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .compiling import rewriting, rewriting_options
from .forms import brief, form_options, write
from .group import DriverCommand
from .report import Report, report_options
from .rules import refusals
from .source import MANY, Source, source_options
from .viewers import export_netron, show_memory

__all__ = ["command"]


@click.command("read", cls=DriverCommand, many=MANY)
@source_options
@rewriting_options
@form_options
@click.option("--why", metavar="RULE", help="Print where a rewrite rule of the default passes refused, and why.")
@click.option(
    "--memory",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Print the offsets of values in memory, and those that are live at the peak; into FILE.svg or FILE.html as a picture.",
)
@click.option(
    "--memory-svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="The memory picture."
)
@click.option(
    "--netron",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write the program as an ONNX model for viewers such as Netron, into FILE or that of --output.",
)
@report_options
def command(
    as_json: bool, why: str | None, memory: str | None, memory_svg: Path | None, netron: str | None, **given: Any
) -> None:
    """Print a model as a program, or write it in another form.

    \b
    Examples:
      mgx-driver read model.onnx                            text
      mgx-driver read model.onnx --brief                    counts only
      mgx-driver read model.onnx -O -g -o model.dot         optimized, for graphviz
      mgx-driver read model.onnx --input-dim @x 1 3 64 64   with another input size
      mgx-driver read model.onnx -p fold-constants          one pass applied
      mgx-driver read model.onnx --why gelu-from-erf        where a rewrite rule refused, and why
      mgx-driver read model.onnx -O --rule gelu=off         optimized without a rule
      mgx-driver read model.onnx -O --memory                the memory plan of the optimized program
      mgx-driver read model.onnx -O --memory plan.svg       the same as a picture
      mgx-driver read model.onnx -O --netron view.onnx      to look at in Netron
      mgx-driver read model.onnx -o model.mxr               saved; --binary, --json, --text choose the form
    """
    if memory not in (None, "-") and given["file"] is None:  # `read --memory model.onnx`
        given["file"], memory = Path(str(memory)), "-"
    if netron not in (None, "-") and given["file"] is None:  # `read --netron model.onnx -o view.onnx`
        given["file"], netron = Path(str(netron)), "-"
    if netron == "-" and given["output"] is None:
        raise click.UsageError("--netron takes the name of a file, or --output does")
    if (given["rules"] or given["disable_passes"]) and not given["optimize"] and why is None:
        raise click.UsageError("--rule and --disable-pass have no effect without --optimize: add -O")
    program = Source.of(given).program()
    view = given["output"] if netron == "-" else None if netron is None else Path(netron)
    if view is not None:
        export_netron(program, view)
    if memory is not None or memory_svg is not None:
        picture = memory_svg if memory in (None, "-") else Path(str(memory))
        if memory_svg is not None and picture is not memory_svg:
            raise click.UsageError("--memory FILE and --memory-svg FILE exclude each other")
        show_memory(program, picture, Source.of(given).name, Report(as_json))
    elif view is not None:
        Report(as_json).say(f"written to {view}")
    elif why is not None:
        from ..options import CompileOptions

        found = refusals(program, why, CompileOptions.of(rewriting(given)))
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
