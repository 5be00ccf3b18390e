"""Output formats of programs: text, JSON, binary, graphviz, Python, C++, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..errors import counted
from .output import stdout
from .report import Report, interface_document

if TYPE_CHECKING:
    from ..ir.module import Module
    from ..program import Program

__all__ = ["brief", "form_options", "graphviz", "write"]

F = TypeVar("F", bound=Callable[..., Any])

BY_EXTENSION: Final = {
    ".mxr": "binary",
    ".mgx": "binary",
    ".msgpack": "binary",
    ".json": "json",
    ".dot": "graphviz",
    ".gv": "graphviz",
    ".py": "python",
    ".cpp": "cpp",
    ".txt": "text",
    ".text": "text",
}


def form_options(function: F) -> F:
    """Adds the options for output format and file."""
    options = [
        click.option(
            "--text", is_flag=True, help="As text; literals are abbreviated unless written to a file (default)."
        ),
        click.option("--binary", is_flag=True, help="As a binary program file (default for .mxr)."),
        click.option("--graphviz", "-g", is_flag=True, help="As a graph in the DOT language."),
        click.option("--python", "--py", is_flag=True, help="As a Python script that builds the program."),
        click.option(
            "--package", metavar="NAME", default="mgx_core", help="The package that the Python script imports."
        ),
        click.option("--cpp", is_flag=True, help="As a C++ function that builds the program."),
        click.option("--strip-context", is_flag=True, help="Without compiled code."),
        click.option("--brief", is_flag=True, help="Counts, parameters and results only."),
        click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def chosen_form(given: Mapping[str, Any], as_json: bool) -> str:
    """``text``, ``json``, ``binary``, ``graphviz``, ``python`` or ``cpp``, by the options, else by the file's extension."""
    forms = [f for f in ("text", "binary", "graphviz", "python", "cpp") if given[f]] + (["json"] if as_json else [])
    if len(forms) > 1:
        raise click.UsageError(f"only one output format may be selected, got {' and '.join('--' + f for f in forms)}")
    if forms:
        return forms[0]
    output = given["output"]
    return "text" if output is None else BY_EXTENSION.get(output.suffix.lower(), "binary")


def write(program: Program, given: Mapping[str, Any], as_json: bool) -> None:
    """Prints a program, or writes it to the file of ``--output``."""
    form = chosen_form(given, as_json)
    if given["strip_context"]:
        program = program.clone()
    output: Path | None = given["output"]
    if form in ("binary", "json"):
        from ..store import save, save_buffer

        stored = "msgpack" if form == "binary" else "json"
        if output is not None:
            save(program, output, stored)
            return
        data = save_buffer(program, stored)
        if form == "json":
            click.echo(data.decode(), file=stdout())
        else:
            stream = stdout().buffer
            if stream.isatty():
                raise click.UsageError("--binary does not print to a terminal: add -o FILE")
            stream.write(data)
        return
    text = program.to_py(given["package"]) if form == "python" else _text(program, form, output is not None)
    if output is None:
        click.echo(text.rstrip("\n"), file=stdout())
    else:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def _text(program: Program, form: str, full: bool) -> str:
    if form == "cpp":
        from ..ir.text.cpp import cpp

        return cpp(program.get_main_module())
    return graphviz(program) if form == "graphviz" else program.text(full=full)


def brief(program: Program, report: Report) -> None:
    """Reports a program's inputs, outputs and number of instructions per op."""
    from ..ir.module import nested

    modules = list(nested(program.shown))
    counts = Counter(i.name for m in modules for i in m if not (i.is_param or i.is_return or i.is_absent))
    report.document(
        {
            **interface_document(program),
            "modules": len(modules),
            "instructions": sum(counts.values()),
            "operations": dict(counts.most_common()),
        }
    )
    for name, shape in program.get_parameter_shapes().items():
        report.say(f"input  {name}: {shape}")
    for name, shape in zip(program.get_output_names(), program.get_output_shapes(), strict=True):
        report.say(f"output {name}: {shape}")
    report.say(f"{counted(sum(counts.values()), 'instruction')} in {counted(len(modules), 'module')}")
    report.table(["count", "operation"], [(n, name) for name, n in counts.most_common()], right=[0])


def graphviz(program: Program) -> str:
    """Returns the program as a graph in the DOT language; nested modules as clusters."""
    lines = ["digraph program {", "  rankdir=TB;", '  node [shape=box, fontname="monospace", fontsize=10];']
    ids: dict[Any, str] = {}

    def walk(module: Module, indent: str) -> None:
        for ins in module:
            if ins.is_absent:
                continue
            ids[ins] = node = f"n{len(ids)}"
            label = ins.op.label if ins.is_param else "literal" if ins.is_literal else ins.name  # type: ignore[attr-defined]
            more = "" if ins.is_return else f"\\n{ins.result}"
            style = ', style=filled, fillcolor="#d0e0f0"' if ins.is_param else ", color=gray" if ins.is_literal else ""
            lines.append(f'{indent}{node} [label="{_quoted(str(label))}{more}"{style}];')
            lines.extend(f"{indent}{ids[i]} -> {node};" for i in ins.inputs if i in ids)
            for inner in ins.modules:
                lines.append(f'{indent}subgraph "cluster_{_quoted(inner.name)}" {{ label="{_quoted(inner.name)}";')
                walk(inner, indent + "  ")
                lines.append(f"{indent}}}")
                lines.extend(f"{indent}{ids[o]} -> {node} [style=dashed];" for o in inner.outputs if o in ids)

    walk(program.shown, "  ")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
