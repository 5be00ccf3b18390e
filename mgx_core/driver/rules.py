"""``mgx-driver rules``: rewriting rules and passes by name, of the core and of plugins, and where a rule refused."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import ParameterError, suggestion
from .group import DriverCommand
from .report import Report, report_options

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord
    from ..options import CompileOptions
    from ..program import Program
    from ..rules.engine import Rules
    from ..rules.stats import Refusal

__all__ = ["command", "known_passes", "known_rules", "refusals", "rules_of_packages"]

CHANGES: Final = ("exact", "rounding", "range")


@click.command("rules", cls=DriverCommand)
@click.argument("name", required=False)
@click.option("--passes", is_flag=True, help="Print the passes (for --disable-pass and --apply-pass) instead.")
@report_options
def command(as_json: bool, name: str | None, passes: bool) -> None:
    """Print the rewrite rules and fusions (for --rule, fusion_rules and --why), including those of plugins.

    \b
    Examples:
      mgx-driver rules
      mgx-driver rules gelu-from-erf
      mgx-driver rules --passes
    """
    from ..rules.selection import FUSIONS, OPTIONAL, PASSES

    rows: list[tuple[str, str, str]] = []
    if passes:
        rows = [(n, "pass", (type(p).__doc__ or "").split("\n")[0]) for n, p in sorted(known_passes().items())]
    else:
        for rule in known_rules().rules:
            asked = ", asked for" if rule.name in OPTIONAL else ""
            rows.append((rule.name, CHANGES[rule.changes] + asked, rule.says))
        rows += [(n, "fusion" + (", asked for" if n in OPTIONAL else ""), "") for n in sorted(PASSES)]
        rows += [(n, "several", ", ".join(members)) for n, members in FUSIONS.items()]
    if name is not None:
        found = [row for row in rows if row[0] == name]
        if not found:
            what = "pass" if passes else "rule"
            raise ParameterError(
                f"there is no {what} {name!r}; {suggestion(name, [r[0] for r in rows], listing(passes))}"
            )
        rows = found
    report = Report(as_json)
    report.document([dict(zip(("name", "kind", "says"), row, strict=True)) for row in rows])
    report.table(["name", "changes" if not passes else "kind", "what it does"], rows)


def listing(passes: bool = False) -> str:
    """Returns the command that prints every rule or pass."""
    return "mgx-driver rules --passes" if passes else "mgx-driver rules"


def known_passes() -> dict[str, Any]:
    """Returns passes by name: those of the default pipeline, of plugins, and all with default fields."""
    from .. import passes
    from ..compile.pipeline import STAGES
    from ..compile.stages import stages
    from ..options import CompileOptions
    from ..passes.interface import CountingPass, Pass
    from ..plugins.manager import manager

    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(passes.__path__):
        for value in vars(importlib.import_module(f"{passes.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Pass) and value not in (Pass, CountingPass):
                try:
                    made: Any = value()
                    found[made.name] = made
                except TypeError:  # it requires arguments: a target's kernels, a set of rules
                    continue
    found |= {p.name: p for stage in stages(None, None, CompileOptions()) for p in stage.passes}
    for target in target_names():  # with all of their rules
        found |= {p.name: p for stage in STAGES for p in manager().passes(target, stage, CompileOptions())}
    return found


def known_rules() -> Rules:
    """Returns the core's rules, followed by those of plugins for any installed target."""
    from ..compile.extensions import plugged_passes
    from ..compile.pipeline import STAGES
    from ..compile.stages import RULES
    from ..options import CompileOptions
    from ..passes.rewrite import Rewrite
    from ..plugins.manager import manager
    from ..rules.engine import Rules

    core = {r.name for r in RULES.rules}
    found = {r.name: r for r in RULES.rules}
    for target in target_names():
        found |= {r.name: r for r in manager().rules(target, core).rules}
        every = [p for stage in STAGES for p in plugged_passes(RULES, target, stage, CompileOptions())]
        found |= {r.name: r for p in every if isinstance(p, Rewrite) for r in p.rules.rules}
    return Rules("known", found.values())


def rules_of_packages(records: Iterable[PassRecord]) -> dict[str, dict[str, int]]:
    """Returns, by package, how often each rule of a plugin fired in some passes, including 0."""
    fired: Counter[str] = Counter()
    for record in records:
        fired.update({count.rule: count.fired for count in record.rules})
    found: dict[str, dict[str, int]] = {}
    for rule in known_rules().rules:
        package = rule.function.__module__.partition(".")[0]
        if package != __package__.partition(".")[0]:
            found.setdefault(package, {})[rule.name] = fired[rule.name]
    return found


def target_names() -> list[str]:
    """Returns the names of the installed targets, preceded by an empty name for target-independent rules."""
    from ..plugins.manager import manager

    return ["", *(lazy.name for _, lazy in manager().offered("targets"))]


def refusals(program: Program, rule: str, options: CompileOptions | None = None) -> list[Refusal]:
    """Returns instructions at which a rewriting rule or fusion matched and did not fire in the usual passes, and why.

    A rule that is off by default is enabled, and a plugin's rule for a target runs after the usual passes.
    Errors: ParameterError for an unknown rule, with near names.
    """
    from ..compile.pipeline import Pipeline, Stage
    from ..compile.stages import stages
    from ..options import CompileOptions
    from ..passes.rewrite import Rewrite
    from ..rules.engine import Rules
    from ..rules.selection import PASSES

    usual = stages(None, None, options or CompileOptions())
    running = {r.name for stage in usual for p in stage.passes if isinstance(p, Rewrite) for r in p.rules.rules}
    if rule not in running and rule not in PASSES:
        brought = [r for r in known_rules().rules if r.name == rule]
        if not brought:
            known = sorted({*PASSES, *(r.name for r in known_rules().rules)})
            raise ParameterError(f"there is no rule {rule!r}; {suggestion(rule, known, listing())}")
        usual.append(Stage("asked for", (Rewrite(Rules(rule, brought)),)))
    Pipeline(usual).run(program.clone().get_main_module())
    tallies = [p.tally for stage in usual for p in stage.passes if p.tally is not None]
    return [found for tally in tallies for found in tally.refusals if found.rule == rule]
