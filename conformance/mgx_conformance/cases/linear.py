"""Cases of matrix products, convolutions and windows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgx_core import dtype
from mgx_core.ops import STANDARD
from mgx_core.types.dtype import DType

from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("linear")
make = STANDARD.make


@family.cases("dot")
def dot(name: str) -> Iterable[Case]:
    op = make(name)
    for n, kind in enumerate((*FLOATS, dtype.int32, dtype.int8, dtype.int64)):
        low, high = (-1, 1) if kind.kind == "f" else (-3, 3)

        def pair(
            a: tuple[int, ...], b: tuple[int, ...], t: DType = kind, lo: int = low, hi: int = high
        ) -> tuple[Any, Any]:
            return data(t, *a, low=lo, high=hi), data(t, *b, low=lo, high=hi)

        yield Case(op, pair((5, 7), (7, 9)), "matrix", LAYOUTS if n < 2 else LAYOUTS[:1])
        yield Case(op, pair((2, 3, 4, 8), (2, 3, 8, 5)), "batched", LAYOUTS if n == 0 else LAYOUTS[:1])
        if n < 3:
            yield Case(op, pair((1, 64), (64, 33)), "row")
            yield Case(op, pair((33, 64), (64, 1)), "column")
            yield Case(op, pair((65, 127), (127, 67)), "odd")
        if n == 0:
            yield Case(op, pair((128, 256), (256, 128)), "large", LAYOUTS[:3])
            yield Case(op, pair((3, 4099), (4099, 5)), "deep")
            yield Case(op, pair((0, 4), (4, 5)), "no-rows")
            yield Case(op, pair((3, 0), (0, 5)), "no-terms")
            yield Case(op, pair((0, 3, 4), (0, 4, 5)), "no-batch")
            yield Case(op, pair((1, 1), (1, 1)), "one")


@family.cases("det", "inverse")
def square(name: str) -> Iterable[Case]:
    rng = np.random.default_rng(3)
    for kind in FLOATS[:2]:
        for label, dims in (("matrix", (4, 4)), ("batched", (2, 3, 3)), ("one", (1, 1))):
            values = rng.uniform(-1, 1, dims) + 3 * np.eye(dims[-1])  # far from singular
            yield Case(make(name), (given(values.astype(np.float32), kind),), label)


FACTORIZATIONS = ("cholesky", "eig", "eigh", "lu", "matrix_exp", "qr", "svd")


@family.cases(*FACTORIZATIONS)
def factorization(name: str) -> Iterable[Case]:
    """Positive definite matrices with eigenvalues that differ: factors are unique up to signs."""
    rng = np.random.default_rng(3)
    for kind in FLOATS[:2]:
        for label, dims in (("matrix", (4, 4)), ("batched", (2, 3, 3)), ("one", (1, 1))):
            values = rng.uniform(-0.2, 0.2, dims)
            values = values + np.swapaxes(values, -1, -2) + np.diag(np.arange(1.0, dims[-1] + 1))
            yield Case(make(name), (given(values.astype(np.float32), kind),), label)


@family.cases("solve_triangular")
def solve_triangular(name: str) -> Iterable[Case]:
    for upper in (False, True):
        a = data(dtype.float32, 2, 4, 4, low=1, high=3)
        yield Case(make(name, upper=upper), (a, data(dtype.float32, 2, 4, 3)), "upper" if upper else "lower")


@family.cases("pivot_order")
def pivot_order(name: str) -> Iterable[Case]:
    yield Case(
        make(name), (given(np.array([[2, 3, 3], [1, 4, 3]]), dtype.int32), data(dtype.float32, 2, 4, 3)), "batched"
    )


@family.cases("require")
def require(name: str) -> Iterable[Case]:
    for kind in (dtype.float32, dtype.int64):
        yield Case(
            make(name, message="a condition is false"),
            (data(kind, 3, 4), given(np.array([True, True]), dtype.bool_)),
            "true",
        )


@family.cases("igamma")
def igamma(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        for upper in (False, True):
            numbers = (data(kind, 3, 5, low=0.1, high=9) for _ in range(2))
            yield Case(make(name, upper=upper), tuple(numbers), "upper" if upper else "lower")


@family.cases("einsum")
def einsum(name: str) -> Iterable[Case]:
    equations = {
        "ij,jk->ik": ((3, 4), (4, 5)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)), "ij->ji": ((3, 4),), "ii->i": ((4, 4),),
        "ij->": ((3, 4),), "i,j->ij": ((3,), (4,)), "bhid,bhjd->bhij": ((2, 2, 3, 4), (2, 2, 5, 4)),
        "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)), "ij,jk,kl->il": ((2, 3), (3, 4), (4, 2)), "ij,ij->i": ((3, 4), (3, 4)),
    }  # fmt: skip
    for label, (equation, dims) in enumerate(equations.items()):
        for kind in FLOATS[:2] if label < 3 else FLOATS[:1]:
            operands = tuple(data(kind, *d) for d in dims)
            word = equation.replace("->", "_to_").replace(",", "_").replace("...", "x")
            yield Case(make(name, equation=equation), operands, word, LAYOUTS[:3])


# name -> (x, w, attributes)
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "k3": ((2, 3, 7, 6), (4, 3, 3, 3), {}),
    "k3-pad": ((1, 4, 8, 8), (8, 4, 3, 3), {"padding": (1, 1)}),
    "k1": ((2, 8, 5, 5), (16, 8, 1, 1), {}),
    "stride2": ((1, 3, 9, 11), (5, 3, 3, 3), {"padding": (1, 1), "stride": (2, 2)}),
    "dilated": ((1, 2, 11, 10), (3, 2, 3, 3), {"dilation": (2, 3)}),
    "uneven-pad": ((1, 2, 6, 7), (3, 2, 3, 2), {"padding": (1, 0, 2, 1)}),
    "grouped": ((2, 6, 6, 6), (4, 3, 3, 3), {"group": 2, "padding": (1, 1)}),
    "depthwise": ((2, 7, 8, 9), (7, 1, 3, 3), {"group": 7, "padding": (1, 1)}),
    "depthwise-stride2": ((1, 16, 9, 9), (16, 1, 5, 5), {"group": 16, "padding": (2, 2), "stride": (2, 2)}),
    "same-upper": ((1, 3, 8, 7), (4, 3, 3, 3), {"padding_mode": "same_upper", "stride": (2, 2)}),
    "same-lower": ((1, 3, 8, 7), (4, 3, 4, 4), {"padding_mode": "same_lower"}),
    "1d": ((2, 3, 17), (5, 3, 4), {"stride": (2,), "padding": (1,)}),
    "3d": ((1, 2, 5, 6, 4), (3, 2, 3, 2, 3), {"padding": (1, 0, 1)}),
    "7x7": ((1, 3, 23, 21), (8, 3, 7, 7), {"padding": (3, 3), "stride": (2, 2)}),
    "channels": ((1, 64, 7, 7), (65, 64, 3, 3), {"padding": (1, 1)}),
    "empty": ((0, 3, 7, 6), (4, 3, 3, 3), {}),
}


@family.cases("convolution")
def convolution(name: str) -> Iterable[Case]:
    for label, (x, w, attributes) in CONVOLUTIONS.items():
        for n, kind in enumerate(FLOATS[: 3 if label in ("k3", "k3-pad", "depthwise", "grouped", "channels") else 1]):
            layouts = LAYOUTS if label in ("k3", "depthwise") and n == 0 else LAYOUTS[:1]
            yield Case(make(name, **attributes), (data(kind, *x), data(kind, *w)), label, layouts)
    yield Case(make(name), (data(FLOATS[3], 1, 2, 5, 5), data(FLOATS[3], 2, 2, 3, 3)), "k3")


@family.cases("convolution_weights")
def gradients(name: str) -> Iterable[Case]:
    table: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "k3": ((2, 3, 6, 5), (2, 4, 4, 3), {}),
        "stride2": ((2, 3, 6, 5), (2, 4, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
        "dilated": ((1, 2, 6, 5), (1, 3, 2, 1), {"dilation": (2, 2)}),
        "grouped": ((2, 4, 6, 5), (2, 6, 4, 3), {"group": 2}),
    }
    for tag, (x, grad, attributes) in table.items():
        yield Case(make(name, lengths=(3, 3), **attributes), (data(FLOATS[0], *x), data(FLOATS[0], *grad)), tag)


@family.cases("convolution_backwards")
def backwards(name: str) -> Iterable[Case]:
    table: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "k3": ((2, 3, 5, 4), (3, 4, 3, 3), {}),
        "stride2": ((1, 3, 5, 4), (3, 4, 3, 3), {"stride": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
        "dilated": ((1, 2, 5, 4), (2, 3, 3, 3), {"dilation": (2, 2)}),
        "grouped": ((1, 4, 5, 4), (4, 3, 3, 3), {"group": 2}),
        "2x2": ((1, 8, 6, 6), (8, 4, 2, 2), {"stride": (2, 2)}),
        "1d": ((1, 2, 7), (2, 3, 4), {"stride": (3,)}),
        "3d": ((1, 2, 3, 4, 3), (2, 3, 2, 2, 2), {"stride": (2, 2, 2)}),
    }
    for label, (x, w, attributes) in table.items():
        for kind in FLOATS[: 2 if label == "k3" else 1]:
            layouts = LAYOUTS if label == "k3" and kind is FLOATS[0] else LAYOUTS[:1]
            yield Case(make(name, **attributes), (data(kind, *x), data(kind, *w)), label, layouts)


@family.cases("deform_conv")
def deform(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        x, w, offset = data(kind, 1, 2, 6, 5), data(kind, 3, 2, 2, 2), data(kind, 1, 8, 5, 4)
        yield Case(make(name), (x, w, offset), "", LAYOUTS[:3])
        yield Case(make(name), (x, w, offset, data(kind, 3), data(kind, 1, 4, 5, 4, low=0)), "masked")


@family.cases("im2col")
def im2col(name: str) -> Iterable[Case]:
    for kind in (*FLOATS[:2], dtype.int8):
        yield Case(make(name, lengths=(3, 2)), (data(kind, 2, 3, 5, 6, low=-3, high=3),), "", LAYOUTS[:4])
        op = make(name, lengths=(3, 3), padding=(1, 1), stride=(2, 1), dilation=(1, 2))
        yield Case(op, (data(kind, 1, 2, 7, 8, low=-3, high=3),), "attributes")


@family.cases("col2im")
def col2im(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        yield Case(make(name, image_shape=(5, 5), block_shape=(1, 5)), (data(kind, 1, 5, 5),), "", LAYOUTS[:3])
        op = make(name, image_shape=(5, 5), block_shape=(3, 3), padding=(1, 1), stride=(2, 2))
        yield Case(op, (data(kind, 2, 9, 9),), "overlapping")


# name -> (x, attributes)
POOLINGS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "2x2": ((2, 3, 6, 8), {"lengths": (2, 2), "stride": (2, 2)}),
    "3x3-pad": ((1, 2, 7, 6), {"lengths": (3, 3), "stride": (2, 2), "padding": (1, 1)}),
    "uneven-pad": ((1, 2, 7, 6), {"lengths": (3, 2), "padding": (1, 0, 0, 1)}),
    "ceil": ((1, 2, 7, 6), {"lengths": (3, 3), "stride": (2, 2), "ceil_mode": True}),
    "dilated": ((1, 2, 9, 9), {"lengths": (2, 2), "dilations": (2, 3)}),
    "same": ((1, 2, 7, 6), {"lengths": (3, 3), "stride": (2, 2), "padding_mode": "same_upper"}),
    "global": ((2, 5, 7, 6), {"lengths": (7, 6)}),
    "1d": ((2, 3, 11), {"lengths": (3,), "stride": (2,)}),
    "3d": ((1, 2, 5, 4, 6), {"lengths": (2, 2, 2), "stride": (2, 1, 2)}),
}


@family.cases("pooling")
def pooling(name: str) -> Iterable[Case]:
    for mode in ("average", "max", "lpnorm"):
        for label, (dims, attributes) in POOLINGS.items():
            kinds = FLOATS[:3] if label in ("2x2", "global") else FLOATS[:1]
            if mode == "max" and label == "2x2":
                kinds = (*kinds, dtype.int8, dtype.uint8)
            for n, kind in enumerate(kinds):
                layouts = LAYOUTS if label == "3x3-pad" or (label == "2x2" and n == 0) else LAYOUTS[:1]
                op = make(name, mode=mode, **attributes)
                yield Case(
                    op, (data(kind, *dims, low=0.1 if mode == "lpnorm" else -9, high=9),), f"{mode}-{label}", layouts
                )
        yield Case(
            make(name, mode=mode, dyn_global=True), (data(dtype.float32, 2, 3, 5, 4, low=0.1),), f"{mode}-dyn-global"
        )
    for label in ("3x3-pad", "ceil"):
        dims, attributes = POOLINGS[label]
        op = make(name, mode="average", count_include_pad=True, **attributes)
        yield Case(op, (data(dtype.float32, *dims),), f"average-{label}-counted")
    op = make(name, mode="lpnorm", lp_order=1, lengths=(2, 2))
    yield Case(op, (data(dtype.float32, 1, 2, 5, 5),), "lpnorm-order1")


@family.cases("max_pool_indices")
def max_pool_indices(name: str) -> Iterable[Case]:
    for label in ("2x2", "3x3-pad", "dilated", "1d"):
        dims, attributes = POOLINGS[label]
        for order in (0, 1):
            op = make(name, storage_order=order, **attributes)
            yield Case(op, (data(dtype.float32, *dims, low=-9, high=9),), f"{label}-order{order}", LAYOUTS[:3])


@family.cases("max_unpool")
def max_unpool(name: str) -> Iterable[Case]:
    places = given([[[[5, 7], [13, 15]]]])
    x = data(dtype.float32, 1, 1, 2, 2)
    yield Case(make(name, lengths=(2, 2), stride=(2, 2)), (x, places), "", LAYOUTS[:3])
    yield Case(make(name, lengths=(2, 2), stride=(2, 2)), (x, places, given([1, 1, 5, 5])), "output-shape")
