"""``mgx-driver plugins``: what is installed, what it offers, and what is broken."""

from __future__ import annotations

import traceback
from typing import Any

import click

from .group import DriverCommand
from .report import Report, report_options

__all__ = ["command"]


@click.command("plugins", cls=DriverCommand)
@click.option("--load", "-l", "load", is_flag=True, help="Load everything that is offered, to see what fails.")
@click.option("--verbose", "-V", is_flag=True, help="Print the whole exception of what failed.")
@report_options
def command(as_json: bool, load: bool, verbose: bool) -> None:
    """Print the installed plugins: package, version, state, what they offer, and why one failed.

    The variable MGX_PLUGINS chooses among them: names separated by commas, `-name` to leave one out.

    \b
    Examples:
      mgx-driver plugins
      mgx-driver plugins --load --verbose
      MGX_PLUGINS=-gpu mgx-driver plugins
    """
    from ..errors import PluginError
    from ..plugins.manager import manager

    plugins = manager()
    report = Report(as_json)
    broken: list[dict[str, str]] = []
    if load:
        for hook in ("targets", "frontends", "operations", "commands"):
            for plugin, lazy in plugins.offered(hook):
                try:
                    lazy.load()
                except PluginError as error:
                    broken.append({"plugin": plugin, "hook": hook, "name": lazy.name, "error": str(error)})
    entries: list[dict[str, Any]] = []
    for r in plugins.records:
        errors = [r.error] if r.error else []
        errors += [b["error"] for b in broken if b["plugin"] == r.name]
        state = "failed" if errors and r.state == "ok" else r.state
        entries.append(
            {
                "name": r.name, "distribution": r.distribution, "version": r.version, "module": r.module, "state": state,
                "offers": r.offers, "error": "; ".join(errors),
                "traceback": "".join(traceback.format_exception(r.exception)) if r.exception is not None else "",
            }
        )  # fmt: skip
    report.document(entries)
    if not entries:
        report.say("no plugins are installed; pip install mgx-ref mgx-onnx")
        return
    rows = [(e["name"], e["distribution"], e["version"], e["state"], _offers(e["offers"]), e["error"]) for e in entries]
    report.table(["plugin", "package", "version", "state", "offers", "why"], rows)
    if verbose:
        for e in entries:
            if e["traceback"]:
                report.say(f"\n{e['name']}:\n{e['traceback'].rstrip()}")


def _offers(offers: dict[str, list[str]]) -> str:
    return "; ".join(f"{hook} {', '.join(names)}".rstrip() for hook, names in offers.items())
