"""``mgx-driver run``: runs a model once; prints or saves its results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .prepare import compiling_command, ready, requested_program
from .report import Report, report_options, shape_document
from .viewers import measured, trace_option, write_trace

if TYPE_CHECKING:
    from ..types.argument import Argument

__all__ = ["command"]

SHOWN: Final = 4096  # maximum elements of a result in a JSON document


@compiling_command("run")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Save results: .npz, or .npy for one."
)
@trace_option
@report_options
def command(as_json: bool, output: Path | None, trace: Path | None, **given: Any) -> None:
    """Run a model once, on random inputs unless others are given, and print its results.

    \b
    Examples:
      mgx-driver run --test
      mgx-driver run model.onnx --load-arg @x image.npy -o result.npz
      mgx-driver run model.onnx --dim-param @batch 4 --fill0 mask --seed 7
      mgx-driver run model.onnx --trace out.json
    """
    report = Report(as_json)
    program, executable, values = ready(requested_program(given), given)
    results = dict(zip(program.get_output_names(), program.run(values), strict=True))
    if trace is not None:
        timings = measured(executable, values, 1, 0, report)
        write_trace(trace, executable, executable.instance(executable.bind(values)), timings)
    if output is not None:
        _save(results, output)
    report.document({"target": executable.target.name, "outputs": {n: _document(a) for n, a in results.items()}})
    for name, result in results.items():
        report.say(f"{name} = {result!r}")


def _document(result: Argument) -> dict[str, Any]:
    import numpy as np

    found = shape_document(result.shape)
    value = result.value
    if isinstance(value, np.ndarray):
        found["values"] = result.tolist() if value.size <= SHOWN else None
        if value.size and value.dtype.kind not in "Oc":
            wide = value.astype(np.float64)
            found |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
    else:
        found["values"] = None if value is None else [_document(a) for a in result.get_sub_objects()]
    return found


def _save(results: dict[str, Argument], output: Path) -> None:
    import numpy as np

    arrays = {name: result.to_numpy() for name, result in results.items()}
    if output.suffix == ".npy":
        if len(arrays) != 1:
            raise click.UsageError(f"a .npy file holds one result, the model gives {len(arrays)}: use .npz")
        with output.open("wb") as stream:
            np.save(stream, next(iter(arrays.values())), allow_pickle=False)
    else:
        with output.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
