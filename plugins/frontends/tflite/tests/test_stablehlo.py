"""StableHLO operators, compared with their definitions in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.types.memory_limit import limited
from mgx_tflite.model import Model, Operator, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model

F = np.float32
X = np.random.default_rng(0).standard_normal((3, 4)).astype(F)


def options(**values: Any) -> Any:
    """Returns an object with a method for each attribute, like the schema's tables."""
    members: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            members[f"{name}Length"] = lambda self, v=value: len(v)
            members[f"{name}AsNumpy"] = lambda self, v=value: np.array(v)
        else:
            members[name] = lambda self, v=value: v
    return type("Options", (), members)()


def graph(
    name: str, operators: list[Operator], given: Sequence[np.ndarray], constants: Any, out: np.ndarray
) -> Subgraph:
    arrays = [(f"x{k}", x, None) for k, x in enumerate(given)] + [(f"c{k}", c, c) for k, c in enumerate(constants)]
    tensors = [Tensor(n, dt.of(x.dtype), list(x.shape), value, None) for n, x, value in arrays]
    tensors.append(Tensor("y", dt.of(out.dtype), list(out.shape), None, None))
    return Subgraph(name, tensors, operators, list(range(len(given))), [len(tensors) - 1])


def checked(
    op: str, given: Sequence[np.ndarray], wanted: Any, constants: Any = (), more: Any = (), **values: Any
) -> None:
    """Runs one operator and compares the result."""
    wanted = np.asarray(wanted)
    count = len(given) + len(constants)
    operator = Operator(op, list(range(count)), [count], [], options(**values), b"", 0)
    main = graph("main", [operator], given, constants, wanted)
    program = parse_model(Model([main, *more]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    found = np.asarray(program.run({f"x{k}": x for k, x in enumerate(given)})[0])
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "function"),
    [("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))), ("COSINE", np.cos), ("NEGATE", np.negative), ("CBRT", np.cbrt),
     ("EXPONENTIAL", np.exp), ("FLOOR", np.floor), ("TANH", np.tanh), ("ABS", np.abs)],
)  # fmt: skip
def test_functions(name: str, function: Any):
    checked(f"STABLEHLO_{name}", [X], function(X))


@pytest.mark.parametrize(
    ("name", "function"),
    [("ADD", np.add), ("SUBTRACT", np.subtract), ("DIVIDE", np.divide), ("MULTIPLY", np.multiply), ("MAXIMUM", np.maximum),
     ("MINIMUM", np.minimum), ("REMAINDER", np.fmod)],
)  # fmt: skip
def test_functions_of_two(name: str, function: Any):
    checked(f"STABLEHLO_{name}", [X, X[::-1].copy()], function(X, X[::-1]))


def test_truth_values_and_bits():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    checked("STABLEHLO_AND", [a, b], a & b)
    checked("STABLEHLO_OR", [np.int32([5, 2]), np.int32([3, 8])], np.int32([7, 10]))
    checked("STABLEHLO_SELECT", [a, F([1, 2, 3]), F([4, 5, 6])], F([1, 2, 6]))
    for k, compared in enumerate((np.equal, np.not_equal, np.greater_equal, np.greater, np.less_equal, np.less)):
        checked("STABLEHLO_COMPARE", [X, X[::-1].copy()], compared(X, X[::-1]), ComparisonDirection=k)


def test_forms():
    checked("STABLEHLO_RESHAPE", [X], X.reshape(2, 6))
    checked("STABLEHLO_TRANSPOSE", [X], X.T, Permutation=[1, 0])
    checked("STABLEHLO_CONCATENATE", [X, X], np.concatenate([X, X], 1), Dimension=1)
    checked("STABLEHLO_BROADCAST_IN_DIM", [X[0]], np.tile(X[0][None, :, None], (2, 1, 3)), BroadcastDimensions=[1])
    checked("STABLEHLO_SLICE", [X], X[1:3, 0:4:2], StartIndices=[1, 0], LimitIndices=[3, 4], Strides=[1, 2])
    checked("STABLEHLO_IOTA", [], np.int32([[0, 0], [1, 1], [2, 2]]), IotaDimension=0)
    checked("STABLEHLO_CONVERT", [X], X.astype(np.int32))


def test_bounds():
    low, high = np.array(-0.5, F), np.array(0.5, F)
    checked("STABLEHLO_CLAMP", [low, X, high], np.clip(X, -0.5, 0.5))


def test_parts_at_run_time_are_moved_inside():
    k, zero = np.array(9, np.int32), np.array(0, np.int32)
    checked("STABLEHLO_DYNAMIC_SLICE", [X, k, zero], X[1:3, 0:3], SliceSizes=[2, 3])
    wanted = X.copy()
    wanted[2:, 0:2] = 7
    checked("STABLEHLO_DYNAMIC_UPDATE_SLICE", [X, np.full((1, 2), 7, F), k, zero], wanted)


def test_borders_between_and_around():
    pads = {"EdgePaddingLow": [1, 0], "EdgePaddingHigh": [0, -1], "InteriorPadding": [1, 0]}
    wanted = np.full((6, 3), 9, F)
    wanted[1::2] = X[:, :3]
    checked("STABLEHLO_PAD", [X], wanted, [np.array(9, F)], **pads)


def test_products():
    x, y = (np.random.default_rng(k).standard_normal(d).astype(F) for k, d in enumerate(((2, 3, 4), (2, 5, 4))))
    axes = {
        "LhsBatchingDimensions": [0],
        "RhsBatchingDimensions": [0],
        "LhsContractingDimensions": [2],
        "RhsContractingDimensions": [2],
    }
    checked("STABLEHLO_DOT_GENERAL", [x, y], np.einsum("bik,bjk->bij", x, y), **axes)


def test_reductions_by_their_body():
    one = np.zeros((), F)
    body = graph("body", [Operator("STABLEHLO_MAXIMUM", [0, 1], [2], [], None, b"", 0)], [one, one], (), one)
    start = np.array(0.25, F)
    checked("STABLEHLO_REDUCE", [X], np.maximum(X.max(1), 0.25), [start], [body], Dimensions=[1], BodySubgraphIndex=1)


@pytest.mark.parametrize("inputs", [[0, 0], [1, 1], [0, 2]])
def test_a_body_that_does_not_join_its_inputs_is_refused(inputs: list[int]):
    one = np.zeros((), F)
    body = graph("body", [Operator("STABLEHLO_ADD", inputs, [3], [], None, b"", 0)], [one, one], [one], one)
    with pytest.raises(mgx.UnsupportedError, match="single operator on both inputs"):
        checked("STABLEHLO_REDUCE", [X], X.sum(1), [one], [body], Dimensions=[1], BodySubgraphIndex=1)


def test_reductions_of_integers_by_their_bits_are_refused():
    x, one = np.int32([[6, 3], [5, 7]]), np.zeros((), np.int32)
    body = graph("body", [Operator("STABLEHLO_AND", [0, 1], [2], [], None, b"", 0)], [one, one], (), one)
    with pytest.raises(mgx.UnsupportedError, match="booleans only"):
        checked("STABLEHLO_REDUCE", [x], np.int32([2, 5]), [one], [body], Dimensions=[1], BodySubgraphIndex=1)


def test_parts_index_no_axis_that_they_replace_as_a_whole():
    """An update of whole rows has one index per row, not per element; excessive extents are rejected."""
    x, update = np.zeros((4, 300), F), np.ones((2, 300), F)
    wanted = x.copy()
    wanted[2:] = 1
    zero = np.array(0, np.int32)
    checked("STABLEHLO_DYNAMIC_UPDATE_SLICE", [x, update, np.array(3, np.int32), zero], wanted)
    checked("STABLEHLO_DYNAMIC_UPDATE_SLICE", [x, x + 2, zero, zero], x + 2)
    with limited(1 << 12):
        checked("STABLEHLO_DYNAMIC_UPDATE_SLICE", [x, update, np.array(3, np.int32), zero], wanted)
        with pytest.raises(mgx.MgxError, match="limit_bytes"):
            checked("STABLEHLO_DYNAMIC_UPDATE_SLICE", [x, update[:, :299], zero, zero], wanted)
        with pytest.raises(mgx.MgxError, match="limit_bytes"):
            checked("STABLEHLO_IOTA", [], np.zeros((1 << 10,), np.int32), IotaDimension=0)


def test_composites_equal_their_decomposition():
    body = graph("body", [Operator("STABLEHLO_ADD", [0, 0], [1], [], None, b"", 0)], [X], (), X)
    checked("STABLEHLO_COMPOSITE", [X], 2 * X, (), [body], DecompositionSubgraphIndex=1)


def test_windows():
    ones = np.ones(2, np.int64)
    given = [np.array(0, F), np.int64([2, 2]), np.int64([1, 2]), ones]
    wanted = [[X[i : i + 2, j : j + 2].sum() for j in (0, 2)] for i in (0, 1)]
    checked("REDUCE_WINDOW", [X], np.asarray(wanted, F), given, ReduceFunction=1)


def test_mismatches_are_rejected():
    one = X[0, 0]
    body = graph("body", [Operator("STABLEHLO_POWER", [0, 1], [2], [], None, b"", 0)], [one, one], (), one)
    with pytest.raises(mgx.UnsupportedError, match="a reduction by"):
        checked("STABLEHLO_REDUCE", [X], X.max(1), [np.array(0, F)], [body], Dimensions=[1], BodySubgraphIndex=1)
    with pytest.raises(mgx.ParseError, match="ascending axes"):
        checked("STABLEHLO_BROADCAST_IN_DIM", [X], np.zeros((4, 3, 4), F), BroadcastDimensions=[2, 1])
