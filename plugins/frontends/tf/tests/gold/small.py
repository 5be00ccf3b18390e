"""Small models of many kinds, as SavedModels, frozen graphs and .tflite files, with TensorFlow's results.

Runs in a separate environment with TensorFlow, without mgx:

    python small.py FOLDER [NAME ...]

Each model gives FOLDER/NAME (SavedModel), FOLDER/NAME.tflite if the converter needs builtin operators only (with
FOLDER/NAME.dynamic.tflite and FOLDER/NAME.int8.tflite), otherwise FOLDER/NAME.flex.tflite, and FOLDER/NAME.npz with
`CASE|in|NAME`,
`CASE|out|NAME`, and `CASE|FORM|NAME` for each form; graphs of TensorFlow 1 are FOLDER/NAME.pb.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import changes  # noqa: F401  each fills the registry
import each_layer  # noqa: F401
import functions  # noqa: F401
import index_functions  # noqa: F401
import layers  # noqa: F401
import more_layers  # noqa: F401
import number_functions  # noqa: F401
import numpy as np
import programs  # noqa: F401
import tensorflow as tf
from registry import MODELS, Call, f


def v1_control():
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=f(3, 3))
        _, y = v1.while_loop(
            lambda i, v: tf.logical_and(i < 5, tf.reduce_sum(v) < 100),
            lambda i, v: (i + 1, tf.nn.relu(tf.matmul(v, w)) + 0.1),
            [0, x],
        )
        z = v1.cond(
            tf.reduce_sum(y) > 3,
            lambda: y * 2,
            lambda: v1.while_loop(lambda v: tf.reduce_sum(v) < 9, lambda v: v + 1, [y])[0],
        )
        tf.identity(z, name="out")
        session.run(v1.global_variables_initializer())
        cases = [[f(2, 3)], [f(4, 3) * 0.1]]
        wanted = [session.run("out:0", {x: c[0]}) for c in cases]
        frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["out"])
    return frozen, cases, wanted


def lite(folder: Path, path: Path, form: str, samples: list[dict[str, np.ndarray]]) -> None:
    """Writes a .tflite file: `flex` with TensorFlow's operators where TFLite lacks them, `dynamic` with int8 weights, `int8`."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=["serving_default"])
    if form == "flex":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    if form in ("dynamic", "int8"):
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "int8":
        converter.representative_dataset = lambda: iter(samples)
    path.write_bytes(converter.convert())


def words(array: np.ndarray) -> np.ndarray:
    return array.astype("S") if array.dtype == object else array


def interpreted(path: Path, form: str, cases: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the interpreter's results for each case."""
    kernels = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # with exact int8 products
    runner = tf.lite.Interpreter(str(path), experimental_op_resolver_type=kernels).get_signature_runner()
    made = {}
    for k, case in enumerate(cases):
        for key, value in runner(**case).items():
            made[f"{k}|{form}|{key}"] = words(value)
    return made


def made(name: str, folder: Path) -> str:
    """Writes one model in all forms; returns the reasons why some were not written."""
    tf.keras.utils.set_random_seed(0)
    built, given = MODELS[name]()
    where = folder / name
    if isinstance(built, Call):
        tf.saved_model.save(built, str(where), signatures=built.call)
    else:
        built.export(str(where), verbose=False)
    signature = tf.saved_model.load(str(where)).signatures["serving_default"]
    keys = built.names if isinstance(built, Call) else [v.name for v in built.inputs]
    cases = [dict(zip(keys, case, strict=True)) for case in given]
    found, notes = {}, []
    for k, case in enumerate(cases):
        found |= {f"{k}|in|{key}": words(value) for key, value in case.items()}
        given = {k: tf.constant(v) for k, v in case.items()}
        results = {key: words(np.asarray(value.numpy())) for key, value in signature(**given).items()}
        if "random" in name and any((results[key] != v.numpy()).any() for key, v in signature(**given).items()):
            notes.append("random")  # random in each run: nothing to compare with
            continue
        found |= {f"{k}|out|{key}": value for key, value in results.items()}
    floats = all(v.dtype == np.float32 for v in cases[0].values())
    for form in ("lite", "flex", "dynamic", "int8"):
        if (form == "flex") != any(n.startswith("lite:") for n in notes) or (form == "int8" and not floats):
            continue  # TensorFlow's operators are enabled only if TFLite's do not suffice, and then weights are not quantized
        path = folder / (f"{name}.tflite" if form == "lite" else f"{name}.{form}.tflite")
        try:
            lite(where, path, form, cases)
            if form != "flex":  # whose operators the interpreter lacks: its results are those of the SavedModel
                found |= interpreted(path, form, cases)
        except Exception as error:
            path.unlink(missing_ok=True)
            notes.append(f"{form}: {str(error).splitlines()[0][:100]}")
    np.savez(folder / f"{name}.npz", **found)
    return "; ".join(notes)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or [*MODELS, "v1_control"]:
        if (folder / f"{name}.npz").exists():
            continue
        try:
            if name == "v1_control":
                frozen, cases, wanted = v1_control()
                (folder / f"{name}.pb").write_bytes(frozen.SerializeToString())
                arrays = {f"{k}|in|x": c[0] for k, c in enumerate(cases)} | {
                    f"{k}|out|out": w for k, w in enumerate(wanted)
                }
                np.savez(folder / f"{name}.npz", **arrays)
                continue
            print(name, made(name, folder), flush=True)
        except Exception as error:
            print(name, "NOT MADE", type(error).__name__, str(error)[:500], flush=True)


if __name__ == "__main__":
    main()
