"""``mgx-driver plugins``: installed plugins, what they provide, and failures."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .group import DriverCommand
from .report import Report, report_options

if TYPE_CHECKING:
    from ..plugins.manager import Plugins

__all__ = ["command"]


@click.command("plugins", cls=DriverCommand)
@click.option("--load", "-l", "load", is_flag=True, help="Load all objects that plugins offer, to find failures.")
@click.option("--verbose", "-V", is_flag=True, help="Print the stack traces of failures.")
@report_options
def command(as_json: bool, load: bool, verbose: bool) -> None:
    """Print the installed plugins: package, version, state, what they offer, and why one failed.

    The state of a plugin that is used although its package requires other versions than those installed is `misfit`.
    The variable MGX_PLUGINS chooses among them: names separated by commas, `-name` to leave one out.

    \b
    Examples:
      mgx-driver plugins
      mgx-driver plugins --load --verbose
      MGX_PLUGINS=-gpu mgx-driver plugins
    """
    from ..plugins.manager import manager
    from ..plugins.requirements import unmet

    plugins = manager()
    report = Report(as_json)
    if load:
        load_everything(plugins)
    lacks = {r.distribution: unmet(r.distribution) for r in plugins.records}
    entries: list[dict[str, Any]] = [
        {
            "name": r.name, "distribution": r.distribution, "version": r.version, "module": r.module,
            "state": "misfit" if r.state == "ok" and lacks[r.distribution] else r.state,
            "offers": r.offers, "error": r.error, "unmet": lacks[r.distribution],
            "traceback": "".join(traceback.format_exception(r.exception)) if r.exception is not None else "",
        }
        for r in plugins.records
    ]  # fmt: skip
    report.document(entries)
    if not entries:
        report.say("no plugins are installed; pip install mgx-ref mgx-onnx")
        return
    rows = []
    for e in entries:
        offers = "; ".join(f"{hook} {', '.join(names)}".rstrip() for hook, names in e["offers"].items())
        why = "; ".join(filter(None, (e["error"], *e["unmet"])))
        rows.append((e["name"], e["distribution"], e["version"], e["state"], offers, why))
    report.table(["plugin", "package", "version", "state", "offers", "why"], rows)
    if verbose:
        for e in entries:
            if e["traceback"]:
                report.say(f"\n{e['name']}:\n{e['traceback'].rstrip()}")


def load_everything(plugins: Plugins) -> None:
    """Loads everything that plugins provide, so that every failure is recorded."""
    from ..compile.pipeline import STAGES
    from ..errors import MgxError
    from ..frontend import checked_frontend

    def quietly(ask: Callable[..., Any], *arguments: Any) -> Any:
        with contextlib.suppress(MgxError):  # recorded for the plugin
            return ask(*arguments)

    targets, kinds = plugins.named("targets"), {}
    for name in targets:
        quietly(plugins.target, name)
    for name in plugins.named("frontends"):
        frontend = quietly(plugins.make, "frontends", name, checked_frontend)
        kinds[name] = None if frontend is None else frontend.converter_type
        if frontend is not None:
            try:
                frontend.operators()  # distinguishes converters for one operator
            except (Exception, SystemExit) as error:
                (record,) = [r for r in plugins.records if name in r.offers.get("frontends", ())]
                record.fail("frontends", f"operators() of frontend {name!r}: {type(error).__name__}: {error}", error)
    for name in plugins.named("commands"):
        quietly(plugins.load, "commands", name, click.Command)
    list(plugins.opset())  # records ops that could not be loaded
    for target in ("", *targets):
        plugins.kernels(target)
        plugins.rules(target)
        for stage in STAGES:
            plugins.passes(target, stage)
    for name, kind in kinds.items():
        plugins.converters(name, kind)
