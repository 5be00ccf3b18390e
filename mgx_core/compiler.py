"""The one flow: from a program through the stages to an executable."""

from __future__ import annotations

from typing import Any

from .errors import ParameterError
from .executable import Executable
from .extensions import passes_of
from .ir.module import Module
from .options import CompileOptions
from .passes.eliminate_convert import CONVERTS
from .passes.fold_constants import FoldConstants
from .passes.fuse_attention import FuseAttention
from .passes.fuse_elementwise import FuseElementwise
from .passes.fuse_epilogue import FuseEpilogue
from .passes.fuse_horizontal import FuseHorizontal
from .passes.merge_common import MergeCommon
from .passes.normalize import Normalize, normalized
from .passes.raise_activations import ACTIVATIONS
from .passes.rewrite_rules import Rewrite
from .passes.simplify_algebra import SIMPLIFY
from .pipeline import Pipeline, Stage
from .target import Context, Target

__all__ = ["compile_module", "optimize_module", "stages"]


def stages(target: Target | None, context: Any, options: CompileOptions) -> list[Stage]:
    """The stages from normalize to fuse, with the passes that the target adds."""
    own: dict[str, Stage] = {
        "normalize": Stage("normalize", (Normalize(),), normalized),
        "simplify": Stage(
            "simplify",
            (
                FoldConstants(),
                MergeCommon(),
                Rewrite(CONVERTS + ACTIVATIONS + SIMPLIFY),
                FuseHorizontal(),
                FoldConstants(),
            )
            if options.optimize
            else (),
        ),
        "legalize": Stage("legalize"),
        "fuse": Stage("fuse", (FuseAttention(), FuseElementwise(), FuseEpilogue()) if options.optimize else ()),
    }
    if target is None:
        return list(own.values())
    return [s.with_passes(passes_of(target, s.name, context, options)) for s in own.values()]


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

    Errors: ParameterError if `on` is neither; whatever a pass or the target raises.
    """
    given: Any = on
    if hasattr(given, "kernels"):
        target: Target = given
        context = target.get_context()
    elif hasattr(given, "target"):
        target, context = given.target, given
    else:
        raise ParameterError(f"compile takes a target (see get_target) or a context, got {on!r}")
    copy = module.clone()
    pipeline = optimize_module(copy, options, target, context)
    return Executable(copy, target, context, options, output_names or (), pipeline.records)
