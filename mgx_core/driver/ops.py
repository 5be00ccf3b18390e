"""``mgx-driver ops``: the operations, and one of them in full."""

from __future__ import annotations

from inspect import getdoc
from typing import TYPE_CHECKING, Any

import click

from .group import DriverCommand
from .report import Report, report_options

if TYPE_CHECKING:
    from ..ops.operation import Operation

__all__ = ["command", "describe"]


@click.command("ops", cls=DriverCommand)
@click.argument("name", required=False)
@click.option("--list", "-l", "list_", is_flag=True, help="Names only.")
@report_options
def command(as_json: bool, name: str | None, list_: bool) -> None:
    """Print the operations of programs; with a NAME its attributes, inputs and meaning.

    \b
    Examples:
      mgx-driver ops --list
      mgx-driver ops convolution
      mgx-driver ops softmax --json
    """
    from ..plugins.manager import manager
    from ..plugins.missing import absent

    known = manager().opset()
    if lacking := absent(manager().records, "operations"):
        click.echo(f"warning: operations may be missing{lacking}", err=True)
    report = Report(as_json)
    if name is not None:
        found = known.get(name)
        if found is None:
            known.make(name)  # raises, with the closest name
        assert found is not None
        _one(describe(found), report)
        return
    every = [describe(known.get(n)) for n in known.names()]
    report.document(every)
    if list_:
        for op in every:
            report.say(op["name"])
    else:
        rows = [
            (op["signature"], ", ".join(f"{a['name']}: {a['type']}" for a in op["attributes"]), op["says"])
            for op in every
        ]
        report.table(["operation", "attributes", "meaning"], rows)


def describe(op: type[Operation] | None) -> dict[str, Any]:
    """Returns an op for people and machines: name, signature, attributes with defaults, docstring, scalar expression."""
    from ..ops.attributes import MISSING, show
    from ..ops.elementwise import Pointwise
    from ..ops.scalar import text
    from ..ops.traits import TRAITS

    assert op is not None
    inputs = [("*" if i.variadic else "") + i.name + ("?" if i.optional else "") for i in op.inputs]
    doc = getdoc(op) or ""
    scalar = op.scalar if issubclass(op, Pointwise) else None
    return {
        "name": op.name,
        "signature": f"{op.name}({', '.join(inputs)})",
        "inputs": [{"name": i.name, "optional": i.optional, "variadic": i.variadic} for i in op.inputs],
        "modules": op.takes_modules,
        "attributes": [
            {"name": f.name, "type": f.annotation, "default": None if f.default is MISSING else show(f.check(f.default)),
             "required": f.default is MISSING}
            for f in op.fields
        ],
        "says": doc.split("\n")[0],
        "doc": doc,
        "traits": sorted(word for word in TRAITS if getattr(op, word) is True),
        "scalar": None if scalar is None else text(scalar),
        "from": op.__module__,
        "class": op.__name__,
    }  # fmt: skip


def _one(op: dict[str, Any], report: Report) -> None:
    report.document(op)
    report.say(op["signature"] + (" with modules" if op["modules"] else ""))
    report.say()
    report.say(op["doc"])
    report.say()
    if op["attributes"]:
        rows = [(a["name"], a["type"], "required" if a["required"] else a["default"]) for a in op["attributes"]]
        report.table(["attribute", "type", "default"], rows)
    else:
        report.say("no attributes")
    if op["traits"]:
        report.say(f"traits: {', '.join(op['traits'])}")
    if op["scalar"]:
        report.say()
        report.say(f"each element: {op['scalar']}")
    report.say(f"from {op['from']} import {op['class']}")
