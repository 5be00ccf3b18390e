"""The stages from normalize to fuse: which passes and rules run, in what order, and what holds afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ..errors import ParameterError, suggestion
from ..ir.module import Module
from ..options import CompileOptions
from ..passes.fold_constants import FoldConstants
from ..passes.fuse_attention import FuseAttention
from ..passes.fuse_elementwise import FuseElementwise
from ..passes.fuse_epilogue import PRODUCTS, FuseEpilogue
from ..passes.fuse_horizontal import FuseHorizontal
from ..passes.inline_branches import InlineBranches
from ..passes.interface import Pass
from ..passes.join_siblings import JoinConvolutions, JoinGathers
from ..passes.merge_common import MergeCommon
from ..passes.normalize import Normalize, normalized
from ..passes.rewrite import Rewrite
from ..passes.settle_extents import SettleExtents
from ..rules.activations import ACTIVATIONS
from ..rules.algebra import SIMPLIFY
from ..rules.arithmetic import ARITHMETIC
from ..rules.bounds import BOUNDS
from ..rules.converts import CONVERTS
from ..rules.convolutions import CONVOLUTIONS
from ..rules.engine import Rules
from ..rules.indices import INDICES
from ..rules.low_precision import LOW_PRECISION
from ..rules.norms import NORMS
from ..rules.pads import PADS
from ..rules.pooling import POOLING
from ..rules.powers import POWERS
from ..rules.precision import PRECISION
from ..rules.quantization import QUANTIZATION
from ..rules.reshapes import RESHAPES
from ..rules.rotary import ROTARY
from ..rules.selection import OPTIONAL, PASSES, RuleSelection
from ..rules.shapes import SHAPES
from ..rules.slices import SLICES
from ..rules.splits import SPLITS
from ..rules.views import VIEWS
from ..targets.target import Target
from .extensions import Extensions
from .lower import Lower
from .order_for_memory import OrderForMemory
from .pipeline import STAGES, Pipeline, Stage

__all__ = ["RULES", "optimize_module", "pass_names", "stages"]


RULES: Final = (
    SHAPES
    + CONVERTS
    + ACTIVATIONS
    + NORMS
    + ROTARY
    + ARITHMETIC
    + POWERS
    + BOUNDS
    + INDICES
    + SIMPLIFY
    + CONVOLUTIONS
    + SLICES
    + SPLITS
    + RESHAPES
    + VIEWS
    + PADS
    + POOLING
    + QUANTIZATION
    + LOW_PRECISION
    + PRECISION
).named("simplify")


def stages(target: Target | None, context: Any, options: CompileOptions) -> list[Stage]:
    """The stages from normalize to fuse, with the passes that the target and plugins add.

    target: None for the passes that run whatever the target is.
    Errors: ParameterError for a name in `fusion_rules` or `disable_passes` that no rule or pass has.
    """
    extensions = Extensions(RULES, target, context, options)
    selection = extensions.selection
    own = [
        Stage("normalize", (Normalize(),), normalized),
        Stage("simplify", tuple(simplifying(selection, extensions.simplifying)) if options.optimize else ()),
        Stage("legalize"),
        Stage("fuse", tuple(fusing(selection)) if options.optimize else ()),
    ]
    made = [s.with_passes(extensions.passes(s.name)) for s in own]
    running = {p.name for s in made for p in s.passes}
    others = [name for name in options.disable_passes if name not in running]
    if others:
        _check_names(others, pass_names(target, context, options))
    return made


def pass_names(target: Target | None, context: Any, options: CompileOptions) -> list[str]:
    """Names of all passes that may run with these options or with the usual ones, sorted."""
    found = {SettleExtents.name, Lower.name, OrderForMemory.name}
    everything = dict.fromkeys(OPTIONAL & PASSES, True)
    for asked in (replace(options, fusion_rules={}, disable_passes=()), CompileOptions(fusion_rules=everything)):
        found |= {p.name for stage in stages(target, context, asked) for p in stage.passes}
        extensions = Extensions(RULES, target, context, asked)
        found |= {p.name for stage in STAGES for p in extensions.passes(stage)}
    return sorted(found)


def _check_names(given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            near = suggestion(name, known, "mgx-driver rules --passes")
            raise ParameterError(f"disable_passes: there is no pass {name!r}; {near}")


def simplifying(selection: RuleSelection, rules: Rules) -> list[Pass]:
    """Constants folded, equal values merged, rules applied, products of one operand joined."""
    passes: list[Pass] = [FoldConstants(), InlineBranches(), MergeCommon(), Rewrite(selection.rules(rules))]
    if selection.on("join-convolutions"):
        passes.append(JoinConvolutions())
    if selection.on("join-gathers"):
        passes.append(JoinGathers())
    if selection.on("fuse-horizontal"):
        passes.append(FuseHorizontal())
    return [*passes, FoldConstants()]


def fusing(selection: RuleSelection) -> list[Pass]:
    """Attention, groups of work on elements and reductions, and what joins the products before them."""
    passes: list[Pass] = [FuseAttention()] if selection.on("fuse-attention") else []
    if selection.on("fuse-elementwise"):
        passes.append(FuseElementwise(reduce=selection.on("fuse-reductions")))
    products = frozenset(kind for kind, name in PRODUCTS.items() if selection.on(name))
    return [*passes, FuseEpilogue(products)] if products and selection.on("fuse-epilogue") else passes


def optimize_module(
    module: Module, options: CompileOptions, target: Target | None = None, context: Any = None
) -> Pipeline:
    """Run the stages up to fuse on a module in place; returns the pipeline with its records."""
    pipeline = Pipeline(stages(target, context, options), options.validate, frozenset(options.disable_passes))
    pipeline.run(module)
    return pipeline
