"""Output for other viewers: the report page, traces, memory diagrams, models for Netron."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..program import Program
    from ..run.executable import Executable
    from ..run.instance import Instance
    from ..targets.runner import Timing
    from .report import Report

__all__ = ["export_netron", "show_memory", "trace_option", "write_trace"]

F = TypeVar("F", bound=Callable[..., Any])


def trace_option(function: F) -> F:
    """``--trace``."""
    return click.option(
        "--trace",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write a trace for Perfetto: passes, lowering, planning and, if it is run, each launch.",
    )(function)


def write_trace(
    path: Path | None,
    executable: Executable,
    instance: Instance | None,
    timings: Sequence[Timing] = (),
    phases: Sequence[tuple[str, float]] = (),
) -> None:
    """Writes a trace, if a file was given."""
    if path is not None:
        from ..report import chrome_trace

        document = chrome_trace(executable, instance, timings, phases)
        path.write_text(json.dumps(document, indent=0), encoding="utf-8")


def measured(executable: Executable, values: Mapping[str, Any], runs: int, warmup: int, report: Report) -> list[Timing]:
    """Returns times per instruction; none, with a note, if the target does not measure them."""
    from ..errors import ParameterError

    try:
        return executable.time(values, runs, warmup)
    except ParameterError as error:
        report.say(f"note: {error}")
        return []


def show_memory(program: Program, picture: Path | None, name: str, report: Report) -> None:
    """Prints a program's memory plan, or writes it as a diagram (SVG, or a page for ``.html``).

    A compiled program shows the plan that it runs with; any other is planned without compiling, with its symbols at the
    values that `run` would give them.
    """
    from ..report import memory_page, memory_svg, memory_text
    from ..report.memory_diagram import Timeline
    from ..targets.memory import MemoryPlan, plan_memory
    from ..targets.schedule import Schedule
    from ..types.shape import AnyShape, Shape
    from .data import concrete

    plan: MemoryPlan | Schedule
    made = [] if program.executable is None else program.executable.instances()
    if made:
        module, plan = made[-1].module, made[-1].plan
    else:
        symbols: dict[str, int] = {}
        module = program.shown
        fixed: dict[str, AnyShape] = {
            n: Shape(i.result.dtype, concrete(i.result, symbols))
            for n, i in module.parameters.items()
            if isinstance(i.result, Shape) and i.result.dynamic()
        }
        module = module.clone(parameters=fixed) if fixed else module
        plan = plan_memory(module)
    line = Timeline(plan, module)
    report.document(
        {
            "peak": plan.peak,
            "lower_bound": plan.lower_bound,
            "buffers": [
                {"op": line.name(b), "sources": list(line.sources(b)), "bytes": b.bytes, "offset": b.offset, "first": b.first,
                 "last": b.last}
                for b in plan.buffers
            ],
            "dynamic": len(plan.dynamic),
        }
    )  # fmt: skip
    if picture is None:
        report.say(memory_text(plan, module))
    else:
        page = picture.suffix.lower() in (".html", ".htm")
        text = memory_page(plan, module, name) if page else memory_svg(plan, module)
        picture.write_text(text, encoding="utf-8")
        report.say(f"peak {plan.peak} bytes, lower bound {plan.lower_bound}; drawn in {picture}")


def export_netron(program: Program, path: Path) -> None:
    """Writes a program as an ONNX model for viewers.  Errors: UnsupportedError if no installed frontend can."""
    from ..parsing import frontend_of

    frontend_of("onnx").export(program, path)
