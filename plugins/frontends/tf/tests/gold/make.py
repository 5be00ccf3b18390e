"""Networks of keras.applications with random weights: SavedModels, frozen graphs, .tflite files, and TensorFlow's results.

Runs in a separate environment with TensorFlow (`make gold-tf`), without mgx:

    python make.py FOLDER [NAME ...]

Each network gives FOLDER/NAME (SavedModel), FOLDER/NAME.pb (frozen), FOLDER/NAME.tflite, FOLDER/NAME_int8.tflite and
FOLDER/NAME.npz (`in`, `out`, and the interpreter's results `lite` and `int8` for the .tflite files).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

SIZE = 128  # of images; the operators equal those for larger images, and generation is faster
# networks used for benchmarks
SIZES = dict.fromkeys(["MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "ConvNeXtTiny"], 224)
NETWORKS = [
    "ConvNeXtTiny",
    "ConvNeXtSmall",
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtXLarge",
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2S",
    "EfficientNetV2M",
    "EfficientNetV2L",
    "InceptionResNetV2",
    "InceptionV3",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Large",
    "MobileNetV3Small",
    "NASNetLarge",
    "NASNetMobile",
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "ResNet50V2",
    "ResNet101V2",
    "ResNet152V2",
    "VGG16",
    "VGG19",
    "Xception",
]


# So deep that statistics which do not fit the values amplify rounding errors: TensorFlow's own .tflite of
# EfficientNetV2M deviated from its SavedModel by 0.33 of the range.
FITTED = ["EfficientNetV2M", "EfficientNetV2L"]


def fit(model: Any, size: int) -> None:
    """Sets the statistics of all normalizations to those of random images."""
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(np.random.default_rng(2).uniform(0, 255, (16, size, size, 3)).astype(np.float32), training=True)


def build(name: str) -> tuple[Any, int]:
    """Returns a network with random weights and logits, and its image size; statistics of normalizations are made uneven.

    With random weights, probabilities are nearly equal: in 8 bits they would be one number, and agree for any input.
    """
    tf.keras.utils.set_random_seed(0)
    size = SIZES.get(name, SIZE)
    made = getattr(tf.keras.applications, name)
    model = made(weights=None, input_shape=(size, size, 3), classifier_activation=None)
    random = np.random.default_rng(0)
    for variable in model.variables:
        word = variable.path
        if "moving_mean" in word:
            variable.assign(random.normal(0, 0.05, variable.shape))
        elif "moving_variance" in word:
            variable.assign(random.uniform(0.8, 1.2, variable.shape))
    if name in FITTED:
        fit(model, size)
    return model, size


def frozen(model: Any, path: Path) -> None:
    """Writes a frozen graph that keeps functions."""
    call = tf.function(lambda x: model(x, training=False))
    concrete = call.get_concrete_function(tf.TensorSpec([None, *model.input_shape[1:]], tf.float32, name="image"))
    made = convert_to_constants.convert_variables_to_constants_v2(concrete)
    path.write_bytes(made.graph.as_graph_def().SerializeToString())


def lite(folder: Path, path: Path, samples: np.ndarray | None) -> None:
    """Writes a .tflite file, in int8 with float inputs and outputs if samples are given."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    if samples is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([s[None]] for s in samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    path.write_bytes(converter.convert())


def interpreted(path: Path, x: np.ndarray) -> np.ndarray:
    """Returns the interpreter's results, image by image."""
    interpreter = tf.lite.Interpreter(str(path), num_threads=2)
    runner = interpreter.get_signature_runner()
    (given,), (made,) = runner.get_input_details(), runner.get_output_details()
    return np.concatenate([runner(**{given: one[None]})[made] for one in x])


def make(name: str, folder: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    spent: dict[str, float] = {}

    def done(part: str) -> None:
        spent[part] = round(time.perf_counter() - begin - sum(spent.values()), 1)

    model, size = build(name)
    done("build")
    x = np.random.default_rng(1).uniform(0, 255, (2, size, size, 3)).astype(np.float32)
    found = {"in": x, "out": np.asarray(model(x, training=False))}
    model.export(str(folder / name), verbose=False)
    done("export")
    frozen(model, folder / f"{name}.pb")
    done("freeze")
    notes: dict[str, Any] = {"seconds": spent}
    for key, samples in (("lite", None), ("int8", x)):
        path = folder / (f"{name}.tflite" if key == "lite" else f"{name}_int8.tflite")
        try:
            lite(folder / name, path, samples)
            found[key] = interpreted(path, x)
        except Exception as error:  # the converter does not support everything
            path.unlink(missing_ok=True)
            notes[key] = f"{type(error).__name__}: {str(error)[:200]}"
        done(key)
    np.savez(folder / f"{name}.npz", **found)
    return notes


def main() -> None:
    if sys.argv[1:] == ["--names"]:
        print(*NETWORKS)
        return
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NETWORKS:
        if not (folder / f"{name}.npz").exists():
            print(name, json.dumps(make(name, folder)), flush=True)
            tf.keras.backend.clear_session()


if __name__ == "__main__":
    main()
