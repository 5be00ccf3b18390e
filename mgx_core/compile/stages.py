"""The six stages: their passes and rules in order, and the invariants before and after them.

| stage | before | after |
|---|---|---|
| normalize | the module is well-formed (`verify`) | axes are not negative, defaults are explicit, no identities |
| simplify | normal form | no rule applies: constants folded, equal values merged, products of one operand joined |
| legalize | no identities | each op has a plan of the target, a decomposition, or a reference implementation |
| fuse | no identities | groups are well-formed: one module each, which takes the inputs, returns the result, captures nothing |
| lower | groups are well-formed | parameters, literals, launches and control flow only |
| plan | as after lower | every value has memory, and values that are live at the same time do not overlap |

The first four run once per program, on symbolic extents; lower and plan run for each set of input shapes.  With
``validate=True`` the column "before" is also checked after each pass of the stage, and all of "after" at its end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..errors import ParameterError, suggestion
from ..ir.body_cache import BodyCache
from ..ir.equality import equal_bodies
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
from ..passes.normalize import Normalize, in_normal_form, normalized
from ..passes.product_ends import COSTLY
from ..passes.resolve_extents import ResolveExtents, UnifyExtents, with_known_extents
from ..passes.rewrite import Rewrite
from ..passes.unroll_loops import UnrollLoops
from ..passes.vectorize_scans import VectorizeScans
from ..passes.widening import WidenConstants, WidenLate
from ..rules.activations import ACTIVATIONS
from ..rules.algebra import SIMPLIFY
from ..rules.arithmetic import ARITHMETIC
from ..rules.bounds import BOUNDS
from ..rules.concat_products import CONCAT_PRODUCTS
from ..rules.converts import CONVERTS
from ..rules.convolution_sums import CONVOLUTION_SUMS
from ..rules.convolutions import CONVOLUTIONS
from ..rules.engine import Rules
from ..rules.indices import INDICES
from ..rules.integer_products import INTEGER_PRODUCTS, NARROW_FLOAT_PRODUCTS
from ..rules.masked import MASKED
from ..rules.norms import NORMS
from ..rules.pads import PADS
from ..rules.pooling import POOLING
from ..rules.powers import POWERS
from ..rules.precision import LOW_PRECISION, PRECISION
from ..rules.product_slices import PRODUCT_SLICES
from ..rules.quantization import QUANTIZATION
from ..rules.reshapes import RESHAPES
from ..rules.rotary import ROTARY
from ..rules.selection import OPTIONAL, PASSES, RuleSelection
from ..rules.shapes import SHAPES
from ..rules.slices import SLICES
from ..rules.softmax import SOFTMAX
from ..rules.splits import SPLITS
from ..rules.stacks import STACKS
from ..rules.sums_of_products import SUMS_OF_PRODUCTS
from ..rules.triangular import TRIANGULAR
from ..rules.views import VIEWS
from ..rules.views_below import VIEWS_BELOW
from ..rules.weight_arithmetic import WEIGHT_ARITHMETIC
from ..rules.windows import WINDOWS
from ..rules.written_slices import WRITTEN_SLICES
from ..targets.kernel_table import Kernels
from ..targets.memory import fits_in_memory, plan_memory
from ..targets.reuse import Reuse
from ..targets.target import Target
from ..types.memory_limit import limited
from ..types.shape import AnyShape
from .extensions import Extensions, kernels_of, passes_of, plugged_kernels
from .invariants import claimed, groups, lowered, simplified, well_formed
from .lower import Lower
from .order_for_memory import OrderForMemory
from .pipeline import STAGES, PassRecord, Pipeline, Stage, nothing
from .shape_specialization import (
    needs_extents,
    needs_shapes,
    select_modules,
    selects_modules,
    specialize_ranks,
)

__all__ = ["RULES", "lower_for", "lowering", "optimize_module", "pass_names", "stages"]


# Rules are tried in this order at each instruction; the first that applies wins, and the instruction is revisited.
# 1. Shapes and conversions first: they remove instructions that later rules would have to look through.
# 2. Quantization next: products become integer products before anything is folded into their float forms.
# 3. Whole functions (activations, norms, rotary embeddings) before arithmetic, which would break up their patterns.
# 4. Arithmetic, bounds and indices before algebra, which moves constants across the remaining instructions.
# 5. Factors are folded into convolutions before slices, splits, reshapes and views move: a view would hide them.
# 6. Pads, pooling and precision last: they choose among forms that the rules above produce.
RULES: Final = (
    SHAPES
    + CONVERTS
    + QUANTIZATION
    + INTEGER_PRODUCTS
    + NARROW_FLOAT_PRODUCTS
    + ACTIVATIONS
    + SOFTMAX
    + NORMS
    + ROTARY
    + SUMS_OF_PRODUCTS
    + TRIANGULAR
    + ARITHMETIC
    + POWERS
    + BOUNDS
    + INDICES
    + MASKED
    + WRITTEN_SLICES
    + WINDOWS
    + SIMPLIFY
    + PRODUCT_SLICES
    + CONCAT_PRODUCTS
    + CONVOLUTION_SUMS
    + CONVOLUTIONS
    + SLICES
    + SPLITS
    + STACKS
    + RESHAPES
    + VIEWS_BELOW
    + VIEWS
    + PADS
    + POOLING
    + LOW_PRECISION
    + PRECISION
).named("simplify")


def stages(target: Target | None, context: Any, options: CompileOptions) -> list[Stage]:
    """Returns the stages from normalize to fuse, with the passes that the target and plugins add.

    target: None: only passes that run for every target.
    Errors: ParameterError for an unknown name in `fusion_rules` or `disable_passes`.
    """
    extensions = Extensions(_rules_for(target), target, context, options)
    selection = extensions.selection
    rules = selection.rules(extensions.simplifying)
    passes = simplifying(selection, rules) if options.optimize else []
    left_out = not passes or "simplify" in options.disable_passes
    offered = nothing if target is None else claimed(functools.partial(kernels_of, target, context, options))
    own = [
        Stage("normalize", (Normalize(),), normalized, well_formed, in_normal_form),
        Stage("simplify", tuple(passes), normalized, normalized, nothing if left_out else simplified(rules)),
        Stage("legalize", (WidenLate(),) if options.optimize else (), normalized, normalized, offered),
        Stage("fuse", tuple(fusing(selection, target)) if options.optimize else (), normalized, normalized, groups),
    ]
    made = [s.with_passes(extensions.passes(s.name)) for s in own]
    running = {p.name for s in made for p in s.passes}
    others = [name for name in options.disable_passes if name not in running]
    if others:
        _check_names(others, pass_names(target, context, options))
    return made


def _rules_for(target: Target | None) -> Rules:
    """Returns the core's rules, without those whose results the target has no kernels for."""
    if target is None or target.narrow_floats:
        return RULES
    return RULES.without(r.name for r in NARROW_FLOAT_PRODUCTS.rules)


