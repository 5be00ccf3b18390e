"""HTML tables of the report: instructions, rules, launches, options, plugins."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..compile.pipeline import PassRecord
from ..errors import counted
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..options import CompileOptions
from ..plugins.manager import manager
from ..targets.kernel import op_of
from .formatting import attributes_text, escaped, kind, shortened, title, value_names
from .launches import LaunchRow

__all__ = ["ROWS", "instruction_table", "launch_table", "option_table", "plugin_table", "rule_table"]

NONE: Final = "\u2013"
ROWS: Final = 4000  # most rows of a table; browsers render larger ones slowly


def table(columns: Sequence[str], rows: Sequence[str], id: str = "", numbers: Sequence[int] = ()) -> str:
    head = "".join(f"<th{' class=n' if n in numbers else ''}>{escaped(c)}</th>" for n, c in enumerate(columns))
    name = f' id="{id}"' if id else ""
    return f"<table{name}><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def searchable(columns: Sequence[str], rows: Sequence[str], id: str, what: str, numbers: Sequence[int] = (0,)) -> str:
    """Returns a table with a search box that filters its rows."""
    shown = rows[:ROWS]
    note = f'<p class="note">The first {ROWS} of {len(rows)} {what}.</p>' if len(rows) > ROWS else ""
    box = (
        f'<input type="search" data-filter="{id}" placeholder="Search {len(shown)} {what}" aria-label="Search {what}">'
    )
    return f'{box}{note}<div class="wrap">{table(columns, shown, id, numbers)}</div>'


def sources_text(sources: Sequence[str]) -> str:
    return escaped(", ".join(sources)) if sources else '<span class="soft">\u2013</span>'


def instruction_table(module: Module, id: str) -> tuple[str, dict[Instruction, str]]:
    """Returns the table of a module's instructions, with collapsed nested modules, and the element id of each row."""
    listed = [i for i in module if not i.is_absent]
    names = value_names(listed)
    anchors = {ins: f"{id}-{n}" for n, ins in enumerate(listed[:ROWS])}
    rows = [_instruction(n, ins, names, anchors.get(ins, "")) for n, ins in enumerate(listed)]
    columns = ["#", "operation", "reads", "result", "from"]
    return searchable(columns, rows, id, "instructions"), anchors


def _instruction(number: int, ins: Instruction, names: Mapping[Instruction, str], anchor: str) -> str:
    op = op_of(ins)
    if ins.is_param:
        words = "parameter"
    elif ins.is_literal:
        words = "constant"
    elif ins.is_return:
        words = "results"
    else:
        words = attributes_text(op)
    name = title(ins) if not (ins.is_literal or ins.is_return) else ""
    more = "".join(_folded(m) for m in ins.modules)
    reads = ", ".join("\u2013" if i.is_absent else names.get(i, "(outer)") for i in ins.inputs)
    return (
        f'<tr id="{anchor}"><td class="n soft">{number}</td>'
        f'<td><span class="dot {kind(ins)}"></span><b>{escaped(name)}</b> '
        f'<code class="soft">{escaped(shortened(words, 300))}</code>{more}</td>'
        f'<td class="m">{escaped(shortened(reads, 300))}</td><td class="m">{escaped(shortened(str(ins.result), 200))}</td>'
        f"<td>{sources_text(ins.sources)}</td></tr>"
    )


def _folded(module: Module) -> str:
    """Returns the text of a nested module as a collapsed element."""
    members = sum(1 for i in module if not (i.is_param or i.is_literal or i.is_return or i.is_absent))
    lines = escaped(shortened(module.text().rstrip("\n"), 20000))
    return f"<details><summary>{escaped(module.name)}: {members} operations</summary><pre>{lines}</pre></details>"


def rule_table(records: Sequence[PassRecord]) -> str:
    """Returns the table of rules that fired or refused, with their pass, counts and most frequent reason."""
    rows = [
        f'<tr><td class="n">{c.fired or NONE}</td><td><b>{escaped(c.rule)}</b></td><td class="soft">{escaped(r.name)}</td>'
        f'<td class="n">{c.refused or NONE}</td><td>{escaped(c.why)}</td></tr>'
        for r in records
        for c in r.rules
    ]
    columns = ["fired", "rule", "pass", "refused", "most frequent reason"]
    return searchable(columns, rows, "rules-table", "rules", (0, 3)) if rows else ""


def launch_table(launches: Sequence[LaunchRow]) -> str:
    """Returns the table of launches with kernel, placement, refusals and source nodes."""
    rows = [_launch(n, row) for n, row in enumerate(launches)]
    columns = ["#", "operation", "kernel, plan", "place", "result", "from", "why"]
    return searchable(columns, rows, "launches-table", "launches")


def _launch(number: int, row: LaunchRow) -> str:
    does = f'<div class="soft m">{escaped(shortened(row.does, 160))}</div>' if row.does else ""
    return (
        f'<tr><td class="n soft">{number}</td>'
        f'<td><span class="dot {row.kind}"></span><b>{escaped(row.name)}</b>{does}</td>'
        f'<td class="m">{escaped(shortened(row.kernel, 200))}<div class="soft">{escaped(row.plan)}</div></td>'
        f'<td><span class="badge {"host" if row.hosted else "target"}">{escaped(row.place)}</span></td>'
        f'<td class="m">{escaped(shortened(row.result, 120))}</td><td>{sources_text(row.sources)}</td><td>{_why(row)}</td></tr>'
    )


def _why(row: LaunchRow) -> str:
    if row.view and not row.hosted:
        return '<span class="soft">a view: nothing to run</span>'
    if not row.why:
        return '<span class="soft">first choice</span>'
    reasons = "".join(f"<div>{escaped(shortened(w, 1500))}</div>" for w in row.why)
    if len(row.why) == 1 and len(row.why[0]) < 200:
        return f'<div class="soft">{reasons}</div>'
    return f'<details><summary>{counted(len(row.why), "refusal")}</summary><div class="soft">{reasons}</div></details>'


def option_table(options: CompileOptions | None) -> str:
    chosen = CompileOptions() if options is None else options
    rows = []
    for field in dataclasses.fields(chosen):
        value: Any = getattr(chosen, field.name)
        changed = value != getattr(CompileOptions(), field.name)
        shown = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
        text = f"<b>{escaped(shown)}</b>" if changed else f'<span class="soft">{escaped(shown)}</span>'
        rows.append(f'<tr><td class="m">{escaped(field.name)}</td><td class="m">{text}</td></tr>')
    return table(["option", "value"], rows)


def plugin_table() -> str:
    from ..version import __version__

    rows = [
        f'<tr><td>mgx-core</td><td class="m">{escaped(__version__)}</td><td><span class="badge ok">ok</span></td></tr>'
    ]
    for r in manager().records:
        badge = "ok" if r.state == "ok" else "failed"
        rows.append(
            f'<tr><td>{escaped(r.distribution if r.distribution != "-" else r.name)}</td><td class="m">{escaped(r.version)}</td>'
            f'<td><span class="badge {badge}">{escaped(r.state)}</span> {escaped(r.error)}</td></tr>'
        )
    return table(["package", "version", "state"], rows)
