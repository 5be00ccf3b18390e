"""The command line tool ``mgx-driver``; each command is a module, loaded when it is called."""

from __future__ import annotations

import click

from ..version import __version__
from .group import DriverGroup

__all__ = ["main"]

EXAMPLES = """
\b
Examples:
  mgx-driver read model.onnx                       the program as text
  mgx-driver params model.onnx                     its parameters and results
  mgx-driver run model.onnx --ref                  once, on random inputs
  mgx-driver perf model.onnx --cpu -n 200          the time of each instruction
  mgx-driver verify model.onnx --cpu --bisect      against the reference; the first instruction that differs
  mgx-driver compile model.onnx -o model.mxr       compile once, load anywhere
  mgx-driver ops convolution                       an operation's attributes
  mgx-driver plugins                               what is installed

\b
Exit status: 0 success, 1 results differ, 2 invalid usage or unsupported model, 3 a bug in mgx or a plugin.
"""


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        called = "mgx-driver" if " " in str(ctx.info_name) else ctx.info_name  # not python -m mgx_core
        click.echo(f"{called}, version {__version__}")
        ctx.exit()


def _ort_sha(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo("none: no build of ONNX Runtime is needed")
        ctx.exit()


@click.group(
    cls=DriverGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.option(
    "-v",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
@click.option(
    "--ort-sha",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_ort_sha,
    help="Print the commit of ONNX Runtime that this build needs.",
)
@click.option("--traceback", is_flag=True, help="Print the stack trace of an error.")
def main(traceback: bool) -> None:
    """Read, compile, run, time and check deep-learning models."""
