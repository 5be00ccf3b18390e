"""Cases of ops that sum, compare or normalize along axes."""

from __future__ import annotations

from collections.abc import Iterable

from mgx_core import dtype
from mgx_core.types.dtype import DType

from ..known import OPS
from .case import FLOATS, INTS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("reduction")
make = OPS.make


def values(name: str, kind: DType, *dims: int) -> object:
    if name == "reduce_prod":
        return data(kind, *dims, low=1 if kind.is_integer else 0.7, high=2 if kind.is_integer else 1.3)
    return data(kind, *dims, low=-4, high=4)


@family.cases("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all")
def reduce(name: str) -> Iterable[Case]:
    logical = name in ("reduce_any", "reduce_all")
    kinds = (dtype.bool_,) if logical else (*FLOATS, *INTS[:6]) if name != "reduce_mean" else (*FLOATS, dtype.int32)
    if name in ("reduce_max", "reduce_min"):
        kinds = (*kinds, dtype.bool_)
    for n, kind in enumerate(kinds):
        yield Case(make(name, axes=(1,)), (values(name, kind, 3, 5, 7),), "middle", LAYOUTS if n == 0 else LAYOUTS[:1])
        yield Case(make(name, axes=(2,)), (values(name, kind, 2, 3, 33),), "last", LAYOUTS if n < 2 else LAYOUTS[:1])
        if n > 1:
            continue
        yield Case(make(name, axes=(0,)), (values(name, kind, 9, 4),), "first", LAYOUTS[:3])
        yield Case(make(name, axes=(0, 1, 2)), (values(name, kind, 3, 5, 7),), "all")
        yield Case(make(name), (values(name, kind, 3, 5),), "default")
        yield Case(make(name, axes=(0, 2)), (values(name, kind, 4, 3, 5),), "outer", LAYOUTS[:4])
        yield Case(make(name, axes=(-1,)), (values(name, kind, 5, 1031),), "long")
        yield Case(make(name, axes=(1,)), (values(name, kind, 4, 1),), "one")
        yield Case(make(name, axes=(1,)), (values(name, kind, 0, 4),), "empty")
        if name in ("reduce_sum", "reduce_prod", "reduce_any", "reduce_all"):
            yield Case(make(name, axes=(0,)), (values(name, kind, 0, 4),), "nothing")
        yield Case(make(name), (values(name, kind, 3, 5), given([1])), "axes-while-running")
        yield Case(make(name, noop_with_empty_axes=True), (values(name, kind, 3, 5),), "noop")
    if not logical:
        yield Case(make(name, axes=(1,)), (values(name, dtype.float32, 3, 70001),), "large")


@family.cases("reduce_slices")
def reduce_slices(name: str) -> Iterable[Case]:
    starts, ends = given([0, 2, 2, -3, 0, 7]), given([2, 2, 6, -1, 40, 3])
    for reduction in ("sum", "mean", "max", "min"):
        op = make(name, reduction=reduction)
        for n, kind in enumerate((*FLOATS, *(() if reduction == "mean" else INTS[:4]))):
            layouts = LAYOUTS if n == 0 else LAYOUTS[:1]
            yield Case(op, (data(kind, 9, 70, low=-9, high=9), starts, ends), reduction, layouts)
        full = given([0, 3]), given([9, 8])
        yield Case(op, (data(dtype.float32, 9, 2, 3, low=-9, high=9), *full), f"{reduction}-three-axes")
    yield Case(make(name), (data(dtype.float32, 3000, 5), given([0, 10]), given([3000, 2990])), "long")
    yield Case(make(name), (data(dtype.float32, 7), given([1, 3]), given([4, 3])), "vector")


@family.cases("argmax", "argmin")
def arg(name: str) -> Iterable[Case]:
    for n, kind in enumerate((*FLOATS, *INTS)):
        yield Case(
            make(name, axis=1), (data(kind, 3, 5, 4, low=-9, high=9),), "middle", LAYOUTS if n == 0 else LAYOUTS[:1]
        )
        if n < 2:
            yield Case(make(name, axis=-1), (data(kind, 4, 301, low=-9, high=9),), "last", LAYOUTS[:3])
    ties = given([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]], dtype.float32)
    yield Case(make(name, axis=1), (ties,), "ties")
    yield Case(make(name, axis=1, select_last_index=True), (ties,), "ties-last")


