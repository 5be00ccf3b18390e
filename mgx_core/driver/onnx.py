"""``mgx-driver onnx``: the ONNX operators that the installed frontend reads."""

from __future__ import annotations

import click

from .group import DriverCommand
from .operators import print_operators
from .report import report_options

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

    print_operators("ONNX", get_onnx_operators(), name, as_json)
