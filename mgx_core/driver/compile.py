"""``mgx-driver compile``: compiles and reports, or saves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import counted
from .compiling import compiled, host_placements
from .data import inputs
from .forms import chosen_form, form_options, write
from .prepare import compiling_command, requested_program
from .report import Report, report_options
from .source import Source
from .viewers import trace_option, write_trace

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord
    from ..run.instance import Instance

__all__ = ["command"]


@compiling_command("compile")
@form_options
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an HTML page with passes, launches, memory and the graph.",
)
@click.option(
    "--summary/--no-summary",
    default=True,
    show_default=True,
    help="Without an output file, report passes, kernels and memory, or print the program.",
)
@trace_option
@report_options
def command(as_json: bool, page: Path | None, trace: Path | None, summary: bool, **given: Any) -> None:
    """Compile a model; report passes, kernels and memory, print the program, or save it.

    Symbolic extents get the values that `run` would give them, so that kernels can be reported.

    \b
    Examples:
      mgx-driver compile model.onnx --cpu                what happened, and what runs on the host and why
      mgx-driver compile model.onnx --cpu -o model.mxr   saved with its kernels
      mgx-driver compile model.onnx --cpu --text         the optimized program
      mgx-driver compile model.onnx --exhaustive-tune    time all kernels and use the fastest
      mgx-driver compile model.onnx --report out.html    a page with passes, launches, memory and the graph
      mgx-driver compile model.onnx --trace out.json     where the time went, for Perfetto
    """
    report = Report(as_json)
    began = time.perf_counter()
    program = requested_program(given)
    start = time.perf_counter()
    parsing = start - began
    executable = compiled(program, given)
    seconds = time.perf_counter() - start
    done = f"compiled for {executable.target.name} in {seconds:.3f} s"
    asked = given["output"] is not None or any(given[f] for f in ("text", "binary", "graphviz", "python", "cpp"))
    written = asked or not summary
    if written:
        write(program, given, as_json)
        if given["output"] is not None and not as_json:
            report.say(f"{done}, written to {given['output']} ({chosen_form(given, False)})")
        if page is None and trace is None:
            return
    instance = executable.instance(executable.bind(inputs(executable.parameters, given)))
    write_trace(trace, executable, instance, phases=[("parse", parsing)])
    if page is not None:
        from ..report import report_html

        report_html(program, page, Path(Source.of(given).name).name, instance)
        report.say(f"report written to {page}")
    if written:
        return
    records = [*executable.records, *instance.records]
    declined = host_placements(instance)
    report.document(
        {
            "model": Source.of(given).name,
            "target": executable.target.name,
            "options": {k: getattr(executable.options, k) for k in executable.options.__dataclass_fields__},
            "seconds": seconds,
            "passes": [{**vars(r), "rules": [c._asdict() for c in r.rules]} for r in records],
            "kernels": [{"op": p.op, "kernel": p.kernel, "place": p.place} for p in instance.placements],
            "host": declined,
            "memory": {"peak": instance.plan.peak, "lower_bound": instance.plan.lower_bound},
        }
    )
    report.say(done)
    _summary(report, records, instance, declined)


def _summary(
    report: Report, records: Sequence[PassRecord], instance: Instance, declined: Sequence[dict[str, Any]]
) -> None:
    """Prints passes, rules, memory, and the launches on the host."""
    report.table(
        ["stage", "pass", "ms", "instructions"],
        [(r.stage, r.name, f"{r.seconds * 1e3:.2f}", f"{r.before} -> {r.after}") for r in records],
        right=[2],
    )
    counts = [c for r in records for c in r.rules]
    if counts:
        report.say("rules (read --why RULE lists each refusal)")
        report.table(
            ["rule", "fired", "refused", "most frequent reason"],
            [(c.rule, c.fired or "", c.refused or "", c.why) for c in counts],
            right=[1, 2],
        )
    report.say(
        f"{counted(len(instance.placements), 'kernel')}, {instance.plan.peak} bytes of memory for intermediate values"
    )
    if declined:
        report.say(f"{len(declined)} on the host, because the target declined:")
        report.table(
            ["operation", "from", "why"],
            [(d["op"].split("[")[0], ", ".join(d["sources"]), "; ".join(d["refused"])) for d in declined],
        )
