"""Cases generated from schemas detect kernels that misuse attributes, ranks or lengths, and accept a correct kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgx_conformance.cases.case import Case
from mgx_conformance.schema_cases import schema_cases
from mgx_conformance.trial import attempt, selected
from mgx_core import HostKernel, Kernels, Operation, Shape, ShapeError, Target, define_op, dim
from mgx_core.types.dtype import DType, float32


@define_op("acme_echo")
class Echo(Operation):
    """y[t] = x[t] + rate * x[t - lag] along one axis, plus a bias along the last one.

    x: float [.., n, ..], bias: float [m] or absent -> same shape as x.
    """

    axis: int = -1
    lag: int = 1
    rate: float = 0.5
    scale: float | None = None

    def infer(self, x: Shape, bias: Shape | None = None) -> Shape:
        if not x.dtype.is_float or not -x.rank <= self.axis < x.rank or self.lag < 1:
            raise ShapeError(f"a float tensor with axis {self.axis} and a positive lag are required, got {x}")
        if bias is not None and (bias.rank != 1 or not dim.may_equal(bias.dims[0], x.dims[-1])):
            raise ShapeError(f"a bias for the last axis is required, got {bias}")
        return x.as_standard()

    def compute(self, x: Any, bias: Any = None) -> Any:
        return echo(x, bias, self.axis, self.lag, self.rate, self.scale)


def echo(x: Any, bias: Any, axis: int, lag: int, rate: float, scale: float | None = None) -> Any:
    given = np.moveaxis(x.astype(np.float64), axis, 0)
    y = given.copy()
    y[lag:] += rate * given[:-lag]
    y = np.moveaxis(y, 0, axis) * (1.0 if scale is None else scale)
    return np.ascontiguousarray(y if bias is None else y + bias.astype(np.float64)).astype(x.dtype)


def right(op: Echo, x: Any, bias: Any = None) -> Any:
    return echo(x, bias, op.axis, op.lag, op.rate, op.scale)


def tail_is_lost(op: Echo, x: Any, bias: Any = None) -> Any:
    y = right(op, x, bias)
    y[..., y.shape[-1] // 8 * 8 :] = 0 if y.shape[-1] > 8 else y[..., y.shape[-1] // 8 * 8 :]
    return y


def second_block_is_lost(op: Echo, x: Any, bias: Any = None) -> Any:
    y = right(op, x, bias)
    y[..., 1024:] = 0
    return y


def rows_are_lost(op: Echo, x: Any, bias: Any = None) -> Any:
    y = right(op, x, bias)
    y[256:] = 0
    return y


def ranks_above_four_are_wrong(op: Echo, x: Any, bias: Any = None) -> Any:
    return right(op, x, bias) + (x.ndim > 4)


def one_axis_is_wrong(op: Echo, x: Any, bias: Any = None) -> Any:
    return right(op, x, bias) + (x.ndim == 1)


def empty_crashes(op: Echo, x: Any, bias: Any = None) -> Any:
    assert x.size, "division by zero"
    return right(op, x, bias)


FAULTS: dict[str, Callable[..., Any]] = {
    "axis is ignored": lambda op, x, bias=None: echo(x, bias, -1, op.lag, op.rate, op.scale),
    "a middle axis is taken for the first": lambda op, x, bias=None: echo(
        x, bias, 0 if 0 < op.axis < x.ndim - 1 else op.axis, op.lag, op.rate, op.scale
    ),
    "lag is ignored": lambda op, x, bias=None: echo(x, bias, op.axis, 1, op.rate, op.scale),
    "rate is ignored": lambda op, x, bias=None: echo(x, bias, op.axis, op.lag, 0.5, op.scale),
    "a negative rate is not": lambda op, x, bias=None: echo(x, bias, op.axis, op.lag, abs(op.rate), op.scale),
    "scale is ignored": lambda op, x, bias=None: echo(x, bias, op.axis, op.lag, op.rate),
    "a scale of zero is none": lambda op, x, bias=None: echo(x, bias, op.axis, op.lag, op.rate, op.scale or None),
    "bias is ignored": lambda op, x, bias=None: right(op, x),
    "the tail of a vector is lost": tail_is_lost,
    "what follows a block is lost": second_block_is_lost,
    "rows of later blocks are lost": rows_are_lost,
    "high ranks are wrong": ranks_above_four_are_wrong,
    "rank one is wrong": one_axis_is_wrong,
    "no element is a crash": empty_crashes,
}


def target(kernel: Callable[..., Any]) -> Target:
    class Acme(Target):
        name = "acme"

        def kernels(self, context: Any) -> Kernels:
            plans = Kernels("acme")

            @plans.plan(Echo)
            def by_acme(op: Echo, inputs: Any, context: Any) -> HostKernel:
                return HostKernel("echo of acme", lambda *xs: kernel(op, *xs))

            return plans

    return Acme()


@pytest.fixture(scope="module")
def cases() -> list[tuple[Case, str]]:
    return list(selected(schema_cases(Echo)))


def failures(cases: list[tuple[Case, str]], kernel: Callable[..., Any], stop: bool) -> list[str]:
    found, tried = [], target(kernel)
    for case, layout in cases:
        try:
            attempt(case, layout, tried)
        except Exception as error:
            found.append(f"{case.id}/{layout}: {error}")
            if stop:
                break
    return found


def test_a_right_kernel_passes(cases):
    assert failures(cases, right, stop=False) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, cases):
    plain = [(case, layout) for case, layout in cases if layout == "contiguous"]
    assert failures(plain, FAULTS[fault], stop=True), fault


def test_cases_name_what_they_vary(cases):
    labels = {case.label for case, _ in cases}
    assert {"", "fewest", "2x3x4", "257x4", "3x1025", "axis=0-3x4", "axis=1-2x3x2x3x4", "rate=2.0-3x4"} <= labels
    assert len({case.id for case, _ in cases}) == len({id(case) for case, _ in cases})


@define_op("acme_integers")
class Integers(Operation):
    """A matrix of integers and one of booleans, of equal extents."""

    kind: DType = float32
    parts: tuple[int, ...] = (1,)

    def infer(self, x: Shape) -> Shape:
        if not x.dtype.is_integer or x.rank != 2 or any(p < 1 for p in self.parts):
            raise ShapeError(f"a matrix of integers and positive parts are required, got {x}")
        return Shape(self.kind, x.dims)

    def compute(self, x: Any) -> Any:
        return (x * sum(self.parts)).astype(self.kind.numpy)


def test_types_and_tuples_are_varied():
    found = list(schema_cases(Integers))
    assert {case.op.kind.name for case in found} == {"float32", "float16", "float64", "int32"}
    assert {(1,), (2,), (3,), (1, 2), ()} <= {case.op.parts for case in found}
    assert {"int8", "uint64"} <= {case.dtype for case in found}
    assert {case.operands[0].dims for case in found} >= {(3, 4), (0, 4), (3, 257)}
