"""`mgx-driver quantize`: a model in narrower types, calibrated on data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from . import source
from .compiling import names_target, target_name, target_options
from .group import DriverCommand
from .report import Report, report_options
from .source import Source, source_options

__all__ = ["command"]

KINDS = ("int8", "fp8", "dynamic", "int4-weights")
# options of some kinds only
OF_KINDS: Final = {
    "ranges": KINDS[:2], "no_smooth": KINDS[:2], "no_bias_correction": KINDS[:2], "only": KINDS[:3], "skip": KINDS[:3],
    "group_size": KINDS[3:], "method": KINDS[3:],
}  # fmt: skip


@click.command("quantize", cls=DriverCommand, many=source.MANY)
@source_options
@click.option("--kind", type=click.Choice(KINDS), default="int8", show_default=True, help="Types to compute in.")
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Calibration data: a .npz file, or a folder of them, one file per batch, with an array for each parameter.",
)
@target_options
@click.option(
    "--ranges",
    type=click.Choice(["max", "percentile", "entropy", "mse"]),
    default="max",
    show_default=True,
    help="Calibration method.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Quantize only products whose name contains this.")
@click.option("--skip", multiple=True, metavar="NAME", help="Leave products whose name contains this in float.")
@click.option("--no-smooth", is_flag=True, help="Disable SmoothQuant.")
@click.option("--no-bias-correction", is_flag=True, help="Disable bias correction.")
@click.option("--time", "timed", is_flag=True, help="Measure a run before and after, on the first batch of the data.")
@click.option(
    "--group-size",
    type=int,
    default=128,
    show_default=True,
    help="Number of weights that share a scale (int4-weights).",
)
@click.option(
    "--method",
    type=click.Choice(["max", "mse", "gptq"]),
    default="mse",
    show_default=True,
    help="Rounding method of weights (int4-weights).",
)
@click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the report as an HTML page."
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE.",
)
@report_options
def command(as_json: bool, page: Path | None, output: Path, timed: bool, **given: Any) -> None:
    """Quantize a model with calibration data, and save it.

    \b
    Examples:
      mgx-driver quantize model.onnx --data batches -o model.mxr
      mgx-driver quantize model.onnx --kind int4-weights -o model.mxr
    """
    from .. import quantize as quantizers
    from ..api import get_target
    from ..errors import MgxError
    from ..saving import save

    kind = given["kind"]
    context = click.get_current_context()
    for option, kinds in OF_KINDS.items():
        if kind not in kinds and context.get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{option.replace('_', '-')} requires --kind {' or '.join(kinds)}, got {kind}")
    report = Report(as_json)
    program = Source.of(given).program()
    original = program.clone() if timed else None
    target = get_target(target_name(given)) if names_target(given) else None
    done = quantizers.QuantizeReport()
    if (kind in ("int8", "fp8") or (kind == "int4-weights" and given["method"] == "gptq")) and given["data"] is None:
        raise click.UsageError(f"--kind {kind} needs calibration data: --data PATH")
    if timed and given["data"] is None:
        raise click.UsageError("--time requires inputs: add --data PATH")
    open_files: list[Path] = []
    data = None if given["data"] is None else batches(given["data"], report, open_files)
    names, skip = frozenset(given["only"]), frozenset(given["skip"])
    try:
        if kind == "int4-weights":
            quantizers.quantize_int4_weights(program, given["group_size"], given["method"], data, target, report=done)
        elif kind == "dynamic":
            quantizers.quantize_dynamic(program, names=names, skip=skip, report=done)
        else:
            function = quantizers.quantize_int8 if kind == "int8" else quantizers.quantize_fp8
            settings: dict[str, Any] = {
                "smooth": not given["no_smooth"],
                "correct_bias": not given["no_bias_correction"],
            }
            settings |= {"ranges": given["ranges"], "names": names, "skip": skip, "report": done}
            function(program, target, data, **settings)
    except MgxError as error:
        for setting, flag in (("names: ", "--only: "), ("skip: ", "--skip: ")):
            if error.message.startswith(setting):
                error.message = flag + error.message.removeprefix(setting)
        raise (error.located(f"file {str(open_files[-1])!r}") if open_files else error) from None
    save(program, output)
    if original is not None:
        from ..api import best_target

        done.time(original, program, target or get_target(best_target()), next(batches(given["data"])))
    if page is not None:
        page.write_text(done.html(), encoding="utf-8")
    document = {"layers": [vars(x) for x in done.layers], "bytes": list(done.bytes), "output": str(output)}
    report.document(document if done.seconds is None else {**document, "seconds": list(done.seconds)})
    report.say(done.text())
    report.say(f"written to {output}")


def batches(
    folder: Path, report: Report | None = None, open_files: list[Path] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the arrays of each .npz file of a folder (or of one file) by name.

    report: shows the progress; open_files: holds the file whose arrays are in use.
    Errors: click.UsageError if there is none, or one that cannot be read.
    """
    import zipfile

    import numpy as np

    files = [folder] if folder.is_file() else sorted(folder.glob("*.npz"))
    if not files:
        raise click.UsageError(f"--data: there are no .npz files in {folder}")
    using = [] if open_files is None else open_files
    for file in files if report is None else report.progress(files, "calibrating"):
        using[:] = [file]
        try:
            if not zipfile.is_zipfile(file):
                why = "it is no .npz file (numpy.savez writes them), or it is cut off"
                raise click.UsageError(f"--data: {file} cannot be read: {why}")
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
                yield {name: held[name] for name in held.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise click.UsageError(f"--data: {file} cannot be read: {error}") from None
    using.clear()
