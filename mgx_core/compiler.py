"""The one flow: from a program through the stages to an executable."""

from __future__ import annotations

from typing import Any, Final

from .collection import collection_paused
from .errors import ParameterError
from .executable import Executable
from .extensions import passes_of
from .ir.module import Module
from .ir.verify import misplaced
from .options import CompileOptions
from .passes.choice import Choice
from .passes.eliminate_convert import CONVERTS
from .passes.eliminate_pad import PADS
from .passes.fold_constants import FoldConstants
from .passes.fuse_attention import FuseAttention
from .passes.fuse_elementwise import FuseElementwise
from .passes.fuse_epilogue import ANCHORS, FuseEpilogue
from .passes.fuse_horizontal import FuseHorizontal
from .passes.merge_common import MergeCommon
from .passes.normalize import Normalize, normalized
from .passes.propagate_precision import PRECISION
from .passes.raise_activations import ACTIVATIONS
from .passes.raise_norms import NORMS
from .passes.raise_rotary import ROTARY
from .passes.rewrite_low_precision import LOW_PRECISION
from .passes.rewrite_pooling import POOLING
from .passes.rewrite_quantization import QUANTIZATION
from .passes.rewrite_rules import Rewrite
from .passes.simplify_algebra import SIMPLIFY
from .passes.simplify_arithmetic import ARITHMETIC
from .passes.simplify_bounds import BOUNDS
from .passes.simplify_control import InlineBranches
from .passes.simplify_convolutions import CONVOLUTIONS
from .passes.simplify_indices import INDICES
from .passes.simplify_powers import POWERS
from .passes.simplify_reshapes import RESHAPES
from .passes.simplify_shapes import SHAPES
from .passes.simplify_siblings import JoinConvolutions, JoinGathers
from .passes.simplify_slices import SLICES
from .passes.simplify_splits import SPLITS
from .passes.simplify_views import VIEWS
from .pipeline import Pass, Pipeline, Stage
from .target import Context, Target

__all__ = ["RULES", "compile_module", "optimize_module", "stages"]


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


def compile_module(
    module: Module, on: Target | Context, options: CompileOptions, output_names: list[str] | None = None
) -> Executable:
    """An executable for a copy of `module` on a target or on one of its contexts; `module` itself stays as it is.

    Errors: ParameterError if `on` is neither, or if an instruction reads what does not come before it; whatever a pass or the
    target raises.
    """
    given: Any = on
    if hasattr(given, "kernels"):
        target: Target = given
        context = target.get_context()
    elif hasattr(given, "target"):
        target, context = given.target, given
    else:
        raise ParameterError(f"compile takes a target (see get_target) or a context, got {on!r}")
    wrong = misplaced(module)
    if wrong is not None:
        raise ParameterError(wrong)
    with collection_paused():
        copy = module.clone()
        pipeline = optimize_module(copy, options, target, context)
        return Executable(copy, target, context, options, output_names or (), pipeline.records)