def pass_names(target: Target | None, context: Any, options: CompileOptions) -> list[str]:
    """Returns the sorted names of all passes that may run with these options or with the defaults."""
    found = {ResolveExtents.name, Lower.name, OrderForMemory.name}
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


def lowering(lower: Lower, target: Target, context: Any, options: CompileOptions) -> list[Stage]:
    """Returns the stages lower and plan, which run for concrete input shapes; scheduling follows (see `Schedule`)."""
    ordering = (OrderForMemory(),) if options.aggressive_memory else ()
    first = (ResolveExtents(), lower, *passes_of(RULES, target, "lower", context, options))
    return [
        Stage("lower", first, lowered),
        Stage("plan", (*ordering, *passes_of(RULES, target, "plan", context, options)), lowered, lowered),
    ]


def lower_for(
    given: Module,
    shapes: Mapping[str, AnyShape],
    kernels: Kernels,
    target: Target,
    context: Any,
    options: CompileOptions,
    reuse: Reuse,
) -> tuple[Module, list[PassRecord]]:
    """Returns a copy of an optimized module lowered for concrete shapes of its parameters, and the passes' records.

    reuse: caches shared with other copies.
    Errors: DeviceError if the values exceed the memory limit.
    """
    static = {n: s for n, s in shapes.items() if not s.dynamic()}
    records: list[PassRecord] = []
    needs = [given.derive(w.__name__, w) for w in (selects_modules, needs_shapes, needs_extents)]
    if needs[1] and not needs[0] and reuse.used:  # what data decide is the same for all shapes
        given = given.derive("specialized", lambda module: specialize_ranks(module.clone()) or module)
    shared = given.derive("equal bodies", equal_bodies)
    if any(needs):  # the copy is edited, so it cannot share bodies
        module = given.clone(parameters=static, shared=shared)
        if needs[0]:
            module = select_modules(module)
        if needs[1]:
            module, records = _specialized(module, target, context, options)
        elif needs[2]:
            module = with_known_extents(module)
    else:
        bodies = given.derive("bodies", BodyCache) if static else None  # a static program has only one instance
        module = given.clone(parameters=static, shared=shared, bodies=bodies)
    plugged = plugged_kernels(target)
    own = None if plugged.empty else plugged.for_options(options)
    lower = Lower(kernels, context, options.validate, own, reuse.launches_of(given))
    pipeline = Pipeline(lowering(lower, target, context, options), options.validate, frozenset(options.disable_passes))
    pipeline.run(module)
    with limited(options.limit_bytes):
        fits_in_memory(plan_memory(module, options.memory_reuse), module)
    return module, [*records, *pipeline.records]