@family.cases("softmax", "logsoftmax", "hardmax")
def softmax(name: str) -> Iterable[Case]:
    for n, kind in enumerate(FLOATS):
        yield Case(
            make(name, axis=-1), (data(kind, 2, 3, 9, low=-4, high=4),), "last", LAYOUTS if n < 2 else LAYOUTS[:1]
        )
        yield Case(make(name, axis=1), (data(kind, 2, 5, 3, low=-4, high=4),), "middle", LAYOUTS[:3])
        yield Case(make(name, axis=0), (data(kind, 7, 4, low=-4, high=4),), "first")
        if n == 0:
            yield Case(make(name, axis=-1), (data(kind, 5, 1031, low=-4, high=4),), "long")
            yield Case(make(name, axis=-1), (data(kind, 5, 1, low=-4, high=4),), "one")
            yield Case(make(name, axis=-1), (data(kind, 0, 4),), "empty")
            yield Case(make(name, axis=-1), (given([[1e4, -1e4, 0.0], [88.0, 89.0, 90.0]], kind),), "overflow")


@family.cases("layernorm", "rmsnorm")
def layernorm(name: str) -> Iterable[Case]:
    for n, kind in enumerate(FLOATS):
        x, scale, bias = data(kind, 2, 3, 16, low=-2, high=2), data(kind, 16, low=0.5, high=1.5), data(kind, 16)
        affine = (scale, bias) if name == "layernorm" else (scale,)
        yield Case(make(name), (x, *affine), "affine", LAYOUTS if n == 0 else LAYOUTS[:1])
        yield Case(make(name), (x,), "plain", LAYOUTS[:3])
        if n < 2:
            yield Case(make(name, axis=1), (data(kind, 3, 5, 7, low=-2, high=2),), "axis1")
            yield Case(make(name, epsilon=0.1), (data(kind, 3, 13, low=-2, high=2),), "epsilon")
            yield Case(make(name), (data(kind, 3, 769, low=-2, high=2),), "long")


@family.cases("groupnorm", "instancenorm")
def groupnorm(name: str) -> Iterable[Case]:
    attributes = {"num_groups": 2} if name == "groupnorm" else {}
    for n, kind in enumerate(FLOATS):
        x = data(kind, 2, 4, 5, 3, low=-2, high=2)
        affine = (data(kind, 4, low=0.5, high=1.5), data(kind, 4))
        yield Case(make(name, **attributes), (x, *affine), "affine", LAYOUTS if n == 0 else LAYOUTS[:1])
        yield Case(make(name, **attributes), (x,), "plain")
        if n == 0:
            yield Case(make(name, **attributes), (data(kind, 1, 4, 9),), "rank3")


@family.cases("lrn")
def lrn(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        yield Case(make(name, size=3), (data(kind, 2, 5, 3, 3),), "size3", LAYOUTS)
        yield Case(make(name, size=4, alpha=0.1, beta=0.5, bias=2.0), (data(kind, 1, 7, 2, 2),), "even")


@family.cases("prefix_scan_sum", "prefix_scan_prod")
def prefix(name: str) -> Iterable[Case]:
    low, high = (-2, 2) if name == "prefix_scan_sum" else (1, 1.5)
    for n, kind in enumerate((*FLOATS, dtype.int32, dtype.int64)):
        x = data(kind, 3, 7, low=low, high=high)
        yield Case(make(name, axis=1), (x,), "last", LAYOUTS if n == 0 else LAYOUTS[:1])
        yield Case(make(name, axis=0), (x,), "first")
        if n == 0:
            yield Case(make(name, axis=1, exclusive=True), (x,), "exclusive")
            yield Case(make(name, axis=1, reverse=True), (x,), "reverse")
            yield Case(make(name, axis=1, exclusive=True, reverse=True), (x,), "both")
            yield Case(make(name, axis=1), (data(kind, 2, 1025, low=low, high=1.001),), "long")
            yield Case(make(name, axis=1), (data(kind, 3, 0),), "empty")


@family.cases("negative_log_likelihood_loss")
def nll(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        for reduction in ("none", "sum", "mean"):
            x, target = data(kind, 3, 4, 5, low=-3, high=0), given([[0, 1, 2, 3, 0], [3, 3, 1, 0, 2], [1, 1, 2, 2, 0]])
            yield Case(make(name, reduction=reduction), (x, target), reduction, LAYOUTS[:3])
            weight = data(kind, 4, low=0.1, high=1)
            yield Case(make(name, reduction=reduction, ignore_index=1), (x, target, weight), f"{reduction}-weighted")
