"""ai.onnx.ml except trees: feature preparation, labels, maps, linear models, support vector machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dtype import of
from mgx_onnx.ops.maps import map_types

from ..converter import converts
from ..node import Node

ML = "ai.onnx.ml"
CAST_TO = {"TO_FLOAT": dt.float32, "TO_INT64": dt.int64, "TO_STRING": dt.string}


def given(n: Node, *names: str) -> dict[str, Any]:
    """Returns the named attributes that the node has; ops have the standard's defaults."""
    return {name: n.attr(name) for name in names if n.has(name)}


def labels(n: Node, ints: str) -> dict[str, Any]:
    """Returns class labels under the attribute names of our classifier ops."""
    return {"labels_ints": n.attr(ints, []), "labels_strings": n.attr("classlabels_strings", [])}


def classified(n: Node, name: str, x: Instruction, attributes: dict[str, Any]) -> tuple[Instruction, ...]:
    """Adds a classifier op and returns its items.

    Strings are looked up for the classes that it finds: a target has kernels for numbers.
    """
    strings = attributes["labels_strings"]
    if not strings or attributes["labels_ints"]:
        return n.items(n.add(name, x, **attributes))
    numbered = attributes | {"labels_ints": list(range(len(strings))), "labels_strings": []}
    found, *scores = n.items(n.add(name, x, **numbered))
    return n.add("gather", n.literal(strings, dt.string), found, axis=0), *scores


# features


