"""``mgx-driver verify``: a target's results against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .compiling import QUANTIZE, compiled, quantized
from .data import inputs
from .group import chosen_sizes
from .option_values import Limit
from .prepare import compiling_command
from .report import Report, report_options
from .rules import rules_of_packages
from .source import Source

if TYPE_CHECKING:
    from ..program import Program
    from ..run.executable import Executable
    from .accuracy import Difference, Tolerance
    from .bisection import Bisection

__all__ = ["command"]


@compiling_command("verify")
@click.option(
    "--rms-tol",
    type=Limit(min=0),
    help="Root mean square error over the largest magnitude [default: 0.001].",
)
@click.option("--atol", type=Limit(min=0), help="Absolute error of an element [default: 0.001].")
@click.option("--rtol", type=Limit(min=0), help="Relative error of an element [default: 0.001].")
@click.option("--per-instruction", "-i", is_flag=True, help="Check each instruction alone, on the reference's inputs.")
@click.option("--reduce", "-r", is_flag=True, help="Check programs shortened from the end, one instruction at a time.")
@click.option("--bisect", "-b", is_flag=True, help="Find the first instruction that differs, by bisection.")
@click.option("--ref-use-double", is_flag=True, help="Compute the reference in float64.")
@click.option(
    "--compiled-model",
    "-c",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare the results of this compiled program instead of compiling.",
)
@click.option(
    "--quantized",
    "narrow",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare the results of this quantized program by signal-to-noise ratio.",
)
@click.option(
    "--sqnr",
    type=Limit(),
    default=20,
    show_default=True,
    help="Smallest signal-to-noise ratio in dB that --quantized accepts.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Inputs for --quantized: a .npz file, or a folder of them, one file per batch (default: one batch of random numbers).",
)
@report_options
def command(as_json: bool, **given: Any) -> None:
    """Compare a target's results with the reference, on random inputs.

    The reference runs the definition of every operation of the unoptimized program.  With 16-bit floats (in the model, or
    because of --fp16 or --bf16) the tolerances are 0.08 rms, 0.04 and 0.04; with 4-bit floats 0.8, 0.4 and 0.4.  Integers must
    be equal.  If results differ and the model selects positions (TopK, ArgMax, ArgMin, NonMaxSuppression), each selection is
    checked against the reference's values within the tolerance, and the reference is continued with the target's selections.
    The rules of packages that fired are named; --rule NAME=off disables one.
    Exit status 1 if results differ.

    --quantized compares a file that `quantize` wrote with the original model; the signal-to-noise ratio over all batches must
    reach --sqnr.

    \b
    Examples:
      mgx-driver verify model.onnx --cpu
      mgx-driver verify model.onnx --cpu --atol 1e-5 --rtol 1e-4
      mgx-driver verify model.onnx --gpu --bisect          which instruction goes wrong first
      mgx-driver verify model.onnx --gpu -i --json         every instruction on its own
      mgx-driver verify model.onnx --quantized model.mxr --data batches
    """
    from .bisection import Bisection

    modes = [m for m in ("per_instruction", "reduce", "bisect") if given[m]]
    if len(modes) > 1:
        raise click.UsageError(
            f"{' and '.join('--' + m.replace('_', '-') for m in modes)} exclude each other: give one"
        )
    report = Report(as_json)
    program = Source.of(given).program()
    if given["narrow"] is not None:
        _ratios(program, given, report)
        return
    if given["data"] is not None:
        raise click.UsageError("--data requires --quantized FILE")
    values = {**inputs(program.get_parameter_shapes(), given), **program.states}
    tolerance = _tolerance(program, given)
    hunt = Bisection(
        program,
        values,
        tolerance,
        lambda p: compiled(quantized(p, given, lambda: values), given),
        given["ref_use_double"],
    )
    executable = _saved(given["compiled_model"]) or hunt.compile(program)
    found = hunt.compared(executable)
    ok = all(d.ok for d in found)
    report.table(["", "result", "rms error", "largest error", "why"], [_row(d) for d in found], right=[2, 3])
    document: dict[str, Any] = {
        "model": Source.of(given).name,
        "target": executable.target.name,
        "tolerance": vars(tolerance),
        "sizes": chosen_sizes(),
        "outputs": [_document(d) for d in found],
        "rules": rules_of_packages(executable.records),
    }
    if modes:
        ok &= {"per_instruction": _alone, "reduce": _reduced, "bisect": _bisected}[modes[0]](hunt, report, document)
    document["ok"] = ok
    report.document(document)
    limits = f"rms {tolerance.rms:g}, atol {tolerance.atol:g}, rtol {tolerance.rtol:g}"
    _end(report, ok, executable, limits, document["rules"])


def _end(report: Report, ok: bool, executable: Executable, limits: str, rules: Mapping[str, Mapping[str, int]]) -> None:
    """Prints the verdict and the packages' rules that fired; exits with status 1 if results differ."""
    report.say(f"{'passed' if ok else 'FAILED'} on {executable.target.name} ({limits})")
    for package, counts in rules.items():
        fired = [f"{name} ({count})" for name, count in counts.items() if count]
        report.say(f"rules   of {package}: {', '.join(fired) or 'none fired'}")
    report.sizes()
    if not ok:
        click.get_current_context().exit(1)


