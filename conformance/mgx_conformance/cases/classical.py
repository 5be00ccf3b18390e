"""Cases of classical models, feature preparation and optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape, dtype

from ..known import OPS
from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("classical")
make = OPS.make
F = dtype.float32
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


@family.cases("binarizer")
def binarizer(name: str) -> Iterable[Case]:
    for kind in (F, dtype.int64):
        yield Case(make(name, threshold=0.5), (data(kind, 3, 4, low=-2, high=2),), "", LAYOUTS[:3])


@family.cases("feature_vectorizer")
def feature_vectorizer(name: str) -> Iterable[Case]:
    yield Case(make(name, inputdimensions=(2, 4)), (data(F, 3, 2), data(F, 3, 3)), "", LAYOUTS[:3])


@family.cases("imputer")
def imputer(name: str) -> Iterable[Case]:
    x = given([[1, np.nan, 3], [np.nan, 5, np.nan]], F)
    yield Case(make(name, imputed_value_floats=(9.0, 8.0, 7.0), replaced_value_float=float("nan")), (x,), "features")
    yield Case(make(name, imputed_value_int64s=(4,), replaced_value_int64=1), (given([[1, 2], [3, 1]]),), "integers")


@family.cases("normalizer")
def normalizer(name: str) -> Iterable[Case]:
    for norm in ("MAX", "L1", "L2"):
        yield Case(make(name, norm=norm), (data(F, 3, 5, low=0.1, high=4),), norm.lower(), LAYOUTS[:3])


@family.cases("one_hot_encoder")
def one_hot_encoder(name: str) -> Iterable[Case]:
    yield Case(make(name, cats_int64s=(1, 3, 5)), (given([[1, 5], [2, 3]]),), "integers")
    words = given(np.array(["a", "z", "c"], dtype=object))
    yield Case(make(name, cats_strings=("a", "b", "c")), (words,), "strings")


@family.cases("scaler")
def scaler(name: str) -> Iterable[Case]:
    yield Case(make(name, offset=(1.0, 2.0, 3.0), scale=(0.5, 2.0, 0.1)), (data(F, 4, 3),), "features", LAYOUTS[:3])


@family.cases("label_encoder")
def label_encoder(name: str) -> Iterable[Case]:
    words = given(np.array(["a", "z", "b"], dtype=object))
    yield Case(make(name, dtype=dtype.int64, keys_strings=("a", "b"), values_int64s=(1, 2)), (words,), "strings")
    op = make(name, dtype=dtype.string, keys_int64s=(1, 2), values_strings=("x", "y"))
    yield Case(op, (given([2, 7, 1]),), "integers")


@family.cases("linear_regressor")
def linear_regressor(name: str) -> Iterable[Case]:
    for transform in TRANSFORMS[:2]:
        op = make(
            name,
            coefficients=(0.5, -1.0, 2.0, 0.1, 0.2, 0.3),
            intercepts=(1.0, -1.0),
            targets=2,
            post_transform=transform,
        )
        yield Case(op, (data(F, 4, 3),), transform.lower(), LAYOUTS[:3])


@family.cases("linear_classifier")
def linear_classifier(name: str) -> Iterable[Case]:
    weights: dict[str, Any] = {
        "coefficients": (0.5, -1.0, 2.0, 0.1, 0.2, 0.3, -0.4, 0.5, 0.9),
        "intercepts": (0.1, 0.2, 0.3),
    }
    for transform in TRANSFORMS:
        op = make(name, models=3, labels_ints=(1, 2, 3), post_transform=transform, **weights)
        yield Case(op, (data(F, 4, 3),), transform.lower(), LAYOUTS[:3])
    op = make(name, models=1, labels_strings=("no", "yes"), coefficients=(1.0, -1.0), intercepts=(0.1,))
    yield Case(op, (data(F, 5, 2),), "binary")


@family.cases("svm_regressor")
def svm_regressor(name: str) -> Iterable[Case]:
    support: dict[str, Any] = {"support_vectors": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), "n_supports": 3,
                               "coefficients": (1.0, -0.5, 0.25), "rho": (0.1,)}  # fmt: skip
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        yield Case(
            make(name, kernel_type=kernel, kernel_params=(0.5, 0.1, 2.0), **support), (data(F, 4, 2),), kernel.lower()
        )


@family.cases("svm_classifier")
def svm_classifier(name: str) -> Iterable[Case]:
    support: dict[str, Any] = {"support_vectors": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), "vectors_per_class": (1, 2), "rho": (0.1,),
                               "coefficients": (1.0, -0.5, 0.25), "labels_ints": (0, 1)}  # fmt: skip
    for kernel in ("LINEAR", "RBF"):
        yield Case(
            make(name, kernel_type=kernel, kernel_params=(0.5, 0.1, 2.0), **support), (data(F, 4, 2),), kernel.lower()
        )
    op = make(name, kernel_type="RBF", kernel_params=(0.5, 0.1, 2.0), prob_a=(0.3,), prob_b=(0.1,), **support)
    yield Case(op, (data(F, 4, 2),), "probabilities")


@family.cases("pairwise_coupling")
def pairwise_coupling(name: str) -> Iterable[Case]:
    for kind in (F, dtype.float64):
        yield Case(make(name, classes=4), (data(kind, 5, 6, low=0, high=1),), "", LAYOUTS[:3])


# two trees: feature 0 against 0, then feature 1 against 0.5; feature 1 against -0.2.  Leaves 0..4
FOREST: dict[str, Any] = {
    "tree_roots": (0, 2), "nodes_featureids": (0, 1, 1), "nodes_modes": (0, 0, 0), "nodes_splits": (0.0, 0.5, -0.2),
    "nodes_truenodeids": (1, -1, -4), "nodes_falsenodeids": (-3, -2, -5), "nodes_missing_value_tracks_true": (0, 0, 0),
    "vote_leafids": (0, 1, 2, 3, 4), "vote_targetids": (0, 1, 0, 1, 0), "vote_weights": (0.5, 1.5, -0.25, 2.0, 0.75),
}  # fmt: skip


@family.cases("tree_ensemble")
def tree_ensemble(name: str) -> Iterable[Case]:
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        op = make(name, n_targets=2, aggregate_function=aggregate, **FOREST)
        yield Case(op, (data(F, 9, 2),), aggregate.lower(), LAYOUTS[:3])
    op = make(name, n_targets=2, base_values=(0.5, -0.5), post_transform="SOFTMAX", **FOREST)
    yield Case(op, (data(F, 9, 2),), "base-values")


@family.cases("tree_ensemble_classifier")
def tree_ensemble_classifier(name: str) -> Iterable[Case]:
    for transform in TRANSFORMS:
        op = make(name, n_targets=2, labels_ints=(3, 5), post_transform=transform, **FOREST)
        yield Case(op, (data(F, 9, 2),), transform.lower())


# maps ----------------------------------------------------------------------------------------------------------------------


@family.cases("zip_map")
def zip_map(name: str) -> Iterable[Case]:
    yield Case(make(name, labels_ints=(4, 5, 6)), (data(F, 2, 3),), "integers")
    yield Case(make(name, labels_strings=("a", "b", "c")), (data(F, 2, 3),), "strings")


def mapped(key: str, value: str, items: dict[Any, Any]) -> tuple[Any, Any]:
    return TupleShape([Shape(key, (len(items),)), Shape(value, (len(items),))]), items


@family.cases("cast_map")
def cast_map(name: str) -> Iterable[Case]:
    yield Case(make(name), (mapped("int64", "float32", {3: 1.5, 1: 2.5}),), "dense")
    op = make(name, map_form="SPARSE", max_map=5)
    yield Case(op, (mapped("int64", "float32", {3: 1.5, 1: 2.5}),), "sparse")


@family.cases("dict_vectorizer")
def dict_vectorizer(name: str) -> Iterable[Case]:
    op = make(name, string_vocabulary=("a", "b", "c"))
    yield Case(op, (mapped("string", "float32", {"c": 1.5, "a": 2.5}),), "")


# optimizers
# ----------------------------------------------------------------------------------------------------------------


@family.cases("adagrad", "adam", "momentum")
def optimizer(name: str) -> Iterable[Case]:
    attributes: dict[str, Any] = {"norm_coefficient": 0.01}
    if name == "momentum":
        attributes |= {"alpha": 0.9, "beta": 0.1, "mode": "nesterov"}
    group = 4 if name == "adam" else 3
    for kind in (F, FLOATS[3]):
        tensors = [data(kind, 3, 2, low=0.1) for _ in range(2 * group)]
        yield Case(make(name, **attributes), (given(0.1, kind), given(2), *tensors), "two", LAYOUTS[:2])
