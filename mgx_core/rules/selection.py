"""Selection of rules and fusions by the compile options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..errors import ParameterError, suggestion
from ..options import CompileOptions
from .engine import EXACT, RANGE, ROUNDING, Rule, Rules

__all__ = ["FUSIONS", "OPTIONAL", "PASSES", "RuleSelection"]

# Names for `fusion_rules` in addition to those of single rules, with the fusions that each one controls.
FUSIONS: Final[dict[str, tuple[str, ...]]] = {
    "attention": ("fuse-attention",),
    "pointwise": ("fuse-elementwise",),
    "reduce": ("fuse-reductions",),
    "convolution": ("epilogue-convolution",),
    "dot": ("epilogue-dot",),
    "conv_bn": ("factor-into-convolution", "factor-into-sum"),
    "softmax": (
        "softmax-from-quotient",
        "softmax-from-plain-quotient",
        "logsoftmax-from-log",
        "logsoftmax-from-difference",
    ),
    "layernorm": ("layernorm-from-parts", "layernorm-from-batch-form", "bias-into-norm"),
    "rmsnorm": ("rmsnorm-from-parts",),
    "gelu": ("gelu-from-erf", "gelu-from-tanh"),
    "horizontal_dot": ("fuse-horizontal",),
    "horizontal_convolution": ("join-convolutions",),
    "horizontal_gather": ("join-gathers",),
}

PASSES: Final = frozenset(
    {"fuse-attention", "fuse-elementwise", "fuse-reductions", "fuse-epilogue", "epilogue-convolution", "epilogue-dot"}
    | {"fuse-horizontal", "join-convolutions", "join-gathers"}
)
# Disabled by default: they are faster on few machines only.
OPTIONAL: Final = frozenset(
    {"join-convolutions", "join-gathers", "pooling-from-lrn", "reshape-before-slices", "transpose-before-slices"}
)


class RuleSelection:
    """The rules and fusions that the compile options enable: by how they change results, by level, and by name.

    Names are those of rules and passes, with dashes or underscores, and the keys of `FUSIONS`.
    known: names of all rules, to validate `fusion_rules`.
    Errors: ParameterError for an unknown name.
    """

    def __init__(self, options: CompileOptions, known: Iterable[str]) -> None:
        self.level = options.aggressiveness
        close = ROUNDING if options.fast_math or options.aggressiveness > 1 else EXACT
        self.changes = RANGE if options.fast_math and options.aggressiveness > 1 else close
        self.stated: dict[str, bool] = {}
        names = {*known, *PASSES} if options.fusion_rules else PASSES
        for name, on in options.fusion_rules.items():
            chosen = FUSIONS.get(name.replace("-", "_")) or tuple(
                n for n in (name, name.replace("_", "-")) if n in names
            )
            if not names.issuperset(chosen) or not chosen:
                near = suggestion(name.replace("_", "-"), [*FUSIONS, *sorted(names)], "mgx-driver rules")
                raise ParameterError(f"fusion_rules: there is no rule {name!r}; {near}")
            self.stated.update(dict.fromkeys(chosen, on))

    def on(self, name: str) -> bool:
        """Returns True if a pass or a part of one is enabled."""
        return self.stated.get(name, name not in OPTIONAL)

    def rules(self, rules: Rules) -> Rules:
        """Returns the enabled rules: by how they change results, unless enabled or disabled by name."""
        if self.level == 0 and not any(self.stated.values()):
            return Rules(rules.name)
        return Rules(rules.name, (r for r in rules.rules if self.stated.get(r.name, self._usual(r))))

    def named(self, rules: Rules) -> Rules:
        """Returns the rules without those disabled by name."""
        return rules.without(name for name, on in self.stated.items() if not on)

    def _usual(self, rule: Rule) -> bool:
        return self.level > 0 and rule.changes <= self.changes and rule.name not in OPTIONAL