def _tolerance(program: Program, given: dict[str, Any]) -> Tolerance:
    """Returns the tolerance from the options, with defaults by the program's types."""
    from .accuracy import Tolerance, default_tolerance

    default = default_tolerance(program.get_main_module(), any(given[q] for q in QUANTIZE))
    asked = {"rms": given["rms_tol"], "atol": given["atol"], "rtol": given["rtol"]}
    return Tolerance(**{k: getattr(default, k) if v is None else v for k, v in asked.items()})


def _saved(file: Path | None) -> Executable | None:
    """Returns the executable in a program file.  Errors: click.UsageError for a program that is not compiled."""
    if file is None:
        return None
    from ..saving import load

    found = load(file).executable
    if found is None:
        raise click.UsageError(f"--compiled-model takes a compiled program, {str(file)!r} holds one that is not")
    return found


def _ratios(program: Program, given: dict[str, Any], report: Report) -> None:
    """Compares a quantized program with the one that it was made from, both on the chosen target."""
    from ..saving import load
    from .accuracy import Signal
    from .quantize import batches

    wide, narrow = compiled(program, given), compiled(load(given["narrow"]), given)
    found: dict[str, Signal] = {}
    shapes = program.get_parameter_shapes()
    for values in [inputs(shapes, given)] if given["data"] is None else batches(given["data"]):
        results = ([a.copy().value if a.on_device else a.value for a in x.run(values)] for x in (wide, narrow))
        for name, gold, got in zip(program.get_output_names(), *results, strict=True):
            found.setdefault(name, Signal()).add(gold, got)
    rows = [{"name": n, "sqnr": s.ratio, "ok": s.ratio >= given["sqnr"]} for n, s in found.items()]
    report.table(
        ["", "result", "SQNR dB"],
        [("ok" if r["ok"] else "DIFFERS", r["name"], f"{r['sqnr']:.1f}") for r in rows],
        right=[2],
    )
    ok = all(r["ok"] for r in rows)
    rules = rules_of_packages([*wide.records, *narrow.records])
    report.document({"target": wide.target.name, "sqnr": given["sqnr"], "outputs": rows, "rules": rules, "ok": ok})
    _end(report, ok, wide, f"at least {given['sqnr']:g} dB", rules)


def _row(d: Difference) -> tuple[str, str, str, str, str]:
    return "ok" if d.ok else "DIFFERS", d.name, f"{d.rms:.3g}", f"{d.largest:.3g}", d.why


def _document(d: Difference) -> dict[str, Any]:
    return {"name": d.name, "ok": d.ok, "rms": d.rms, "largest": d.largest, "why": d.why}


def _alone(hunt: Bisection, report: Report, document: dict[str, Any]) -> bool:
    rows: list[tuple[str, ...]] = []
    document["instructions"] = entries = []
    for n in report.progress(range(len(hunt.steps)), "instructions"):
        d, skipped = hunt.alone(n)
        entries.append({"index": n, "sources": list(hunt.steps[n].sources), "skipped": skipped, **_document(d)})
        rows.append(("skipped", d.name, "", "", skipped) if skipped else _row(d))
    report.table(["", "instruction", "rms error", "largest error", "why"], rows, right=[2, 3])
    return all(e["ok"] for e in entries)


def _reduced(hunt: Bisection, report: Report, document: dict[str, Any]) -> bool:
    rows = []
    document["reduced"] = entries = []
    for count in report.progress(range(len(hunt.steps), 0, -1), "reducing"):
        d = hunt.prefix(count)
        entries.append({"instructions": count, "last": repr(hunt.steps[count - 1]), **_document(d)})
        rows.append(("ok" if d.ok else "DIFFERS", count, repr(hunt.steps[count - 1]), d.why))
    report.table(["", "instructions", "last", "why"], rows, right=[1])
    return all(e["ok"] for e in entries)


def _bisected(hunt: Bisection, report: Report, document: dict[str, Any]) -> bool:
    first = hunt.bisect(lambda count, d: report.say(f"  first {count} instructions: {'ok' if d.ok else 'differ'}"))
    if first is None:
        document["first"] = None
        report.say("no instruction differs")
        return True
    ins, d = hunt.steps[first], hunt.prefix(first + 1)
    alone, skipped = hunt.alone(first)
    inside = skipped or (
        "also differs alone" if not alone.ok else "is correct alone: it differs when optimized with its neighbors"
    )
    document["first"] = {
        "index": first,
        "instruction": repr(ins),
        "sources": list(ins.sources),
        "alone": inside,
        **_document(d),
    }
    report.say(
        f"first to differ: instruction {first}, {ins!r}" + (f", from {', '.join(ins.sources)}" if ins.sources else "")
    )
    report.say(f"  {d.why}")
    report.say(f"  it {inside}")
    return False
