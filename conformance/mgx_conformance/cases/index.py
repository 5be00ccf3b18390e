"""Cases of gather, scatter, sort and selection ops, including out-of-range indices."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mgx_core import ShapeError, dtype
from mgx_core.types.dtype import DType

from ..known import OPS
from .case import FLOATS, INTS, LAYOUTS, Case, Family, Operand, data, given, picks, refused

__all__ = ["family"]

family = Family("index")
make = OPS.make
KINDS: tuple[DType, ...] = (
    dtype.float32,
    dtype.float16,
    dtype.int64,
    dtype.bool_,
    dtype.uint8,
    dtype.bfloat16,
    dtype.string,
)
F = dtype.float32


@family.cases("gather")
def gather(name: str) -> Iterable[Case]:
    for n, kind in enumerate(KINDS):
        x = data(kind, 5, 4, 3, low=0, high=9)
        yield Case(make(name, axis=0), (x, picks(1, 5, 2, 3)), "first", LAYOUTS if n == 0 else LAYOUTS[:1])
    yield Case(make(name, axis=1), (data(F, 3, 6, 2), given([-1, 0, 5, -6])), "negative", LAYOUTS[:3])
    yield Case(make(name, axis=-1), (data(F, 3, 6), picks(2, 6, 4, kind=dtype.int32)), "int32")
    yield Case(make(name, axis=0), (data(F, 7, 5), given(3)), "scalar-index")
    yield Case(make(name, axis=0), (data(F, 101, 65), picks(3, 101, 37)), "embedding")
    yield Case(make(name, axis=0), (data(F, 5, 4), given(np.zeros((0,), np.int64))), "empty")
    yield refused(make(name, axis=0), data(F, 5, 4), given([5]), label="beyond", error=ShapeError)
    yield refused(make(name, axis=0), data(F, 5, 4), given([-6]), label="before", error=ShapeError)


@family.cases("gather_elements")
def gather_elements(name: str) -> Iterable[Case]:
    for n, kind in enumerate(KINDS[:4]):
        x = data(kind, 4, 5, low=0, high=9)
        yield Case(make(name, axis=1), (x, picks(1, 5, 4, 3)), "last", LAYOUTS if n == 0 else LAYOUTS[:1])
    yield Case(make(name, axis=0), (data(F, 4, 5), given([[-1, 0, 2, 3, -4]])), "negative", LAYOUTS[:3])
    yield Case(make(name, axis=1), (data(F, 2, 7, 3), picks(2, 7, 2, 4, 3)), "middle")
    yield refused(make(name, axis=1), data(F, 2, 3), given([[0], [3]]), label="beyond", error=ShapeError)


@family.cases("gathernd")
def gathernd(name: str) -> Iterable[Case]:
    for n, kind in enumerate(KINDS[:4]):
        x = data(kind, 4, 5, 3, low=0, high=9)
        yield Case(make(name), (x, given([[0, 1], [3, 4], [-1, -5]])), "rows", LAYOUTS if n == 0 else LAYOUTS[:1])
    yield Case(make(name), (data(F, 4, 5), given([[0, 1], [3, 4]])), "elements")
    yield Case(make(name, batch_dims=1), (data(F, 2, 4, 3), given([[[1], [3]], [[0], [2]]])), "batched", LAYOUTS[:3])
    yield refused(make(name), data(F, 4, 5), given([[4, 0]]), label="beyond", error=ShapeError)


@family.cases("scatter_none", "scatter_add", "scatter_mul", "scatter_min", "scatter_max")
def scatter(name: str) -> Iterable[Case]:
    once = given([[3, 0, 1], [1, 4, 0]])  # each position at most once: the order of writes does not matter
    kinds = (*FLOATS[:2], dtype.int64, dtype.int32)
    for n, kind in enumerate(kinds):
        operands = (data(kind, 2, 5, low=-4, high=4), once, data(kind, 2, 3, low=-3, high=3))
        yield Case(make(name, axis=1), operands, "last", LAYOUTS if n == 0 else LAYOUTS[:1])
    operands = (data(F, 5, 3), given([[-1, 0, 2], [0, 4, -5 + 1]]), data(F, 2, 3))
    yield Case(make(name, axis=0), operands, "negative", LAYOUTS[:3])
    if name != "scatter_none":
        yield Case(make(name, axis=0), (data(F, 4, 2), picks(5, 4, 9, 2), data(F, 9, 2)), "collisions")
    skipping = make(name, axis=0, skip_out_of_bounds=True)
    yield Case(skipping, (data(F, 3), given([7, 1, -9]), data(F, 3)), "skipped")
    yield refused(make(name, axis=0), data(F, 3), given([3]), data(F, 1), label="beyond", error=ShapeError)


@family.cases("scatternd_none", "scatternd_add", "scatternd_mul", "scatternd_min", "scatternd_max")
def scatternd(name: str) -> Iterable[Case]:
    for n, kind in enumerate((*FLOATS[:2], dtype.int64)):
        operands = (data(kind, 4, 5, low=-4, high=4), given([[0], [3]]), data(kind, 2, 5, low=-3, high=3))
        yield Case(make(name), operands, "rows", LAYOUTS if n == 0 else LAYOUTS[:1])
    yield Case(make(name), (data(F, 4, 5), given([[0, 1], [-1, 4]]), data(F, 2)), "elements")
    if name != "scatternd_none":
        yield Case(make(name), (data(F, 3), given([[0], [2], [0], [0]]), data(F, 4)), "collisions")
    yield refused(make(name), data(F, 3), given([[3]]), data(F, 1), label="beyond", error=ShapeError)


@family.cases("tensor_scatter")
def tensor_scatter(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        cache, update = data(kind, 2, 3, 5, 4), data(kind, 2, 3, 2, 4)
        yield Case(make(name), (cache, update, given([1, 3])), "linear", LAYOUTS[:4])
        yield Case(make(name, mode="circular"), (cache, update, given([4, 0])), "circular")
        yield Case(make(name), (cache, update), "from-start")
    yield refused(make(name), data(F, 1, 4, 2), data(F, 1, 2, 2), given([3]), label="beyond", error=ShapeError)


@family.cases("onehot")
def onehot(name: str) -> Iterable[Case]:
    indices = given([[0, 2], [-1, 7]])
    for kind in (F, dtype.int64, dtype.bool_):
        values = given([0, 1], kind)
        yield Case(make(name), (indices, given(4), values), f"values-{kind}")
        yield Case(make(name, depth=4, axis=1), (indices, None, values), f"attribute-{kind}")


@family.cases("topk")
def topk(name: str) -> Iterable[Case]:
    for n, kind in enumerate((*FLOATS, *INTS[:2])):
        for largest in (True, False):
            values = np.random.default_rng(4).permutation(60).reshape(3, 4, 5) - 30  # no ties
            x = Operand(kind, (3, 4, 5), value=values.astype(kind.numpy), moves=False)
            yield Case(make(name, k=2, axis=1, largest=largest), (x,), f"middle-{'largest' if largest else 'smallest'}")
        if n == 0:
            yield Case(make(name, k=3), (data(kind, 4, 301, low=-99, high=99),), "last", LAYOUTS)
            yield Case(make(name, k=5), (data(kind, 3, 5, low=-99, high=99),), "all")
            yield Case(make(name, k=0), (data(kind, 3, 5),), "none")
            yield Case(make(name), (data(kind, 3, 7, low=-9, high=9), given([2])), "while-running")
            ties = given([[1.0, 3.0, 3.0, 2.0, 3.0]], kind)
            yield Case(make(name, k=4), (ties,), "ties")
            yield Case(make(name, k=3, largest=False), (given([[1.0, np.nan, -np.inf, np.inf, 0.0]], kind),), "special")


@family.cases("nonzero")
def nonzero(name: str) -> Iterable[Case]:
    for kind in (dtype.bool_, F, dtype.int64):
        yield Case(make(name), (data(kind, 3, 4, low=0, high=1),), "", LAYOUTS[:4])
    yield Case(make(name), (given(np.zeros((2, 3), np.float32)),), "none")
    yield Case(make(name), (data(dtype.bool_, 37, 111),), "large")


@family.cases("compress")
def compress(name: str) -> Iterable[Case]:
    condition = given([True, False, True, True])
    for axis in (None, 0, 1):
        yield Case(make(name, axis=axis), (data(F, 4, 4), condition), f"axis{axis}".lower(), LAYOUTS[:3])
    yield Case(make(name, axis=0), (data(F, 4, 3), given([False] * 4)), "none")


@family.cases("unique")
def unique(name: str) -> Iterable[Case]:
    values = given([[3.0, 1.0, 3.0], [2.0, 1.0, 0.0], [3.0, 1.0, 3.0]], F)
    for axis in (None, 0, 1):
        for order in (True, False):
            op = make(name, axis=axis, sorted=order)
            yield Case(op, (values,), f"axis{axis}-{'sorted' if order else 'found'}".lower())
    yield Case(make(name), (given(np.array(["b", "a", "b"], dtype=object)),), "")


@family.cases("array_feature_extractor")
def array_feature_extractor(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(F, 3, 5), given([0, 4, 2])), "", LAYOUTS[:3])
