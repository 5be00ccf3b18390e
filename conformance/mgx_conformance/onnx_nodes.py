"""The node tests of the ONNX standard, run on any target with the standard's own tolerances."""

from __future__ import annotations

import tomllib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["judge", "node_tests", "out_of_reach"]


@cache
def node_tests() -> dict[str, Any]:
    """The standard's node tests by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {t.name.removeprefix("test_"): t for t in load_model_tests(kind="node")}


@cache
def out_of_reach() -> dict[str, str]:
    """Tests that no engine can pass, and why."""
    text = (Path(__file__).parent / "onnx_out_of_reach.toml").read_text(encoding="utf-8")
    return {entry["test"]: entry["reason"] for entry in tomllib.loads(text)["out_of_reach"]}


def judge(test: Any, target: Any) -> None:
    """Run one node test.  Errors: AssertionError for wrong results; whatever the frontend or the target raises."""
    from onnx.backend.test.runner import Runner, _normalize_tensor

    from mgx_onnx.backend import plain
    from mgx_onnx.frontend import parse_model
    from mgx_onnx.options import OnnxOptions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = parse_model(test.model, OnnxOptions())
        program.compile(target)
        names = program.get_parameter_names()
        for inputs, outputs in test.data_sets:
            given = [_normalize_tensor(i) for i in inputs]
            wanted = [_normalize_tensor(o) for o in outputs]
            feed = dict(zip(names, given, strict=len(given) < len(names)))
            got = tuple(plain(a) for a in program.run(feed))
            Runner.assert_similar_outputs(ref_outputs=wanted, outputs=got, rtol=test.rtol, atol=test.atol)
