"""Loads and edits the program of a command: a model file, or the built-in example."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from ..log import log
from ..records import dataclass
from ..types.shape import Shape
from .compiling import rewriting
from .group import FLAGS
from .option_values import assigned, by_name, json_value, split

if TYPE_CHECKING:
    from ..program import Program

__all__ = ["MANY", "Source", "rows_per_run", "source_options"]

F = TypeVar("F", bound=Callable[..., Any])

MANY: Final = ("--input-dim", "--dyn-input-dim", "--dim-param", "--output-names", "--apply-pass", "-p")


def source_options(function: F) -> F:
    """Adds the model argument and the options for reading and editing it."""
    options = [
        click.argument("file", required=False, type=click.Path(path_type=Path)),
        click.option("--test", is_flag=True, help="Use the built-in example: a 4x5 by 5x3 matrix product."),
        click.option("--onnx", is_flag=True, help="The file is ONNX (default: by its extension)."),
        click.option("--tf", is_flag=True, help="The file is a TensorFlow graph or SavedModel (default: by its name)."),
        click.option("--migraphx", "--migraphx-json", "--mxr", "stored", is_flag=True, help="The file is a saved program."),
        click.option("--frontend", metavar="NAME", help="Read the file with the frontend NAME, of any package."),
        click.option("--batch", type=click.IntRange(1), help="Extent of symbolic dimensions."),
        click.option("--input-dim", multiple=True, metavar="@NAME N...", help="Extents of an input: @x 1 3 224 224."),
        click.option(
            "--dyn-input-dim", multiple=True, metavar="@NAME JSON", help='Ranges of an input: @x "[{min:1,max:8}, 3]".'
        ),
        click.option(
            "--dim-param", multiple=True, metavar="@SYM N|JSON", help='A symbol: @batch 4, or @batch "{min:1,max:8}".'
        ),
        click.option("--default-dyn-dim", metavar="JSON", help='Range of symbolic dimensions: "{min:1,max:8}".'),
        click.option("--skip-unknown-operators", is_flag=True, help="Keep operators without a converter as op `unknown`."),
        click.option("--nhwc/--nchw", "nhwc", default=None, help="TensorFlow graphs: --nhwc converts NHWC images to NCHW."),
        click.option("--output-names", multiple=True, metavar="NAME...", help="Outputs of a TensorFlow graph."),
        click.option("--signature", metavar="NAME", help="The signature of a SavedModel or a TFLite model to read."),
        click.option(
            "--frontend-option", multiple=True, metavar="NAME=VALUE",
            help="Any other option of the frontend; VALUE is JSON or text.",
        ),
        click.option("--debug-symbols", is_flag=True, expose_value=False, help="Keep the names of nodes (always on)."),
        click.option("--trim", "-t", type=click.IntRange(0), default=0, metavar="N", help="Drop the last N instructions."),
        click.option("--trim-size", "-s", type=click.IntRange(0), default=0, metavar="N", help="Then keep only the last N."),
        click.option("--replace-literals", is_flag=True, help="Replace literals by parameters."),
        click.option("--optimize", "-O", is_flag=True, help="Run the target-independent passes."),
        click.option(
            "--apply-pass", "-p", multiple=True, metavar="NAME...",
            help="Apply passes by name, with fields as NAME:key=value,...; an unknown name lists them.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@dataclass(frozen=True)
class Source:
    """Values of the options of `source_options`."""

    file: Path | None
    test: bool
    onnx: bool
    tf: bool
    stored: bool
    frontend: str | None
    batch: int | None
    input_dim: tuple[str, ...]
    dyn_input_dim: tuple[str, ...]
    dim_param: tuple[str, ...]
    default_dyn_dim: str | None
    skip_unknown_operators: bool
    nhwc: bool | None
    output_names: tuple[str, ...]
    signature: str | None
    frontend_option: tuple[str, ...]
    trim: int
    trim_size: int
    replace_literals: bool
    optimize: bool
    apply_pass: tuple[str, ...]
    rewriting: Mapping[str, Any]  # options for --optimize

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Source:
        values = {**given, "rewriting": rewriting(given)}
        return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})

    @property
    def name(self) -> str:
        return "the built-in example" if self.file is None else str(self.file)

    def program(self) -> Program:
        """Returns the program, read and edited.  Errors: click.UsageError for options that do not fit together; MgxError."""
        from .edit import apply_passes, trimmed, without_literals

        program = self._read()
        if self.batch is not None:
            self._warn_of_unused_batch(program)
        if self.trim or self.trim_size:
            program = trimmed(program, self.trim, self.trim_size)
        if self.replace_literals:
            program = without_literals(program)
        if self.optimize:
            from ..api import optimize

            program = optimize(program, self.rewriting)
        names = split(self.apply_pass)
        return apply_passes(program, names) if names else program

    def _read(self) -> Program:
        if self.test:
            if self.file is not None:
                raise click.UsageError(f"--test takes no file, got {str(self.file)!r}")
            from ..extents import with_extents
            from ..parsing import refuse_others

            options = self._parse_options()
            refuse_others(self.name, (), options)
            return with_extents(example(), **options)
        if self.file is None:
            raise click.UsageError("a model file is needed, before options that take many values (or --test)")
        if not self.file.exists():
            raise click.UsageError(f"there is no file {str(self.file)!r}")
        from ..parsing import parse

        return parse(self.file, self._reader(), **self._parse_options())

    def _warn_of_unused_batch(self, program: Program) -> None:
        """Warns if --batch has no effect because the inputs have static extents."""
        shapes = _tensors(program)
        if any(s.dims[:1] == (self.batch,) for s in shapes.values()):
            return
        if any(self.batch in s.dims for s in shapes.values()) and dataclasses.replace(self, batch=None)._has_open():
            return
        stated = "".join(f", {n} {list(s.dims)}" for n, s in itertools.islice(shapes.items(), 3))
        log.warning(
            "--batch %s changes nothing: %s states the extents of its inputs%s; --input-dim sets others",
            *(self.batch, self.name, stated),
        )

    def _has_open(self) -> bool:
        """Returns True if an input extent is symbolic without --batch."""
        return any(s.dynamic() for s in _tensors(self._read()).values())

    def _reader(self) -> str | None:
        """Returns the reader selected by options; None to select it by the file's extension."""
        from ..parsing import PROGRAM

        given = [
            n
            for n, on in (("onnx", self.onnx), ("tf", self.tf), (PROGRAM, self.stored), (self.frontend, self.frontend))
            if on and n
        ]
        if len(given) > 1:
            raise click.UsageError("--onnx, --tf, --migraphx and --frontend exclude each other")
        return given[0] if given else None

    def _parse_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.batch is not None:
            if self.default_dyn_dim is not None:
                raise click.UsageError("--batch and --default-dyn-dim exclude each other")
            options["default_dim_value"] = self.batch
        if self.default_dyn_dim is not None:
            options["default_dyn_dim_value"] = json_value(self.default_dyn_dim, "--default-dyn-dim")
        if self.input_dim:
            options["map_input_dims"] = self._input_dims()
        if self.dyn_input_dim:
            options["map_dyn_input_dims"] = self._ranges()
        if self.dim_param:
            options["dim_params"] = self._symbols()
        if self.skip_unknown_operators:
            options["skip_unknown_operators"] = True
        if self.nhwc is not None and (_stated("nhwc") or self._is_tensorflow()):
            options["channels_first"] = self.nhwc
        if self.output_names:
            options["output_names"] = split(self.output_names)
        if self.signature:
            options["signature"] = self.signature
        for name, value in assigned(self.frontend_option, "--frontend-option").items():
            if name in FLAGS:
                raise click.UsageError(f"--frontend-option: {name} is given by {FLAGS[name]}")
            options[name] = value
        return options

    def _is_tensorflow(self) -> bool:
        from ..parsing import reader_of

        return self.file is not None and (self._reader() or reader_of(self.file)) == "tf"

    def _input_dims(self) -> dict[str, list[int]]:
        return {
            name: [
                _extent(word, f"--input-dim @{name}")
                for text in words
                for word in text.strip("[]{}").split(",")
                if word
            ]
            for name, words in by_name(self.input_dim, "--input-dim").items()
        }

    def _ranges(self) -> dict[str, list[Any]]:
        found = {}
        for name, words in by_name(self.dyn_input_dim, "--dyn-input-dim").items():
            value = json_value(" ".join(words), "--dyn-input-dim")
            if not isinstance(value, list):
                raise click.UsageError(f"--dyn-input-dim @{name} must be a list of ints and ranges, got {value!r}")
            found[name] = value
        return found

    def _symbols(self) -> dict[str, Any]:
        return {n: json_value(" ".join(w), "--dim-param") for n, w in by_name(self.dim_param, "--dim-param").items()}


def rows_per_run(program: Program, asked: int | None) -> int:
    """Returns the batch size of a run: --batch if an input's first extent equals it, otherwise 1."""
    return asked if asked is not None and any(s.dims[:1] == (asked,) for s in _tensors(program).values()) else 1


def _tensors(program: Program) -> dict[str, Shape]:
    return {n: s for n, s in program.get_parameter_shapes().items() if isinstance(s, Shape) and s.ranked}


def _stated(option: str) -> bool:
    """Returns True if the option is given on the command line."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _extent(word: str, option: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise click.UsageError(f"{option} takes ints, got {word!r}") from None


def example() -> Program:
    """``c = a b`` with a 4x5 and b 5x3."""
    from ..api import make_op
    from ..program import Program

    program = Program(output_names=["c"])
    main = program.get_main_module()
    a = main.add_parameter("a", Shape("float32", [4, 5]))
    b = main.add_parameter("b", Shape("float32", [5, 3]))
    main.add_return([main.add(make_op("dot"), a, b)])
    return program