@converts("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return n.add("array_feature_extractor", x, y)


@converts("Binarizer", domain=ML)
def binarizer(n: Node, x: Instruction) -> Instruction:
    return n.add("binarizer", x, **given(n, "threshold"))


@converts("FeatureVectorizer", domain=ML)
def feature_vectorizer(n: Node, *xs: Instruction) -> Instruction:
    return n.add("feature_vectorizer", *xs, **given(n, "inputdimensions"))


@converts("Imputer", domain=ML)
def imputer(n: Node, x: Instruction) -> Instruction:
    names = ("imputed_value_floats", "imputed_value_int64s", "replaced_value_float", "replaced_value_int64")
    return n.add("imputer", x, **given(n, *names))


@converts("Normalizer", domain=ML)
def normalizer(n: Node, x: Instruction) -> Instruction:
    return n.add("normalizer", x, **given(n, "norm"))


@converts("OneHotEncoder", domain=ML)
def one_hot_encoder(n: Node, x: Instruction) -> Instruction:
    return n.add("one_hot_encoder", x, zeros=bool(n.attr("zeros", 1)), **given(n, "cats_int64s", "cats_strings"))


@converts("Scaler", domain=ML)
def scaler(n: Node, x: Instruction) -> Instruction:
    return n.add("scaler", x, **given(n, "offset", "scale"))


@converts("LabelEncoder", domain=ML)
def label_encoder_1(n: Node, x: Instruction) -> Instruction:
    """Converts version 1, which maps classes to their indices."""
    classes = n.attr("classes_strings")
    return _two_way(n, x, classes, list(range(len(classes))))


@converts("CategoryMapper", domain=ML)
def category_mapper(n: Node, x: Instruction) -> Instruction:
    return _two_way(n, x, n.attr("cats_strings", []), n.attr("cats_int64s", []))


def _two_way(n: Node, x: Instruction, strings: list[str], ints: list[int]) -> Instruction:
    defaults = given(n, "default_int64", "default_string")
    if x.shape.dtype is dt.string:
        return n.add("label_encoder", x, dtype=dt.int64, keys_strings=strings, values_int64s=ints, **defaults)
    return n.add("label_encoder", x, dtype=dt.string, keys_int64s=ints, values_strings=strings, **defaults)


@converts("LabelEncoder", domain=ML, since=2)
def label_encoder(n: Node, x: Instruction) -> Instruction:
    attributes: dict[str, Any] = {}
    dtype = None
    for side in ("keys", "values"):
        for kind in ("floats", "int64s", "strings"):
            listed = n.attr(f"{side}_{kind}", [])
            if listed:
                attributes[f"{side}_{kind}"] = listed
                if side == "values":
                    dtype = {"floats": dt.float32, "int64s": dt.int64, "strings": dt.string}[kind]
        tensor = n.attr(f"{side}_tensor", None)
        if tensor is not None:
            attributes[f"{side}_{_kind(tensor)}"] = tensor.reshape(-1).tolist()
            if side == "values":
                dtype = of(tensor.dtype)
    if dtype is None:
        n.fail("one of the attributes values_* is required")
    attributes |= given(n, "default_float", "default_int64", "default_string")
    tensor = n.attr("default_tensor", None)
    if tensor is not None:
        if tensor.size != 1:
            n.fail(f"default_tensor must have one value, got {list(tensor.shape)}")
        name = {"floats": "default_float", "int64s": "default_int64", "strings": "default_string"}[_kind(tensor)]
        attributes[name] = tensor.reshape(-1).tolist()[0]
    return n.add("label_encoder", x, dtype=dtype, **attributes)


def _kind(tensor: np.ndarray[Any, Any]) -> str:
    dtype = of(tensor.dtype)
    return "strings" if dtype is dt.string else "floats" if dtype.is_float else "int64s"


@converts("ZipMap", domain=ML)
def zip_map(n: Node, x: Instruction) -> Instruction:
    return n.add("zip_map", x, **labels(n, "classlabels_int64s"))


@converts("CastMap", domain=ML)
def cast_map(n: Node, x: Instruction) -> Instruction:
    cast_to = n.attr("cast_to", "TO_FLOAT")
    if cast_to not in CAST_TO:
        n.fail(f"cast_to must be one of {', '.join(CAST_TO)}, got {cast_to!r}")
    return n.add("cast_map", x, cast_to=CAST_TO[cast_to], **given(n, "map_form", "max_map"))


@converts("DictVectorizer", domain=ML)
def dict_vectorizer(n: Node, x: Instruction) -> Instruction:
    return n.add(
        "dict_vectorizer", x, dtype=map_types(x.result)[1], **given(n, "int64_vocabulary", "string_vocabulary")
    )


@converts("LinearRegressor", domain=ML)
def linear_regressor(n: Node, x: Instruction) -> Instruction:
    return n.add("linear_regressor", x, **given(n, "coefficients", "intercepts", "targets", "post_transform"))


@converts("LinearClassifier", domain=ML)
def linear_classifier(n: Node, x: Instruction) -> Any:
    attributes = given(n, "coefficients", "intercepts", "post_transform") | labels(n, "classlabels_ints")
    models = len(attributes.get("intercepts", ()))
    if not models:
        features = x.shape.dims[-1]
        models = len(attributes["labels_ints"] or attributes["labels_strings"])
        if isinstance(features, int) and features == len(n.attr("coefficients")):
            models = 1
    return classified(n, "linear_classifier", x, attributes | {"models": models})


@converts("SVMRegressor", domain=ML)
def svm_regressor(n: Node, x: Instruction) -> Instruction:
    names = ("coefficients", "rho", "support_vectors", "n_supports", "kernel_type", "kernel_params", "post_transform")
    return n.add("svm_regressor", x, one_class=bool(n.attr("one_class", 0)), **given(n, *names))


@converts("SVMClassifier", domain=ML)
def svm_classifier(n: Node, x: Instruction) -> Any:
    names = (
        "coefficients",
        "rho",
        "support_vectors",
        "prob_a",
        "prob_b",
        "kernel_type",
        "kernel_params",
        "post_transform",
    )
    counts = n.attr("vectors_per_class", [])
    attributes = given(n, *names) | labels(n, "classlabels_ints")
    return classified(n, "svm_classifier", x, attributes | {"vectors_per_class": counts if any(counts) else []})
