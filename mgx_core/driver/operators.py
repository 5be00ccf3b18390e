"""Commands that list the operators of an installed frontend."""

from __future__ import annotations

import difflib

import click

from ..errors import UnsupportedError
from .group import DriverCommand
from .report import Report, report_options

__all__ = ["onnx", "tf"]


def operators_command(word: str, title: str, example: str) -> click.Command:
    """Returns the command ``mgx-driver WORD`` for the operators that the installed frontend of that name reads."""
    says = f"""Print the supported {title} operators; with a NAME, print it if it is supported and fail otherwise.

    \b
    Examples:
      mgx-driver {word}
      mgx-driver {word} {example} && echo yes
    """

    @click.command(word, cls=DriverCommand, help=says)
    @click.argument("name", required=False)
    @click.option("--list", "-l", "list_", is_flag=True, help="Print them all (default).")
    @report_options
    def command(as_json: bool, name: str | None, list_: bool) -> None:
        from ..api import frontend_operators

        print_operators(title, frontend_operators(word), name, as_json)

    return command


def print_operators(title: str, names: list[str], name: str | None, as_json: bool) -> None:
    """Prints all names, or one.  Errors: UnsupportedError if it is none of them."""
    report = Report(as_json)
    if name is not None and name not in names:
        close = difflib.get_close_matches(name, names, 1)
        raise UnsupportedError(
            f"{title} operator {name!r} cannot be read" + (f"; did you mean {close[0]!r}?" if close else "")
        )
    shown = names if name is None else [name]
    report.document(shown)
    for one in shown:
        report.say(one)


onnx = operators_command("onnx", "ONNX", "Conv")
tf = operators_command("tf", "TensorFlow", "Conv2D")
