"""Output of commands: text and tables, or one JSON document; progress bars on terminals only."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..log import log
from ..types.shape import AnyShape, Shape
from .group import CHANGE, chosen_sizes, listed
from .output import stdout

if TYPE_CHECKING:
    from ..program import Program

__all__ = ["Report", "interface_document", "report_options", "shape_document"]

# by MIGraphX's names and numbers
LEVELS: Final = {
    **dict.fromkeys(("none", "0"), logging.CRITICAL + 1),
    **dict.fromkeys(("error", "1"), logging.ERROR),
    **dict.fromkeys(("warn", "2"), logging.WARNING),
    **dict.fromkeys(("info", "3"), logging.INFO),
    **dict.fromkeys(("debug", "4", "trace", "5"), logging.DEBUG),
}
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def report_options(function: F) -> F:
    """Adds the options that every command has: ``--json``, ``--traceback``, ``--log-level`` and ``--log-file``."""

    def note(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            ctx.find_root().meta["mgx.traceback"] = True

    def log_level(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            log.setLevel(LEVELS[value])
            if not log.hasHandlers():
                log.addHandler(logging.StreamHandler())

    def log_file(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> None:
        for name in value:
            log.addHandler(logging.FileHandler(name))
            if log.getEffectiveLevel() > logging.INFO:
                log.setLevel(logging.INFO)

    function = click.option(
        "--log-file",
        multiple=True,
        metavar="FILE",
        expose_value=False,
        callback=log_file,
        help="Append messages to FILE.",
    )(function)
    function = click.option(
        "--log-level",
        type=click.Choice(list(LEVELS)),
        expose_value=False,
        callback=log_level,
        is_eager=True,
        help="Print messages of this level and above.",
    )(function)
    function = click.option(
        "--traceback", is_flag=True, expose_value=False, callback=note, help="Print the stack trace of an error."
    )(function)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(function)


class Report:
    """Output of one command.

    as_json: prints nothing but the JSON document, when `document` is called.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        if not self.as_json:
            click.echo(text, file=stdout())

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[int] = ()) -> None:
        """Prints aligned columns under headings; right: the indices of right-aligned columns."""
        if self.as_json:
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=stdout())
        if not console.is_terminal:
            console = Console(file=stdout(), width=4096)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        numbers = set(right)
        for n, column in enumerate(columns):
            table.add_column(column, justify="right" if n in numbers else "left", overflow="fold", no_wrap=n in numbers)
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        with console.capture() as capture:
            console.print(table)
        click.echo("\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n")), file=stdout())

    def sizes(self) -> None:
        """Prints the sizes that the command chose for symbolic extents, if any."""
        chosen = chosen_sizes()
        if chosen:
            self.say(f"sizes   {listed(chosen)} ({CHANGE})")

    def progress(self, items: Sequence[T], label: str) -> Iterator[T]:
        """Yields the items, with a progress bar on stderr if that is a terminal."""
        from rich.console import Console

        console = Console(stderr=True)
        if self.as_json or not console.is_terminal or len(items) < 2:
            yield from items
            return
        from rich.progress import track

        yield from track(items, label, console=console, transient=True)

    def document(self, content: Any) -> None:
        """Prints the JSON document; does nothing in text mode."""
        if self.as_json:
            click.echo(json.dumps(plain(content), indent=1, allow_nan=False), file=stdout())


def plain(value: Any) -> Any:
    """Returns the document with values that JSON cannot represent as text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return plain(value.item()) if hasattr(value, "item") else str(value)


def shape_document(shape: AnyShape) -> dict[str, Any]:
    """Returns a shape as JSON content: text, and for tensors element type and extents (symbolic as text, null if unranked)."""
    if isinstance(shape, Shape):
        dims = [d if isinstance(d, int) else str(d) for d in shape.dims] if shape.ranked else None
        return {"text": str(shape), "dtype": shape.dtype.name, "dims": dims}
    return {"text": str(shape)}


def interface_document(program: Program) -> dict[str, dict[str, Any]]:
    """Returns the parameters and results of a program as JSON content, by name."""
    made = zip(program.get_output_names(), program.get_output_shapes(), strict=True)
    return {
        "parameters": {n: shape_document(s) for n, s in program.get_parameter_shapes().items()},
        "outputs": {n: shape_document(s) for n, s in made},
    }
