"""The command group: lazy loading of commands, options with many values, errors as exit codes."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from ..errors import MgxError, ParameterError, PluginError, ShapeError
from .output import own_output

__all__ = ["CHANGE", "CHOSEN", "COMMANDS", "SEPARATOR", "DriverCommand", "DriverGroup", "chosen_sizes", "listed"]

# name -> (module of this package, what it does); the attribute is called `command`
COMMANDS: Final = {
    "read": ("read", "Print a model as a program, or write it in another form."),
    "params": ("params", "Print the parameters and results of a model."),
    "compile": ("compile", "Compile a model; report passes and placements, or save it."),
    "run": ("run", "Run a model once and print or save its results."),
    "perf": ("perf", "Time a model and each of its instructions."),
    "quantize": ("quantize", "Quantize a model with calibration data, and save it."),
    "time": ("time", "Time whole runs of a model."),
    "ranges": ("ranges", "Run a model with a profiler range around each instruction."),
    "verify": ("verify", "Compare a target's results with the reference."),
    "ops": ("ops", "Print the operations of programs."),
    "rules": ("rules", "Print the rewrite rules and passes, and what each does."),
    "onnx": ("operators:onnx", "Print the supported ONNX operators."),
    "tf": ("operators:tf", "Print the supported TensorFlow operators."),
    "plugins": ("plugins", "Print the installed plugins, and why one failed."),
}
ALIASES: Final = {"op": "ops", "roctx": "ranges"}  # MIGraphX's names

FLAGS: Final = {  # Python options by their command line flags
    "default_dim_value": "--batch",
    "default_dyn_dim_value": "--default-dyn-dim",
    "dim_params": "--dim-param",
    "map_input_dims": "--input-dim",
    "map_dyn_input_dims": "--dyn-input-dim",
    "fusion_rules": "--rule",
    "disable_passes": "--disable-pass",
    "skip_unknown_operators": "--skip-unknown-operators",
    "channels_first": "--nhwc",
    "output_names": "--output-names",
    "signature": "--signature",
}

CHOSEN: Final = "mgx.chosen"  # in the context's `meta`: sizes that a command chose for open extents, by name
CHANGE: Final = "--dim-param and --input-dim choose others"
SEPARATOR: Final = "\x1f"  # joins the values of one many-valued option into one token


def chosen_sizes(context: click.Context | None = None) -> dict[str, int]:
    """Returns the sizes that the command chose for symbolic extents, by name."""
    context = context or click.get_current_context(silent=True)
    return dict(context.meta.get(CHOSEN, {})) if context is not None else {}


def listed(sizes: Mapping[str, int]) -> str:
    """Returns sizes as text: ``batch=1, sequence=1``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


class DriverCommand(click.Command):
    """A command whose options named in `many` take all words up to the next option (``--input-dim @x 1 3 --ref``)."""

    def __init__(self, *args: Any, many: tuple[str, ...] = (), **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 120})
        super().__init__(*args, **kwargs)
        self.many = frozenset(many)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.joined(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; plugins' output is redirected to stderr."""
        file, output = ctx.params.get("file"), ctx.params.get("output")
        if isinstance(file, Path) and isinstance(output, Path) and _overwrites(output, file):
            raise click.UsageError(f"--output would overwrite the model {str(file)!r}: give another file", ctx)
        with own_output(ctx):
            return super().invoke(ctx)

    def joined(self, args: list[str]) -> list[str]:
        """Returns arguments with the values of each many-valued option as one token."""
        out: list[str] = []
        at = 0
        while at < len(args):
            word, equals, first = args[at].partition("=")
            at += 1
            if word not in self.many:
                out.append(args[at - 1])
                if args[at - 1] == "--":
                    return out + args[at:]
                continue
            values = [first] if equals else []
            while at < len(args) and not _is_option(args[at]):
                values.append(args[at])
                at += 1
            out += [word, SEPARATOR.join(values)] if values else [word]
        return out


def in_flags(message: str) -> str:
    """Returns a message with Python option names replaced by command line flags."""
    for name, flag in FLAGS.items():
        message = re.sub(rf"\b{name}\[(['\"])(.*?)\1\]", rf"{flag} @\2", message)
        message = re.sub(rf"(['\"]?)\b{name}\b\1", flag, message)
    return message


def _overwrites(output: Path, model: Path) -> bool:
    """Returns True if a file to write is the model to read, unless that is a saved program, which may be edited in place."""
    from ..store.container import is_program

    if not (output.is_file() and model.is_file() and output.samefile(model)):
        return False
    with model.open("rb") as file:
        return not is_program(file.read(256))


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and word != "-"


class DriverGroup(click.Group):
    """The commands of this package and those that plugins add with the hook `commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name in self._plugged() if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name in COMMANDS:
            file, _, attribute = COMMANDS[name][0].partition(":")
            module = importlib.import_module(f"{__package__}.{file}")
            found: click.Command = getattr(module, attribute or "command")
            return found
        if name not in self._plugged():
            return None
        from ..plugins.manager import manager

        command: click.Command = manager().load("commands", name, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, known, 1)
            misplaced = [a for a in args[1:] if a in known]
            hint = ""
            if misplaced:
                hint = f"; the command comes first: {ctx.command_path} {misplaced[0]} {name} ..."
            elif close:
                hint = f"; did you mean {close[0]!r}?"
            ctx.fail(f"there is no command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, about) for name, (_, about) in COMMANDS.items()]
        rows += [(n, lazy.about) for n, lazy in self._plugged().items() if n not in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except BrokenPipeError:
            raise
        except MgxError as error:
            message = in_flags(str(error)) if isinstance(error, ParameterError) else str(error)
            chosen = chosen_sizes(ctx) if isinstance(error, ShapeError) else {}
            if chosen:
                message += f" (no size was given for open extents, so {listed(chosen)}; {CHANGE})"
            self._report(message)
            ctx.exit(3 if isinstance(error, PluginError) and error.__cause__ is not None else 2)
        except OSError as error:
            place = f": {error.filename}" if error.filename else ""
            self._report(f"{error.strerror or error}{place}")
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except Exception as error:
            self._report(f"internal error: {type(error).__name__}: {error} (--traceback says where)")
            ctx.exit(3)

    @staticmethod
    def _report(message: str) -> None:
        if _wants_traceback():
            click.echo(traceback.format_exc().rstrip(), err=True)
        click.echo("error: " + " ".join(message.split("\n")), err=True)

    @staticmethod
    def _plugged() -> dict[str, Any]:
        from ..plugins.manager import manager

        try:
            return manager().named("commands")
        except MgxError as error:
            click.echo(f"warning: commands of plugins are left out: {error}", err=True)
            return {}


def _wants_traceback() -> bool:
    """Returns True if --traceback is given before or after the command's name."""
    ctx = click.get_current_context(silent=True)
    root = None if ctx is None else ctx.find_root()
    if root is None:
        return False
    return bool(root.params.get("traceback") or root.meta.get("mgx.traceback") or "--traceback" in sys.argv)