def _specialized(
    module: Module, target: Target, context: Any, options: CompileOptions
) -> tuple[Module, list[PassRecord]]:
    """Takes branches on extents of a module with concrete shapes and optimizes it; returns it and the passes' records."""
    records: list[PassRecord] = []
    while (copy := specialize_ranks(module)) is not None:
        module = copy
        records += optimize_module(module, options, target, context, before="legalize").records
    return module, [*records, *optimize_module(module, options, target, context).records]


def simplifying(selection: RuleSelection, rules: Rules) -> list[Pass]:
    """Constants folded, equal values merged, rules applied, products of one operand joined."""
    # weights are asked for while they are narrow: folding makes floats of them
    passes: list[Pass] = [
        UnifyExtents(),
        Rewrite(WEIGHT_ARITHMETIC),
        FoldConstants(),
        InlineBranches(),
        UnrollLoops(),
        VectorizeScans(),
    ]
    passes += [MergeCommon(), Rewrite(rules), WidenConstants(rules)]
    if selection.on("join-convolutions"):
        passes.append(JoinConvolutions())
    if selection.on("join-gathers"):
        passes.append(JoinGathers())
    if selection.on("fuse-horizontal"):
        passes.append(FuseHorizontal(rules=rules))
    return [*passes, FoldConstants(rules=rules)]


def fusing(selection: RuleSelection, target: Target | None) -> list[Pass]:
    """Returns the passes of fuse: attention, pointwise and reduction groups, epilogues of products."""
    rounds = target is not None and target.attention_rounds
    passes: list[Pass] = [FuseAttention(rounds=rounds)] if selection.on("fuse-attention") else []
    if selection.on("fuse-elementwise"):
        costly = frozenset[str]() if target is not None and target.costly_epilogues else COSTLY
        passes.append(FuseElementwise(reduce=selection.on("fuse-reductions"), costly=costly))
    products = frozenset(kind for kind, name in PRODUCTS.items() if selection.on(name))
    return [*passes, FuseEpilogue(products)] if products and selection.on("fuse-epilogue") else passes


def optimize_module(
    module: Module, options: CompileOptions, target: Target | None = None, context: Any = None, before: str = "lower"
) -> Pipeline:
    """Runs the stages before the named one in place; returns the pipeline with its records."""
    chosen = [s for s in stages(target, context, options) if STAGES.index(s.name) < STAGES.index(before)]
    pipeline = Pipeline(chosen, options.validate, frozenset(options.disable_passes))
    module.sweep()  # rules inspect the users of values, which must not include dead code
    pipeline.run(module)
    return pipeline
