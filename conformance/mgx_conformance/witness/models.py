"""Single-node models of operators without an ONNX node test: classical models, contrib operators."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .question import Question

__all__ = ["models"]


def node(
    name: str, kind: str, inputs: Any, outputs: int = 1, domain: str = "ai.onnx.ml", version: int = 3, **attributes: Any
) -> Question:
    """Returns one node on some arrays (None: absent)."""
    import onnx

    from .question import Question

    named = [("" if v is None else f"x{n}") for n, v in enumerate(inputs)]
    given = {n: v for n, v in zip(named, inputs, strict=True) if n}
    results = [f"y{n}" for n in range(outputs)]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, named, results, domain=domain, **attributes)],
        kind,
        [declared(n, v) for n, v in given.items()],
        [onnx.helper.make_empty_tensor_value_info(r) for r in results],
    )
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(domain, version)]
    if not domain:
        imports = [onnx.helper.make_opsetid("", version)]
    return Question(name, onnx.helper.make_model(graph, opset_imports=imports, ir_version=9), tuple(given.values()))


def declared(name: str, value: Any) -> Any:
    import onnx

    if isinstance(value, dict):
        (key, item), *_ = value.items()
        tensor = onnx.helper.make_tensor_type_proto(
            element(np.asarray(item, np.float32 if isinstance(item, float) else None)), ()
        )
        kind = onnx.TensorProto.STRING if isinstance(key, str) else onnx.TensorProto.INT64
        return onnx.helper.make_value_info(name, onnx.helper.make_map_type_proto(kind, tensor))
    return onnx.helper.make_tensor_value_info(name, element(value), np.shape(value))


def element(value: Any) -> int:
    import onnx

    if value.dtype == object:
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))


def models() -> Iterator[Question]:
    """Yields all models."""
    yield from classical()
    yield from supports()
    yield from contrib()
    yield from untested()


def normal(name: str, *dims: int) -> Any:
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(dims).astype(np.float32)


def classical() -> Iterator[Question]:
    """Yields feature preparation and linear models."""
    x = normal("features", 6, 3)
    words = np.array([["a", "z"], ["b", "a"]], dtype=object)
    yield node("ml_scaler", "Scaler", [x], offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 0.1])
    yield node("ml_scaler_int", "Scaler", [np.arange(6).reshape(2, 3)], offset=[1.0], scale=[0.5])
    yield node("ml_binarizer", "Binarizer", [x], threshold=0.1)
    for norm in ("MAX", "L1", "L2"):
        yield node(f"ml_normalizer_{norm.lower()}", "Normalizer", [np.abs(x)], norm=norm)
    gaps = np.where(x > 0.5, np.nan, x).astype(np.float32)
    yield node("ml_imputer", "Imputer", [gaps], imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=float("nan"))
    yield node(
        "ml_imputer_int", "Imputer", [np.array([[1, 2], [3, 1]])], imputed_value_int64s=[4], replaced_value_int64=1
    )
    yield node("ml_one_hot_encoder", "OneHotEncoder", [np.array([1, 5, 2, 3])], cats_int64s=[1, 3, 5])
    yield node("ml_one_hot_encoder_strings", "OneHotEncoder", [words[0]], cats_strings=["a", "b", "c"])
    for keys, values in (
        ("strings", "int64s"),
        ("int64s", "strings"),
        ("strings", "floats"),
        ("floats", "floats"),
        ("int64s", "floats"),
    ):
        table: dict[str, Any] = {"strings": ["a", "b"], "int64s": [1, 2], "floats": [0.5, 1.5]}
        data = {"strings": words, "int64s": np.array([[2, 7], [1, 1]]), "floats": np.array([[0.5, 9.0]], np.float32)}[
            keys
        ]
        attributes = {f"keys_{keys}": table[keys], f"values_{values}": table[values]}
        yield node(f"ml_label_encoder_{keys}_{values}", "LabelEncoder", [data], version=2, **attributes)
    yield node("ml_array_feature_extractor", "ArrayFeatureExtractor", [x, np.array([[0, 2]])])
    yield node("ml_feature_vectorizer", "FeatureVectorizer", [x, normal("more", 6, 2)], inputdimensions=[3, 2])
    weights = [0.5, -1.0, 2.0, 0.1, 0.2, 0.3]
    for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        word = transform.lower()
        yield node(f"ml_linear_regressor_{word}", "LinearRegressor", [x], coefficients=weights, intercepts=[1.0, -1.0],
                   targets=2, post_transform=transform)  # fmt: skip
        yield node(f"ml_linear_classifier_{word}", "LinearClassifier", [x], 2, coefficients=[*weights, -0.4, 0.5, 0.9],
                   intercepts=[0.1, 0.2, 0.3], classlabels_ints=[4, 5, 6], post_transform=transform)  # fmt: skip
    yield node("ml_linear_classifier_strings", "LinearClassifier", [x], 2, coefficients=[*weights, -0.4, 0.5, 0.9],
               intercepts=[0.1, 0.2, 0.3], classlabels_strings=["p", "q", "r"])  # fmt: skip
    yield node("ml_zip_map_ints", "ZipMap", [np.abs(x)], classlabels_int64s=[4, 5, 6])
    yield node("ml_zip_map_strings", "ZipMap", [np.abs(x)], classlabels_strings=["p", "q", "r"])
    yield node("ml_cast_map", "CastMap", [{3: 1.5, 1: 2.5}], cast_to="TO_FLOAT", map_form="DENSE")
    yield node("ml_cast_map_sparse", "CastMap", [{3: 1.5, 1: 2.5}], cast_to="TO_INT64", map_form="SPARSE", max_map=5)
    yield node("ml_dict_vectorizer", "DictVectorizer", [{"c": 1.5, "a": 2.5}], string_vocabulary=["a", "b", "c"])
    binary: dict[str, Any] = {"nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2],
        "nodes_featureids": [0, 0, 0, 2, 0, 0], "nodes_values": [0.1, 0, 0, -0.2, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 2, 0, 0]}  # fmt: skip
    votes: dict[str, Any] = {
        "treeids": [0, 0, 1, 1],
        "nodeids": [1, 2, 1, 2],
        "ids": [0, 1, 0, 1],
        "weights": [0.5, 1.5, -0.25, 2.0],
    }
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        target = {f"target_{k}": v for k, v in votes.items()}
        yield node(f"ml_tree_ensemble_regressor_{aggregate.lower()}", "TreeEnsembleRegressor", [x], n_targets=2,
                   aggregate_function=aggregate, **binary, **target)  # fmt: skip
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        classes = {f"class_{k}": v for k, v in votes.items()}
        yield node(f"ml_tree_ensemble_classifier_{transform.lower()}", "TreeEnsembleClassifier", [x], 2,
                   classlabels_int64s=[3, 5], post_transform=transform, **binary, **classes)  # fmt: skip


def supports() -> Iterator[Question]:
    """Yields support vector machines."""
    x = normal("points", 5, 2)
    vectors, weights = normal("vectors", 6).tolist(), [1.0, -0.5, 0.25]
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        shared: dict[str, Any] = {
            "kernel_type": kernel,
            "kernel_params": [0.5, 0.1, 2.0],
            "support_vectors": vectors,
            "rho": [0.1],
        }
        word = kernel.lower()
        yield node(f"ml_svm_regressor_{word}", "SVMRegressor", [x], n_supports=3, coefficients=weights, **shared)
        yield node(f"ml_svm_classifier_{word}", "SVMClassifier", [x], 2, vectors_per_class=[1, 2], coefficients=weights,
                   classlabels_ints=[0, 1], **shared)  # fmt: skip
    three: dict[str, Any] = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0],
                             "support_vectors": normal("many", 10).tolist(),
                             "coefficients": normal("duals", 10).tolist(), "rho": [0.1, -0.2, 0.3],
                             "vectors_per_class": [2, 1, 2], "classlabels_ints": [7, 8, 9]}  # fmt: skip
    yield node("ml_svm_classifier_three", "SVMClassifier", [x], 2, **three)
    yield node(
        "ml_svm_classifier_probabilities",
        "SVMClassifier",
        [x],
        2,
        prob_a=[-0.5, -1.0, -0.7],
        prob_b=[0.1, 0.0, -0.1],
        **three,
    )


def contrib() -> Iterator[Question]:
    """Yields operators of com.microsoft whose ops have no counterpart in the standard."""
    ms: dict[str, Any] = {"domain": "com.microsoft", "version": 1}
    square = normal("square", 2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
    yield node("ms_inverse", "Inverse", [square], **ms)
    for axis in (0, 1):
        yield node(f"ms_quantize_per_axis{axis}", "QuantizeLinear",
                   [normal("wide", 3, 4), np.linspace(0.01, 0.1, 3 + axis, dtype=np.float32),
                    np.arange(3 + axis).astype(np.uint8)],
                   domain="", version=13, axis=axis)  # fmt: skip
    q = normal("q", 2, 4, 16)
    yield node("ms_rotary", "RotaryEmbedding",
               [q.reshape(2, 1, 4, 16), np.array([[0, 1, 2, 3], [2, 3, 4, 5]]),
                np.cos(normal("angle", 8, 8)), np.sin(normal("angle", 8, 8))],
               **ms)  # fmt: skip
    yield node(
        "ms_multi_head_attention",
        "MultiHeadAttention",
        [q, normal("k", 2, 5, 16), normal("v", 2, 5, 16)],
        num_heads=4,
        **ms,
    )
    gqa = [normal("gq", 1, 1, 64), normal("gk", 1, 1, 32), normal("gv", 1, 1, 32),
           normal("pk", 1, 2, 5, 16), normal("pv", 1, 2, 5, 16),
           np.array([5], np.int32), np.array(6, np.int32), np.cos(normal("ga", 16, 8)), np.sin(normal("ga", 16, 8))]  # fmt: skip
    yield node(
        "ms_group_query_attention", "GroupQueryAttention", gqa, 3, num_heads=4, kv_num_heads=2, do_rotary=1, **ms
    )
    yield node("ms_quick_gelu", "QuickGelu", [q], alpha=1.5, **ms)
    yield node("ms_fast_gelu", "FastGelu", [q], **ms)
    yield node(
        "ms_skip_layer_norm", "SkipLayerNormalization", [q, q[::-1].copy(), normal("g", 16), normal("b", 16)], **ms
    )
    packed = np.random.default_rng(3).integers(0, 255, (8, 1, 16), dtype=np.uint8)
    yield node(
        "ms_matmul_nbits",
        "MatMulNBits",
        [normal("mm", 3, 32), packed, np.abs(normal("s", 8))],
        K=32,
        N=8,
        bits=4,
        block_size=32,
        **ms,
    )
    text = np.array(["ab c de", "f gh"], dtype=object)
    yield node("ms_tokenizer", "Tokenizer", [text], mark=0, mincharnum=1, pad_value="#", separators=[" "], **ms)


def untested() -> Iterator[Question]:
    """Yields standard operators without a node test, and old versions."""
    image = normal("image", 1, 2, 7, 6)
    rois = np.array([[0, 0, 0, 4, 3], [0, 1, 2, 5, 5]], np.float32)
    std: dict[str, Any] = {"domain": "", "version": 17}
    yield node("max_roi_pool", "MaxRoiPool", [image, rois], pooled_shape=[2, 3], **std)
    yield node("global_lp_pool", "GlobalLpPool", [image], p=3, **std)
    yield node("lp_pool", "LpPool", [image], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=2, **std)
    yield node(
        "conv_3d_grouped",
        "Conv",
        [normal("c3", 1, 4, 5, 4, 5), normal("w3", 4, 2, 2, 3, 2)],
        group=2,
        pads=[1] * 6,
        **std,
    )
    yield node("lstm_clip", "LSTM", [normal("lx", 4, 2, 3), normal("lw", 2, 16, 3), normal("lr", 2, 16, 4),
               normal("lb", 2, 32)], 3,
               hidden_size=4, clip=0.4, direction="bidirectional", **std)  # fmt: skip
    yield node("gru_lengths", "GRU", [normal("lx", 4, 2, 3), normal("gw", 1, 12, 3), normal("gr", 1, 12, 4), normal("gb", 1, 24),
               np.array([4, 2], np.int32)], 2, hidden_size=4, linear_before_reset=1, **std)  # fmt: skip
    yield node("rnn_reverse", "RNN", [normal("lx", 4, 2, 3), normal("rw", 1, 4, 3), normal("rr", 1, 4, 4)], 2, hidden_size=4,
               direction="reverse", activations=["Relu"], **std)  # fmt: skip
    scatter = [normal("sd", 4, 3), np.array([[0, 3, 1], [2, 0, 0]]), normal("su", 2, 3)]
    for reduction in ("add", "mul", "min", "max"):
        yield node(
            f"scatter_elements_{reduction}", "ScatterElements", scatter, reduction=reduction, domain="", version=18
        )
    rows = [normal("sd", 4, 3), np.array([[1], [3]]), normal("sr", 2, 3)]
    for reduction in ("add", "mul", "min", "max"):
        yield node(f"scatter_nd_{reduction}", "ScatterND", rows, reduction=reduction, domain="", version=18)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            yield node(f"grid_sample_16_{mode}_{padding}", "GridSample",
                       [image, 1.2 * np.tanh(normal("grid", 1, 3, 4, 2))], mode=mode,
                       padding_mode=padding, align_corners=1, domain="", version=16)  # fmt: skip
