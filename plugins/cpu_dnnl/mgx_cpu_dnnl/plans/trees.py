"""Ensembles of decision trees, evaluated row by row in a native loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.forest import MODES, Forest, forest_of
from mgx_core.ops.trees import TreeEnsemble, TreeEnsembleClassifier
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from ..emitter import CpuEmitter
from .native_loops import native_loop
from .offer import offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
AGGREGATES: Final = ("SUM", "AVERAGE", "MIN", "MAX")
TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
BLOCK_ROWS: Final = 64  # rows whose sums are kept in scratch memory
MAX_OUTPUTS: Final = 1 << 14
MAX_FEATURES: Final = 1 << 27
MIN_TRAVERSALS: Final = 4096  # minimum tree traversals (rows times trees) per thread
LESS, EQUAL, GREATER, MISSING = 1, 2, 4, 8  # outcomes of a comparison, as a bit set
# accepted outcomes by mode
RULES: Final = np.array([LESS | EQUAL, LESS, GREATER | EQUAL, GREATER, EQUAL, EQUAL], np.int32)
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(len(MODES))


def supported(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    why = only(frozenset({dt.float32, dt.float64}))(op, inputs, modules)
    if why is not None:
        return why
    if isinstance(op, TreeEnsembleClassifier) and op.labels_strings:
        return No("string labels are not supported")
    if op.dtype not in (dt.float32, inputs[0].dtype):
        return No(f"scores of type {op.dtype} for features of type {inputs[0].dtype} are not supported")
    if not np.isfinite([*op.vote_weights, *op.base_values]).all():
        return No("the weights are not finite")
    if op.n_targets > MAX_OUTPUTS:
        return No(f"at most {MAX_OUTPUTS} outputs are supported, got {op.n_targets}")
    return None


@offer(PLANS, TreeEnsemble, when=supported, name="native")
def emit_trees(e: CpuEmitter, op: TreeEnsemble, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    labels, probabilities = None, -1
    if isinstance(op, TreeEnsembleClassifier):
        labels = e.literal(np.array(op.labels_ints, np.int64))
        probabilities = int(min(op.vote_weights) >= 0) if op.binary else -1
    return _emit(e, op, args[0], labels, probabilities)


def _emit(e: CpuEmitter, op: TreeEnsemble, x: Value | None, labels: Value | None, probabilities: int) -> Results:
    """Emits the ensemble; returns scores [n, outputs], preceded by the labels [n] of the best classes for classifiers.

    probabilities: for binary classifiers whose votes are all for one class, 1 if scores are probabilities, else 0; otherwise -1.
    """
    assert x is not None
    forest = _without_sets(forest_of(op))
    rows, features = (1, x.lens[0]) if len(x.lens) == 1 else x.lens
    needed = 1 + int(forest.feature.max(initial=-1))
    if not needed <= features < MAX_FEATURES:
        raise Refused(f"the trees use {needed} features, got {features}")
    out = e.allocate(op.dtype, [rows, op.n_targets])
    best = None if labels is None else e.allocate(dt.int64, [rows])
    if rows:
        dtype = x.dtype
        tables = e.derived_literals([forest.feature, forest.split], f"trees {dtype}", lambda: _tables(forest, dtype))
        base = np.zeros(op.n_targets)
        base[: len(op.base_values)] = op.base_values
        given = [e.row_major(x), *tables, e.literal(base)]
        given += [out] if labels is None or best is None else [out, labels, best]
        numbers = [
            features,
            len(forest.roots),
            op.n_targets,
            AGGREGATES.index(op.aggregate_function),
            _shared_rule(forest.mode),
            int(forest.missing.any()),
        ]
        numbers += [TRANSFORMS.index(op.post_transform)]
        numbers += [int(labels is not None), probabilities]
        grain, scratch = max(1, MIN_TRAVERSALS // max(1, len(forest.roots))), BLOCK_ROWS * op.n_targets * 8
        results = [out] if best is None else [out, best]
        native_loop(e, op.name, f"tree_ensemble_{dtype}_{op.dtype}", given, results, numbers, rows, grain, scratch)
    return out if best is None else (best, out)


def _shared_rule(mode: Array) -> int:
    """Returns the comparison shared by all nodes, if it is an ordering; else 0."""
    shared = len(mode) and mode[0] not in (EQ, NEQ) and (mode == mode[0]).all()
    return int(RULES[mode[0]]) if shared else 0


def _without_sets(forest: Forest) -> Forest:
    """Replaces each node that looks a feature up in a set by a chain of nodes, each of which compares it with one member."""
    if MEMBER not in forest.mode:
        return forest
    columns: dict[str, list[Any]] = {
        name: getattr(forest, name).tolist() for name in ("feature", "mode", "split", "true", "false", "missing")
    }
    for node in np.flatnonzero(forest.mode == MEMBER):
        members = forest.members[forest.member_start[node] : forest.member_start[node + 1]].tolist()
        at = int(node)
        columns["mode"][at], columns["split"][at] = EQ, members[0] if members else np.nan  # nothing equals NaN
        for member in members[1:]:
            following = len(columns["mode"])
            for values in columns.values():
                values.append(values[at])
            columns["split"][following], columns["false"][at] = member, following
            at = following
    arrays = {name: np.array(values, getattr(forest, name).dtype) for name, values in columns.items()}
    return forest._replace(**arrays)


def _tables(forest: Forest, dtype: DType) -> list[Array]:
    """Encodes nodes, roots, starts of the leaves' votes, their targets and weights for the loop on features of `dtype`."""
    mode = forest.mode
    rule = RULES[mode]
    fields = {"split": dtype.numpy, "feature_and_rule": np.int32, "yes": np.int32, "no": np.int32}
    nodes = np.zeros(max(1, len(mode)), np.dtype(list(fields.items()), align=True))
    negated = mode == NEQ  # encoded as EQ with swapped children
    if len(mode):
        nodes["split"] = _splits(forest.split, mode) if dtype is dt.float32 else forest.split
        nodes["feature_and_rule"] = forest.feature << 4 | rule | np.where(forest.missing ^ negated, MISSING, 0)
        nodes["yes"] = np.where(negated, forest.false, forest.true)
        nodes["no"] = np.where(negated, forest.true, forest.false)
    tables = [_nonempty(a, np.int32) for a in (forest.roots, forest.leaf_start, forest.target)]
    return [nodes.view(np.int32), *tables, _nonempty(forest.weight, np.float64)]


def _splits(split: Array, mode: Array) -> Array:
    """Returns float32 splits for which float32 features compare exactly as with the given float64 splits."""
    with np.errstate(over="ignore"):
        near = split.astype(np.float32)
    down = np.where(near > split, np.nextafter(near, np.float32(-np.inf)), near)
    up = np.where(near < split, np.nextafter(near, np.float32(np.inf)), near)
    exact = np.where(near == split, near, np.float32(np.nan))  # NaN equals no feature
    return np.asarray(np.select([np.isin(mode, (LEQ, GT)), np.isin(mode, (LT, GTE))], [down, up], exact), np.float32)


def _nonempty(array: Array, dtype: Any) -> Array:
    """Returns a row-major array of at least one element, since constants must not be empty."""
    return np.ascontiguousarray(array, dtype) if array.size else np.zeros(1, dtype)
