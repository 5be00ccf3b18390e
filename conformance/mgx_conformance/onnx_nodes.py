"""The ONNX node tests, run on any target with their own tolerances."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from mgx_core import dtype
from mgx_core.ops.scalar import widen

from .compare import differs
from .noise import expected

NARROW: Final = frozenset({dtype.float16.numpy, dtype.bfloat16.numpy})

__all__ = ["judge", "node_tests", "out_of_reach", "values_of"]


@cache
def node_tests() -> dict[str, Any]:
    """Returns the ONNX node tests by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {t.name.removeprefix("test_"): t for t in load_model_tests(kind="node")}


@cache
def out_of_reach() -> dict[str, str]:
    """Returns the tests that no engine can pass, with reasons."""
    text = (Path(__file__).parent / "onnx_out_of_reach.toml").read_text(encoding="utf-8")
    return {entry["test"]: entry["reason"] for entry in tomllib.loads(text)["out_of_reach"]}


def values_of(data: Iterable[Any]) -> list[Any]:
    """Returns the inputs or results of a node test, with arrays in place of serialized tensors."""
    from onnx import TensorProto, numpy_helper

    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in data]


def judge(test: Any, target: Any) -> None:
    """Runs one node test.

    Results of 16-bit floats that miss the test's tolerance, which is about one of their rounding units, may differ as much as
    the model's parts do by rounding (`noise.expected`).
    Errors: AssertionError for wrong results; any error that the frontend or the target raises.
    """
    from onnx.backend.test.runner import Runner

    from mgx_onnx.backend import plain
    from mgx_onnx.frontend import parse_model
    from mgx_onnx.options import OnnxOptions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = parse_model(test.model, OnnxOptions())
        definition = program.clone()
        program.compile(target)
        names = program.get_parameter_names()
        for inputs, outputs in test.data_sets:
            given, wanted = values_of(inputs), values_of(outputs)
            feed = dict(zip(names, given, strict=len(given) < len(names)))
            got = tuple(plain(a) for a in program.run(feed))
            try:
                Runner.assert_similar_outputs(ref_outputs=wanted, outputs=got, rtol=test.rtol, atol=test.atol)
            except AssertionError:
                bound = [o.dtype if isinstance(o, np.ndarray) else None for o in wanted]
                if not NARROW.intersection(bound):
                    raise
                _judge_narrow(definition, feed, got, wanted, test)


def _judge_narrow(
    definition: Any, feed: Mapping[str, Any], got: Sequence[Any], wanted: Sequence[Any], test: Any
) -> None:
    """Errors: AssertionError if a result is neither within the test's tolerance nor within that of its rounded parts."""
    module = definition.get_main_module()
    derived = expected(module, [feed[n] for n in module.parameters])
    for n, (a, b, allowed) in enumerate(zip(got, wanted, derived.tolerances, strict=True)):
        standard = test.atol + test.rtol * np.abs(widen(b)) if isinstance(b, np.ndarray) and b.dtype in NARROW else None
        if standard is None or allowed is None:
            np.testing.assert_allclose(a, b, rtol=test.rtol, atol=test.atol, err_msg=f"result {n}")
        else:
            why = differs(a, b, np.maximum(standard, allowed))
            assert not why, f"result {n}: {why}"
