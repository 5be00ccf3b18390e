"""The stages from normalize to fuse: which passes and rules run, in what order, and what holds afterwards."""

from __future__ import annotations

from typing import Any, Final

from ..ir.module import Module
from ..options import CompileOptions
from ..passes.fold_constants import FoldConstants
from ..passes.fuse_attention import FuseAttention
from ..passes.fuse_elementwise import FuseElementwise
from ..passes.fuse_epilogue import ANCHORS, FuseEpilogue
from ..passes.fuse_horizontal import FuseHorizontal
from ..passes.inline_branches import InlineBranches
from ..passes.join_siblings import JoinConvolutions, JoinGathers
from ..passes.merge_common import MergeCommon
from ..passes.normalize import Normalize, normalized
from ..passes.rewrite import Rewrite
from ..rules.activations import ACTIVATIONS
from ..rules.algebra import SIMPLIFY
from ..rules.arithmetic import ARITHMETIC
from ..rules.bounds import BOUNDS
from ..rules.converts import CONVERTS
from ..rules.convolutions import CONVOLUTIONS
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
from ..rules.selection import Choice
from ..rules.shapes import SHAPES
from ..rules.slices import SLICES
from ..rules.splits import SPLITS
from ..rules.views import VIEWS
from ..targets.target import Target
from .extensions import passes_of
from .pipeline import Pass, Pipeline, Stage

__all__ = ["RULES", "optimize_module", "stages"]


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

    Errors: ParameterError for a name in `fusion_rules` that no rule has.
    """
    choice = Choice(options, RULES)
    own = [
        Stage("normalize", (Normalize(),), normalized),
        Stage("simplify", tuple(simplifying(choice)) if options.optimize else ()),
        Stage("legalize"),
        Stage("fuse", tuple(fusing(choice)) if options.optimize else ()),
    ]
    if target is None:
        return own
    return [s.with_passes(passes_of(target, s.name, context, options)) for s in own]


def simplifying(choice: Choice) -> list[Pass]:
    """Constants folded, equal values merged, rules applied, products of one operand joined."""
    passes: list[Pass] = [FoldConstants(), InlineBranches(), MergeCommon(), Rewrite(choice.rules(RULES))]
    if choice.on("join-convolutions"):
        passes.append(JoinConvolutions())
    if choice.on("join-gathers"):
        passes.append(JoinGathers())
    if choice.on("fuse-horizontal"):
        passes.append(FuseHorizontal())
    return [*passes, FoldConstants()]


def fusing(choice: Choice) -> list[Pass]:
    """Attention, groups of work on elements and reductions, and what joins the products before them."""
    passes: list[Pass] = [FuseAttention()] if choice.on("fuse-attention") else []
    if choice.on("fuse-elementwise"):
        passes.append(FuseElementwise(reduce=choice.on("fuse-reductions")))
    anchors = choice.anchors(ANCHORS)
    return [*passes, FuseEpilogue(anchors)] if anchors and choice.on("fuse-epilogue") else passes


def optimize_module(
    module: Module, options: CompileOptions, target: Target | None = None, context: Any = None
) -> Pipeline:
    """Run the stages up to fuse on a module in place; returns the pipeline with its records."""
    pipeline = Pipeline(stages(target, context, options), options.validate, frozenset(options.disable_passes))
    pipeline.run(module)
    return pipeline
