"""Fixtures: one ONNX node on the ref target, on its own or compared with onnxruntime for the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from mgx_onnx.backend import RefBackend

IR_OF_OPSET = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8}


def model_of(
    op_type: str,
    inputs: Sequence[Any],
    opset: int,
    outputs: int,
    domain: str,
    fixed: Sequence[int],
    attributes: dict[str, Any],
) -> onnx.ModelProto:
    """Returns a model of one node; inputs at the indices `fixed` are initializers, None is an absent input."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x))
        for k, (name, x) in enumerate(zip(names, inputs, strict=True))
        if x is not None and k not in fixed
    ]
    literals = [
        onnx.numpy_helper.from_array(np.asarray(inputs[k]), names[k])
        for k in fixed
        if k < len(inputs) and inputs[k] is not None
    ]
    named = [helper.make_empty_tensor_value_info(r) for r in results]
    graph = helper.make_graph([node], "one_node", given, named, literals)
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_OF_OPSET.get(opset, 8))


def feeds_of(inputs: Sequence[Any], fixed: Sequence[int]) -> list[Any]:
    return [np.asarray(x) for k, x in enumerate(inputs) if x is not None and k not in fixed]


@pytest.fixture
def run() -> Callable[..., list[Any]]:
    """``run(op_type, *inputs, opset=, outputs=, domain=, fixed=, **attributes)``: returns results on the ref target."""

    def once(
        op_type: str,
        *inputs: Any,
        opset: int = 18,
        outputs: int = 1,
        domain: str = "",
        fixed: Sequence[int] = (),
        **attributes: Any,
    ) -> list[Any]:
        model = model_of(op_type, inputs, opset, outputs, domain, fixed, attributes)
        return list(RefBackend.prepare(model).run(feeds_of(inputs, fixed)))

    return once


@pytest.fixture
def agree() -> Callable[..., list[Any]]:
    """``agree(op_type, *inputs, ..., rtol=, atol=)``: like `run`; compares values, types and dims with onnxruntime."""
    peer = pytest.importorskip("onnxruntime")

    def check(
        op_type: str,
        *inputs: Any,
        opset: int = 18,
        outputs: int = 1,
        domain: str = "",
        fixed: Sequence[int] = (),
        rtol: float = 1e-4,
        atol: float = 1e-5,
        **attributes: Any,
    ) -> list[Any]:
        model = model_of(op_type, inputs, opset, outputs, domain, fixed, attributes)
        feeds = feeds_of(inputs, fixed)
        settings = peer.SessionOptions()
        settings.log_severity_level = 4
        session = peer.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        wanted = session.run(None, dict(zip([i.name for i in model.graph.input], feeds, strict=True)))
        found = list(RefBackend.prepare(model).run(feeds))
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)
        return found

    return check
