"""ai.onnx.ml: every operator and version, compared with onnxruntime if it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_core import MgxError, parse_onnx
from mgx_onnx.backend import RefBackend

ML = "ai.onnx.ml"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3)).astype(np.float32)
NAN = float("nan")


def strings(*values: Any) -> Any:
    return np.array(values, object)


def floats(n: int) -> list[float]:
    return [float(v) for v in RNG.normal(size=n).astype(np.float32)]


def model_of(op: str, inputs: list[Any], outputs: int, version: int, attributes: dict[str, Any]) -> onnx.ModelProto:
    names = [f"i{k}" for k in range(len(inputs))]
    results = [f"o{k}" for k in range(outputs)]
    given = [
        helper.make_tensor_value_info(
            name, TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(op, names, results, domain=ML, **attributes)
    graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info(r) for r in results])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ML, version)], ir_version=8
    )


def run_ml(op: str, *inputs: Any, outputs: int = 1, version: int = 3, **attributes: Any) -> list[Any]:
    return list(RefBackend.prepare(model_of(op, list(inputs), outputs, version, attributes)).run(list(inputs)))


def agree_ml(op: str, *inputs: Any, outputs: int = 1, version: int = 3, **attributes: Any) -> list[Any]:
    peer = pytest.importorskip("onnxruntime")
    model = model_of(op, list(inputs), outputs, version, attributes)
    session = peer.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {f"i{k}": x for k, x in enumerate(inputs)})
    found = list(RefBackend.prepare(model).run(list(inputs)))
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        if ours.dtype == object:
            assert ours.tolist() == theirs.tolist()
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    return found


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("ArrayFeatureExtractor", [X, np.array([2, 0])], {}),
        ("ArrayFeatureExtractor", [strings("a", "b"), np.array([[1]])], {}),
        ("Binarizer", [X], {"threshold": 0.25}),
        ("CategoryMapper", [strings("a", "z")], {"cats_strings": ["b", "a"], "cats_int64s": [5, 6]}),
        (
            "CategoryMapper",
            [np.array([[5, 7]])],
            {"cats_strings": ["b", "a"], "cats_int64s": [5, 6], "default_string": "?"},
        ),
        ("FeatureVectorizer", [X, X[:, :1]], {"inputdimensions": [3, 1]}),
        (
            "Imputer",
            [np.where(X > 1, np.float32(NAN), X)],
            {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": NAN},
        ),
        ("Imputer", [np.array([[1, 0], [0, 2]])], {"imputed_value_int64s": [7]}),
        (
            "LinearClassifier",
            [X],
            {
                "coefficients": floats(9),
                "intercepts": floats(3),
                "classlabels_ints": [4, 5, 6],
                "post_transform": "SOFTMAX",
            },
        ),
        (
            "LinearClassifier",
            [X],
            {
                "coefficients": floats(3),
                "intercepts": floats(1),
                "classlabels_strings": ["n", "y"],
                "post_transform": "LOGISTIC",
            },
        ),
        ("LinearRegressor", [X], {"coefficients": floats(6), "intercepts": floats(2), "targets": 2}),
        ("Normalizer", [X], {"norm": "L2"}),
        ("Normalizer", [X.astype(np.float64)], {"norm": "L1"}),
        ("Normalizer", [X[0]], {}),
        ("OneHotEncoder", [strings("b", "z")], {"cats_strings": ["a", "b"]}),
        ("OneHotEncoder", [X], {"cats_int64s": [0, 1, -1]}),
        ("Scaler", [X], {"offset": floats(3), "scale": floats(3)}),
        ("Scaler", [(X * 4).astype(np.int64)], {"offset": [0.5], "scale": [2.0]}),
        (
            "SVMRegressor",
            [X],
            {
                "coefficients": floats(2),
                "support_vectors": floats(6),
                "n_supports": 2,
                "rho": floats(1),
                "kernel_type": "RBF",
                "kernel_params": [0.5, 0.0, 0.0],
            },
        ),
        (
            "SVMRegressor",
            [X],
            {
                "coefficients": floats(3),
                "n_supports": 0,
                "rho": floats(1),
                "one_class": 1,
                "kernel_params": [0.0, 0.0, 0.0],
            },
        ),
        (
            "SVMClassifier",
            [X],
            {
                "coefficients": floats(3),
                "support_vectors": floats(9),
                "rho": floats(1),
                "vectors_per_class": [2, 1],
                "kernel_type": "POLY",
                "kernel_params": [0.5, 1.0, 3.0],
                "classlabels_ints": [0, 1],
            },
        ),
        (
            "SVMClassifier",
            [X],
            {
                "coefficients": floats(8),
                "support_vectors": floats(12),
                "rho": floats(3),
                "vectors_per_class": [2, 1, 1],
                "kernel_type": "SIGMOID",
                "kernel_params": [0.5, 0.1, 0.0],
                "prob_a": [-1.0, -2.0, -0.5],
                "prob_b": floats(3),
                "classlabels_strings": ["a", "b", "c"],
            },
        ),
    ],
)
def test_against_onnxruntime(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    agree_ml(op, *inputs, outputs=2 if op.endswith("Classifier") else 1, **attributes)


@pytest.mark.parametrize(
    ("version", "x", "attributes"),
    [
        (1, strings("a", "z"), {"classes_strings": ["b", "a"]}),
        (1, np.array([1, 5]), {"classes_strings": ["b", "a"], "default_string": "?"}),
        (2, strings("a", "z"), {"keys_strings": ["b", "a"], "values_int64s": [5, 6]}),
        (2, np.array([1, 5]), {"keys_int64s": [1], "values_floats": [0.5], "default_float": 9.0}),
        (4, np.float32([NAN, 1, 0]), {"keys_floats": [1.0, NAN], "values_strings": ["one", "nan"]}),
        (
            4,
            strings("a", "c"),
            {"keys_tensor": strings("a", "b"), "values_tensor": np.int16([1, 5]), "default_tensor": np.int16([9])},
        ),
        (4, np.array([1.0, 2.0]), {"keys_tensor": np.array([1.0]), "values_tensor": np.array([0.1])}),
    ],
)
def test_label_encoder(version: int, x: Any, attributes: dict[str, Any]) -> None:
    given = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    agree_ml("LabelEncoder", x, version=version, **given)


def test_zip_map() -> None:
    x = np.float32([[0.25, 0.75]])
    assert run_ml("ZipMap", x, classlabels_strings=["a", "b"]) == [[{"a": 0.25, "b": 0.75}]]
    assert run_ml("ZipMap", x, classlabels_int64s=[3, 4]) == [[{3: 0.25, 4: 0.75}]]
    assert run_ml("ZipMap", x.astype(np.float16), classlabels_int64s=[3, 4]) == [[{3: 0.25, 4: 0.75}]]


def run_map(op: str, key: int, value: int, given: dict[Any, Any], **attributes: Any) -> Any:
    info = onnx.ValueInfoProto(name="x")
    info.type.map_type.key_type = key
    info.type.map_type.value_type.tensor_type.elem_type = value
    node = helper.make_node(op, ["x"], ["y"], domain=ML, **attributes)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, 1)])
    return RefBackend.prepare(model).run([given])[0]


def test_maps_as_inputs() -> None:
    out = run_map("DictVectorizer", TensorProto.STRING, TensorProto.INT64, {"b": 3}, string_vocabulary=["a", "b"])
    assert out.dtype == np.int64 and out.tolist() == [[0, 3]]
    out = run_map("CastMap", TensorProto.INT64, TensorProto.FLOAT, {2: 0.5, 1: 3.0}, cast_to="TO_STRING")
    assert out.tolist() == [["3", "0.5"]]
    out = run_map(
        "CastMap", TensorProto.INT64, TensorProto.STRING, {2: "7"}, cast_to="TO_INT64", map_form="SPARSE", max_map=3
    )
    assert out.tolist() == [[0, 0, 7]]
    with pytest.raises(MgxError, match="parameter 'x' must be"):
        run_map("CastMap", TensorProto.INT64, TensorProto.FLOAT, {"a": 0.5})


TREE = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
    "nodes_featureids": [0, 0, 0, 1, 0, 2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0, 1, 0, 3, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 4, 0, 0],
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
}
SPLITS, WEIGHTS = [0.1, 0.0, 0.0, -0.2, 0.0, 0.5, 0.0, 0.0], [0.5, 1.5, -1.0, 0.25, 2.0]
TREES, LEAVES = [0, 0, 1, 1, 1], [1, 2, 1, 3, 4]
MISSING = np.where(np.abs(X) > 1.2, np.float32(NAN), X)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("version", [1, 3])
def test_tree_regressor(version: int, aggregate: str) -> None:
    agree_ml(
        "TreeEnsembleRegressor",
        MISSING,
        version=version,
        **TREE,
        nodes_values=SPLITS,
        target_treeids=TREES,
        target_nodeids=LEAVES,
        target_ids=[0] * 5,
        target_weights=WEIGHTS,
        n_targets=1,
        aggregate_function=aggregate,
        base_values=[0.125],
    )


@pytest.mark.parametrize("ids", [[0] * 5, [0, 1, 2, 1, 0]])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_tree_classifier(transform: str, ids: list[int]) -> None:
    tensors = {"nodes_values_as_tensor": SPLITS, "class_weights_as_tensor": WEIGHTS}
    agree_ml(
        "TreeEnsembleClassifier",
        MISSING.astype(np.float64),
        outputs=2,
        **TREE,
        class_treeids=TREES,
        class_nodeids=LEAVES,
        class_ids=ids,
        classlabels_int64s=[0, 1, 2] if any(ids) else [0, 1],
        post_transform=transform,
        **{k: numpy_helper.from_array(np.array(v)) for k, v in tensors.items()},
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [9, 0, 0, 1, 0, 3, 0, 0]}, "does not exist"),
        ({"nodes_truenodeids": [0, 0, 0, 1, 0, 3, 0, 0]}, "do not form trees"),
        ({"nodes_nodeids": [0, 0, 2, 0, 1, 2, 3, 4]}, "several nodes"),
        ({"nodes_modes": ["OTHER"] * 8}, "'OTHER'"),
        ({"target_nodeids": [0, 2, 1, 3, 4]}, "not a leaf"),
        ({"target_weights": [1.0]}, "one length"),
        ({"nodes_featureids": [0]}, "nodes_featureids"),
    ],
)
def test_damaged_trees(change: dict[str, Any], message: str) -> None:
    good = {
        **TREE,
        "nodes_values": SPLITS,
        "target_treeids": TREES,
        "target_nodeids": LEAVES,
        "target_ids": [0] * 5,
        "target_weights": WEIGHTS,
    }
    with pytest.raises(MgxError, match=message):
        run_ml("TreeEnsembleRegressor", X, **{**good, **change})


def test_tree_ensemble_with_sets() -> None:
    def tensor(values: Any, dtype: Any) -> Any:
        return numpy_helper.from_array(np.array(values, dtype))

    out = run_ml(
        "TreeEnsemble",
        np.array([[1.2, 7], [-0.1, 12], [1.66, 3]], np.float64),
        version=5,
        n_targets=2,
        tree_roots=[0],
        nodes_modes=tensor([0, 6, 6], np.uint8),
        nodes_featureids=[0, 1, 1],
        nodes_splits=tensor([0.5, 0, 0], np.float64),
        nodes_truenodeids=[1, 0, 2],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 3],
        nodes_falseleafs=[0, 1, 1],
        membership_values=tensor([12, 13, NAN, 7, 8, NAN], np.float64),
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=tensor([1, 10, 100, 1000], np.float64),
        aggregate_function=1,
        post_transform=0,
    )[0]
    assert out.dtype == np.float64 and out.tolist() == [[100, 0], [1, 0], [0, 1000]]


@pytest.mark.parametrize("op", ["LinearClassifier", "TreeEnsembleClassifier"])
def test_string_labels_are_looked_up_by_number(op: str) -> None:
    """A target has kernels for classifiers with numbers: a forest with names ran on the host."""
    given: dict[str, Any] = {"classlabels_strings": ["no", "yes", "maybe"]}
    if op == "LinearClassifier":
        given |= {"coefficients": floats(9), "intercepts": floats(3)}
    else:
        given |= {
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [1, 0, 0],
            "nodes_values": [0.1, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [0, 2],
            "class_weights": [1.0, 1.0],
        }
    agree_ml(op, X, outputs=2, **given)
    program = parse_onnx(model_of(op, [X], 2, 3, given).SerializeToString())
    (model,) = (i for i in program.get_main_module() if i.name.endswith("_classifier"))
    assert (model.op.labels_ints, model.op.labels_strings) == ((0, 1, 2), ())


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("FeatureVectorizer", [X, X[:, :1].astype(np.int64)], {}),
        ("FeatureVectorizer", [X, X[:, :2], X.reshape(*X.shape, 1)], {"inputdimensions": [2, 4, 3]}),
        ("FeatureVectorizer", [X[0], X[1].astype(np.float64)], {"inputdimensions": [3, 5]}),
        (
            "LabelEncoder",
            [np.float32([3, NAN, 1, 9])],
            {"keys_floats": [1.0, NAN, 3.0, 1.0], "values_int64s": [5, 6, 7, 8]},
        ),
        (
            "LabelEncoder",
            [np.float32([[0, 2]])],
            {"keys_floats": [-0.0, 7.0], "values_floats": [0.1, 7.0], "default_float": NAN},
        ),
        ("LabelEncoder", [np.array([4, 1 << 40])], {"keys_int64s": [-5, 1 << 40, 4], "values_floats": [0.5, 1.5, 2.5]}),
        (
            "LinearRegressor",
            [X],
            {
                "coefficients": [0.5, -1.0, 2.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0],
                "targets": 3,
                "post_transform": "SOFTMAX_ZERO",
            },
        ),
        ("LinearRegressor", [X * 0], {"coefficients": [1.0] * 6, "targets": 2, "post_transform": "SOFTMAX_ZERO"}),
    ],
)
def test_native_forms(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    """Encoders that are rewritten for targets agree with their definitions, and leave nothing to the host."""
    model = model_of(op, inputs, 1, 4 if op == "LabelEncoder" else 1, attributes)
    given = {f"i{k}": x for k, x in enumerate(inputs)}
    results = {}
    for target in ("ref", "cpu"):
        program = mgx.parse_onnx_buffer(model.SerializeToString())
        program.compile(mgx.get_target(target))
        (results[target],) = (r.to_numpy() for r in program.run(given))
    assert program.executable is not None
    assert not [p for p in program.executable.instances()[0].placements if p.place == "host"]
    assert results["cpu"].dtype == results["ref"].dtype
    np.testing.assert_allclose(results["cpu"], results["ref"], rtol=1e-6)
