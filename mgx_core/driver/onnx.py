"""``mgx-driver onnx``: the ONNX operators that the installed frontend reads."""

from __future__ import annotations

import difflib

import click

from ..errors import UnsupportedError
from .group import DriverCommand
from .report import Report, report_options

__all__ = ["command"]


@click.command("onnx", cls=DriverCommand)
@click.argument("name", required=False)
@click.option("--list", "-l", "list_", is_flag=True, help="Print them all (default).")
@report_options
def command(as_json: bool, name: str | None, list_: bool) -> None:
    """Print the ONNX operators that can be read; with a NAME whether it is one of them.

    \b
    Examples:
      mgx-driver onnx
      mgx-driver onnx Conv && echo yes
    """
    from ..api import get_onnx_operators

    names = get_onnx_operators()
    report = Report(as_json)
    if name is not None and name not in names:
        close = difflib.get_close_matches(name, names, 1)
        raise UnsupportedError(
            f"ONNX operator {name!r} cannot be read" + (f"; did you mean {close[0]!r}?" if close else "")
        )
    shown = names if name is None else [name]
    report.document(shown)
    for one in shown:
        report.say(one)
