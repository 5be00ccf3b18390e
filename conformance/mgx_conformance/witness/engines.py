"""Runs a model with mgx's reference implementations, onnx.reference and onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..noise import Expected, expected

__all__ = ["WITNESSES", "Declined", "by_definition", "of_one_op", "version"]


class Declined(Exception):
    """A witness does not support the model, or fails on it."""


def by_definition(model: Any, inputs: Sequence[Any]) -> tuple[Expected, set[str]]:
    """Returns the unoptimized results of the ops' reference implementations, and the names of these ops."""
    from mgx_core import Argument
    from mgx_core.types.argument import as_value
    from mgx_onnx.backend import plain
    from mgx_onnx.frontend import parse_model
    from mgx_onnx.options import OnnxOptions

    module = parse_model(model, OnnxOptions()).get_main_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = expected(module, [as_value(i) for i in inputs], samples=2)
    found.results = [plain(Argument.from_value(r)) for r in found.results]
    return found, ops_of(module)


def of_one_op(op: Any, inputs: Sequence[Any]) -> Expected:
    """Returns an op's results, except those that the witnesses' graphs do not name."""
    with np.errstate(all="ignore"):
        result = op.evaluate([np.asarray(i) if isinstance(i, np.generic) else i for i in inputs])
    return Expected([result[0] if isinstance(result, tuple) else result], [None])


def ops_of(module: Any) -> set[str]:
    """Returns the names of all ops of a module and its nested modules."""
    names = {i.name for i in module}
    return names.union(*(ops_of(m) for i in module for m in i.modules))


def onnx_reference(model: Any, inputs: Sequence[Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            session = ReferenceEvaluator(model)
            return list(session.run(None, feed(model, inputs)))
    except Exception as error:
        raise Declined(f"{type(error).__name__}: {error}") from None


def onnxruntime(model: Any, inputs: Sequence[Any]) -> list[Any]:
    import onnxruntime

    values = feed(model, inputs)
    if any(isinstance(v, np.ndarray) and v.dtype.isbuiltin != 1 and v.dtype != object for v in values.values()):
        raise Declined("its Python interface does not take this element type")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if model.ir_version > 13:
        older = type(model)()
        older.CopyFrom(model)
        older.ir_version = 13
        model = older
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [typed(r, o) for r, o in zip(session.run(None, values), model.graph.output, strict=True)]
    except Exception as error:
        raise Declined(f"{type(error).__name__}: {error}") from None


def feed(model: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """Returns inputs by name, in graph order."""
    constant = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in constant]
    if len(inputs) > len(names):
        names = [i.name for i in model.graph.input]
    return {n: np.asarray(v) if isinstance(v, np.generic) else v for n, v in zip(names, inputs, strict=False)}


def typed(result: Any, output: Any) -> Any:
    """Returns a result in the type that the model declares: onnxruntime returns some 8-bit floats as their bytes."""
    from onnx.helper import tensor_dtype_to_np_dtype

    declared = output.type.tensor_type.elem_type
    if not isinstance(result, np.ndarray) or result.dtype != np.uint8 or not declared:
        return result
    wanted = tensor_dtype_to_np_dtype(declared)
    return result.view(wanted) if wanted.itemsize == 1 and wanted.kind not in "iub" else result


WITNESSES = {"onnx.reference": onnx_reference, "onnxruntime": onnxruntime}


def version(witness: str) -> str:
    """Returns major and minor version of a witness; empty if it is not installed."""
    import importlib

    try:
        module = importlib.import_module(witness.partition(".")[0])
    except ImportError:
        return ""
    return ".".join(str(module.__version__).split(".")[:2])
