"""Merges a target's own passes, rules and kernels with those that plugins add for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import PluginError
from ..options import CompileOptions
from ..passes.interface import Pass
from ..passes.rewrite import Rewrite
from ..plugins.manager import manager
from ..rules.engine import Rules
from ..rules.selection import RuleSelection
from ..targets.calls import called
from ..targets.kernel_table import Kernels
from ..targets.target import Target
from .pipeline import STAGES

__all__ = ["Extensions", "kernels_of", "passes_of", "plugged_kernels", "plugged_passes"]


class Extensions:
    """The passes and rules that a target and plugins add to the core's; the same options disable them.

    target: None for the additions that apply to every target.
    rules: all rules, including the core's: those that options and commands can name.
    """

    def __init__(self, core: Rules, target: Target | None, context: Any, options: CompileOptions) -> None:
        name = "" if target is None else target.name
        self.own = {s: _own_passes(target, s, context, options) for s in STAGES}
        self.plugged = {s: plugged_passes(core, name, s, options) for s in STAGES}
        self.simplifying = core + manager().rules(name, {r.name for r in core.rules})
        every = [p for part in (self.own, self.plugged) for passes in part.values() for p in passes]
        carried = [r for p in every if isinstance(p, Rewrite) for r in p.rules.rules]
        self.rules = self.simplifying + Rules("carried", carried)
        self.selection = RuleSelection(options, (r.name for r in self.rules.rules))

    def passes(self, stage: str) -> list[Pass]:
        """Returns the passes to run after the stage's own, without disabled rules."""
        return _passes(self.own[stage], self.plugged[stage], self.selection)


def plugged_passes(core: Rules, target: str, stage: str, options: CompileOptions) -> list[Pass]:
    """Returns the passes that plugins add to a stage; a rule whose name the core uses is prefixed with its table's name."""
    found = manager().passes(target, stage, options)
    taken = {r.name for r in core.rules} if found else set()
    return [replace(p, rules=p.rules.apart_from(taken)) if isinstance(p, Rewrite) else p for p in found]


def passes_of(core: Rules, target: Target, stage: str, context: Any, options: CompileOptions) -> list[Pass]:
    """Returns the passes that a target adds to a stage, followed by those of plugins."""
    own, plugged = _own_passes(target, stage, context, options), plugged_passes(core, target.name, stage, options)
    names = [r.name for p in (*own, *plugged) if isinstance(p, Rewrite) for r in p.rules.rules]
    if not names:
        return [*own, *plugged]
    mentioned = {n: on for n, on in options.fusion_rules.items() if {n, n.replace("_", "-")} & set(names)}
    return _passes(own, plugged, RuleSelection(replace(options, fusion_rules=mentioned), names))


def _own_passes(target: Target | None, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
    if target is None:
        return ()
    given: object = called(target, "passes", lambda: target.passes(stage, context, options))
    if not isinstance(given, (tuple, list)) or not all(isinstance(p, Pass) for p in given):
        raise PluginError(f"passes({stage!r}, ...) of {target!r} must return passes (mgx_core.Pass), got {given!r}")
    return tuple(given)


def _passes(own: Sequence[Pass], plugged: Sequence[Pass], selection: RuleSelection) -> list[Pass]:
    """Returns copies of passes without disabled rules, so that their counts are those of this compilation.

    A target selects its own rules by how they change results; only names disable more of them.
    """
    chosen = [(p, selection.named) for p in own] + [(p, selection.rules) for p in plugged]
    return [replace(p, rules=keep(p.rules)) if isinstance(p, Rewrite) else p for p, keep in chosen]


def kernels_of(target: Target, context: Any, options: CompileOptions | None = None) -> Kernels:
    """Returns a target's plans, preceded by those that plugins add for it.

    options: for plans that depend on them; None: the defaults.
    """
    own: object = called(target, "kernels", lambda: target.kernels(context))
    if not isinstance(own, Kernels):
        raise PluginError(f"kernels(context) of {target!r} must return an instance of mgx_core.Kernels, got {own!r}")
    plugged = plugged_kernels(target)
    return (own if plugged.empty else plugged + own).for_options(options or CompileOptions())


def plugged_kernels(target: Target) -> Kernels:
    """Returns the plans that plugins add for a target."""
    return manager().kernels(target.name)
