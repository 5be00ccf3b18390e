"""scikit-learn pipelines exported by skl2onnx return the same predictions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from mgx_onnx.backend import RefBackend

pytest.importorskip("sklearn")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    skl2onnx = pytest.importorskip("skl2onnx")

from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the exporter and scikit-learn are not ours

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)).astype(np.float32)
BOTH = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(np.int64)
THREE = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0)]


def exported(model: Any, types: list[Any], zipmap: bool = False) -> Any:
    options = {"zipmap": zipmap} if hasattr(model, "predict_proba") else None
    return RefBackend.prepare(
        skl2onnx.convert_sklearn(model, initial_types=types, options=options, target_opset={"": 17, "ai.onnx.ml": 3})
    )


@pytest.mark.parametrize("y", [BOTH, THREE], ids=["two", "three"])
@pytest.mark.parametrize(
    "model", [GradientBoostingClassifier(n_estimators=10), SVC(probability=True)], ids=["boosting", "svm"]
)
def test_classifiers(model: Any, y: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    labels, scores = exported(pipeline, [("x", FloatTensorType([None, 4]))]).run([X])
    assert labels.tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose(scores, pipeline.predict_proba(X), rtol=1e-4, atol=1e-6)


def test_mixed_columns() -> None:
    colors = np.array(["red", "green", "blue"], object)[RNG.integers(0, 3, 120)][:, None]
    table = np.concatenate([X.astype(object), colors], axis=1)
    y = (BOTH + (colors[:, 0] == "red")) % 2
    parts = ColumnTransformer([("numbers", StandardScaler(), [0, 1, 2, 3]), ("color", OneHotEncoder(), [4])])
    pipeline = make_pipeline(parts, GradientBoostingClassifier(n_estimators=10)).fit(table, y)
    types = [("numbers", FloatTensorType([None, 4])), ("color", StringTensorType([None, 1]))]
    labels, maps = exported(pipeline, types, zipmap=True).run([X, colors])
    assert labels.tolist() == pipeline.predict(table).tolist()
    assert [list(m) for m in maps[:2]] == [[0, 1], [0, 1]]
    np.testing.assert_allclose([list(m.values()) for m in maps], pipeline.predict_proba(table), rtol=1e-4, atol=1e-6)


def test_forest_regressor() -> None:
    model = RandomForestRegressor(10).fit(X, X @ [1, 2, -1, 0.5])
    out = exported(model, [("x", FloatTensorType([None, 4]))]).run([X])[0]
    np.testing.assert_allclose(out[:, 0], model.predict(X), rtol=1e-4, atol=1e-5)


def test_text() -> None:
    words = ["the", "cat", "dog", "sat", "ran", "good", "bad", "nice"]
    documents = [" ".join(RNG.choice(words, 6)) for _ in range(50)]
    y = np.array(["good" in d for d in documents])
    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression()).fit(documents, y)
    labels, scores = exported(pipeline, [("x", StringTensorType([None]))]).run([np.array(documents, object)])
    assert labels.astype(bool).tolist() == pipeline.predict(documents).tolist()
    np.testing.assert_allclose(scores, pipeline.predict_proba(documents), rtol=1e-4, atol=1e-6)
