"""Report of a compilation as one self-contained HTML page."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..compile.pipeline import size
from ..errors import counted
from ..ir.graph import Graph
from ..ir.module import Module, nested
from ..ops.convolution import Convolution, ConvolutionBackwards
from ..run.executable import Executable
from ..run.instance import Instance
from ..sources import file_path, unwritable
from ..targets.memory import plan_memory
from .charts import Bar, bars_svg, passes_svg
from .formatting import escaped, size_text, time_text, title
from .launches import LaunchRow, launch_rows
from .layers import FEW, drawn, layers_svg
from .memory_diagram import MEMORY_STYLE, memory_svg, ratio_text
from .style import PAGE, SCRIPT, VARIABLES
from .tables import instruction_table, launch_table, option_table, plugin_table, rule_table

__all__ = ["report_html"]

KINDS = 14  # most kinds of launches with their own bar


class Reported(Protocol):
    """A program: its modules and its executable."""

    @property
    def graph(self) -> Graph: ...
    @property
    def executable(self) -> Executable | None: ...


def report_html(
    program: Reported, path: str | os.PathLike[str] | None = None, name: str = "", instance: Instance | None = None
) -> str:
    """Returns the HTML report of a program, compiled or not; also writes it to `path`, if given.

    name: title of the model; instance: the set of input shapes to show (default: the latest).
    Errors: StoreError if the file cannot be written.
    """
    text = _Page(program, name or program.graph.main.name, instance).text()
    if path is not None:
        try:
            Path(file_path(path, "report")).write_text(text, encoding="utf-8")
        except OSError as error:
            raise unwritable(path, error) from error
    return text


class _Page:
    def __init__(self, program: Reported, name: str, instance: Instance | None) -> None:
        executable = program.executable
        made = executable.instances() if executable is not None and instance is None else []
        self.name = name
        self.executable = executable
        self.instance = instance if instance is not None else made[-1] if made else None
        self.before = program.graph.main
        self.after = None if executable is None else executable.module
        self.records = [] if executable is None else [*executable.records]
        if self.instance is not None:
            self.records += self.instance.records
        self.shown: Module = self.instance.module if self.instance is not None else self.after or self.before
        self.plan = self.instance.plan if self.instance is not None else plan_memory(self.shown)
        self.launches: list[LaunchRow] = []
        if self.instance is not None and executable is not None:
            self.launches = launch_rows(self.shown, self.instance.placements, executable.target.name)

    def text(self) -> str:
        parts = [
            ("stages", "Stages", self.stages()),
            ("launches", "Launches", self.launched()),
            ("memory", "Memory", self.memory()),
            ("graph", "Graph", self.graphs()),
            ("settings", "Settings", self.settings()),
        ]
        parts = [p for p in parts if p[2]]
        links = "".join(f'<a href="#{id}">{heading}</a>' for id, heading, _ in parts)
        body = "".join(f'<section id="{id}"><h2>{heading}</h2>{content}</section>' for id, heading, content in parts)
        target = "not compiled" if self.executable is None else f"compiled for {self.executable.target.name}"
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{escaped(self.name)} \u2013 mgx report</title>"
            f"<style>{VARIABLES}{PAGE}{MEMORY_STYLE}</style></head><body><main>"
            f"<header><h1>{escaped(self.name)}</h1><p>{escaped(target)}</p>"
            '<button id="theme" type="button">Light / dark</button></header>'
            f'<div class="facts">{self.facts()}</div><nav>{links}</nav>{body}</main><script>{SCRIPT}</script></body></html>\n'
        )

    def facts(self) -> str:
        before = _operations(self.before)
        facts = [("operations in the model", str(before), f"{size(self.before)} instructions with constants")]
        if self.after is not None:
            after = _operations(self.after, inside=False)
            facts.append(
                ("operations after fusion", str(after), f"{after / before:.0%} of the model's" if before else "")
            )
        if self.instance is not None:
            host = sum(1 for row in self.launches if row.hosted)
            views = sum(1 for row in self.launches if row.view)
            more = f"{host} on the host" if host else "none on the host"
            facts.append(
                (
                    "launches",
                    str(len(self.launches) - views),
                    f"{more}; {counted(views, 'view')}" if views else more,
                )
            )
        if self.records:
            slowest = max(self.records, key=lambda r: r.seconds)
            seconds = sum(r.seconds for r in self.records)
            facts.append(("compile time", time_text(seconds), f"most in {slowest.name}: {time_text(slowest.seconds)}"))
        facts.append(
            ("memory for values", size_text(self.plan.peak), f"{ratio_text(self.plan)} \u00d7 the lower bound")
        )
        if self.executable is not None and self.executable.target.channels_last and _convolves(self.before):
            asked = "as use_nhwc requires" if self.executable.options.use_nhwc else "always on this target"
            facts.append(("images of convolutions", "channels last", asked))
        literals = {id(i.literal): i for m in nested(self.shown) for i in m if i.literal is not None}
        weights = sum(getattr(i.literal.value, "nbytes", 0) for i in literals.values() if i.literal is not None)
        facts.append(("constants", size_text(weights), counted(len(literals), "tensor")))
        return "".join(
            f'<div class="fact"><span>{escaped(what)}</span><b>{escaped(value)}</b><i>{escaped(more)}</i></div>'
            for what, value, more in facts
        )

    def stages(self) -> str:
        if not self.records:
            return ""
        note = "Time of each pass, and instructions before and after it. Gray: no changes; orange: bar truncated."
        rules = rule_table(self.records)
        fired = sum(c.fired for r in self.records for c in r.rules)
        kinds = sum(1 for r in self.records for c in r.rules if c.fired)
        heading = f'<h3>Rules</h3><p class="note">{kinds} rules fired, {fired} times in all.</p>' if rules else ""
        return f'<p class="note">{note}</p>{passes_svg(self.records)}{heading}{rules}'

    def launched(self) -> str:
        if self.executable is None:
            return ""
        if self.instance is None:
            return '<p class="note">Input shapes are symbolic and the program has not run yet, so no kernels are selected.</p>'
        target = self.executable.target.name
        working = [row for row in self.launches if not row.view]
        host = sum(1 for row in working if row.hosted)
        views = len(self.launches) - len(working)
        where = (
            f"{len(working) - host} launches on {escaped(target)}, {host} on the host because the target declined them."
            if host
            else f"All {len(working)} launches on {escaped(target)}."
        )
        also = f" Another {views} are views, which run nothing." if views else ""
        return (
            f'<p class="note">{where}{also}</p>{_by_operation(working)}<h3>Kernels and source nodes</h3>'
            + launch_table(self.launches)
        )

    def memory(self) -> str:
        plan = self.plan
        if not plan.buffers:
            return '<p class="note">No value is in the arena.</p>' + self._dynamic()
        total = sum(b.bytes for b in plan.buffers)
        note = (
            f"Each rectangle is a buffer: its live range (horizontal) and its offset in the arena (vertical). The arena has "
            f"{size_text(plan.peak)} ({plan.peak} bytes); the lower bound of any plan is "
            f"{size_text(plan.lower_bound)}; without reuse, buffers would need {size_text(total)}."
        )
        stage = "" if self.instance is not None else " Planned before kernels are selected."
        return f'<p class="note">{note}{stage}</p>{memory_svg(plan, self.shown, standalone=False)}{self._dynamic()}'

    def _dynamic(self) -> str:
        count = len(self.plan.dynamic)
        return (
            f'<p class="note">{count} values have data-dependent extents and are allocated at run time.</p>'
            if count
            else ""
        )

    def graphs(self) -> str:
        if self.after is None:
            return _graph(self.before, "before", True)
        groups = [i for i in self.after if i.modules]
        tags = Counter(title(i) for i in groups)
        fused = ", ".join(f"{n} {escaped(t)}" for t, n in tags.most_common(8))
        note = f'<p class="note">{len(groups)} groups: {fused}.</p>' if groups else ""
        return (
            f"<h3>After fusion</h3>{note}{_graph(self.after, 'after', True)}"
            f"<details><summary>Before: the parsed model, {_operations(self.before)} operations</summary>"
            f"{_graph(self.before, 'before', False)}</details>"
        )

    def settings(self) -> str:
        options = option_table(None if self.executable is None else self.executable.options)
        heading = "Options" if self.executable is not None else "Options (defaults)"
        return (
            f'<div class="two"><div><h3>{heading}</h3>{options}</div><div><h3>Plugins</h3>{plugin_table()}</div></div>'
        )


def _operations(module: Module, inside: bool = True) -> int:
    modules = nested(module) if inside else [module]
    return sum(1 for m in modules for i in m if not (i.is_param or i.is_literal or i.is_return or i.is_absent))


def _convolves(module: Module) -> bool:
    return any(isinstance(i.op, (Convolution, ConvolutionBackwards)) for m in nested(module) for i in m)


def _by_operation(launches: Sequence[LaunchRow]) -> str:
    counts = Counter(row.does or row.name for row in launches)
    kinds = {row.does or row.name: row.kind for row in launches}
    bars = [Bar(n, float(c), kinds[n], str(c), f"{n}: {c} launches") for n, c in counts.most_common(KINDS)]
    if len(counts) > KINDS:
        rest = sum(counts.values()) - sum(int(b.length) for b in bars)
        bars.append(Bar("others", float(rest), "quiet", str(rest), f"{len(counts) - KINDS} more kinds"))
    return bars_svg(bars, "launches by operation", name_width=330, text_width=70)


def _graph(module: Module, id: str, opened: bool) -> str:
    listing, anchors = instruction_table(module, id)
    if len(drawn(module)) > FEW:
        return listing
    drawing = f'<div class="graph">{layers_svg(module, anchors, id)}</div>'
    state = " open" if opened and len(drawn(module)) < 40 else ""
    return f"{drawing}<details{state}><summary>As a table</summary>{listing}</details>"
