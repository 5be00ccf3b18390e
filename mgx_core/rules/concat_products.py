"""Multiplies the parts of a concatenation separately where some of them repeat rows of a smaller tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.index import Gather
from ..ops.linear import Dot
from ..ops.pointwise import Add, Mul
from ..ops.reshape import Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types.dim import Dim
from .engine import ROUNDING, Builder, Rules
from .matching import one_user

__all__ = ["CONCAT_PRODUCTS"]

CONCAT_PRODUCTS: Final = Rules("simplify-algebra")

SMALLEST: Final = 1 << 20  # repeated elements of a concatenation from which products of its parts are faster


@CONCAT_PRODUCTS.on(Dot, reads=Concat, changes=ROUNDING)
def product_of_repeated_parts(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(concat(x, y), w) -> dot(x, w1) + dot(y, w2) if y repeats rows, which are multiplied first and repeated afterwards.

    Networks on graphs multiply the features of an edge beside those of both its nodes: far fewer rows than edges.
    """
    whole, right = i.inputs
    rank = i.shape.rank
    if not isinstance(whole.op, Concat) or whole.op.axis % rank != rank - 1:
        return None
    w = right
    if isinstance(right.op, Multibroadcast) and len(right.inputs) == 1:
        (source,) = right.inputs
        w = source if source.shape.dims == right.shape.dims[-2:] else right  # one matrix for all batches
    sizes = [n for x in whole.inputs if isinstance(n := x.shape.dims[-1], int)]
    if w.shape.rank != 2 or len(sizes) < len(whole.inputs):
        return None
    sources = [_repeated(x, w.shape.dims[1]) for x in whole.inputs]
    if all(s is None for s in sources):
        return None
    if not one_user(whole):
        return No("the concatenation has other users")
    rows = prod(n for n in whole.shape.dims[:-1] if isinstance(n, int))
    if rows * sum(n for n, source in zip(sizes, sources, strict=True) if source is not None) < SMALLEST:
        return No("too few repeated elements to multiply them separately")
    weights = [_rows(b, w, end - n, end) for n, end in zip(sizes, accumulate(sizes), strict=True)]
    parts = list(zip(whole.inputs, weights, sources, strict=True))
    own = [(x, part) for x, part, source in parts if source is None]
    terms = []
    if own:
        xs, ws = ([pair[n] for pair in own] for n in (0, 1))
        terms.append(_product(b, _joined(b, xs, rank - 1), _joined(b, ws, 0)))
    terms += [_again(b, x, _product(b, source, part)) for x, part, source in parts if source is not None]
    total = terms[0]
    for term in terms[1:]:
        total = b.add(Add(), total, term)
    return total


def _repeated(x: Instruction, columns: Dim) -> Instruction | None:
    """Returns what a value repeats rows of, by broadcasting or gathering each at least twice on average."""
    dims = x.shape.dims
    if isinstance(x.op, Multibroadcast) and len(x.inputs) == 1:
        source = x.inputs[0]
        if source.shape.rank and source.shape.dims[-1] == dims[-1] and source.shape.dims[:-1] != dims[:-1]:
            return source
    if isinstance(x.op, Gather) and x.op.axis % x.inputs[0].shape.rank != x.inputs[0].shape.rank - 1:
        source, indices = x.inputs
        count, nodes, size = indices.shape.dims, source.shape.dims[x.op.axis], dims[-1]
        known = all(isinstance(n, int) for n in (*count, nodes, size, columns))
        if known and prod(map(int, count)) >= 2 * int(nodes) and int(columns) <= 2 * int(size):
            return source
    return None


def _again(b: Builder, x: Instruction, made: Instruction) -> Instruction:
    """Repeats the rows of a product as those of x are."""
    if isinstance(x.op, Gather):
        return b.add(x.op, made, x.inputs[1])
    return b.add(Multibroadcast(out_lens=(*x.shape.dims[:-1], made.shape.dims[-1])), made)


def _rows(b: Builder, w: Instruction, start: int, end: int) -> Instruction:
    """Returns rows of a matrix; of a constant as a constant, so that products of one value can be merged before folding."""
    held = None if w.literal is None else w.literal.value
    if isinstance(held, np.ndarray):
        return b.literal(held[start:end])
    return b.add(Slice(axes=(0,), starts=(start,), ends=(end,)), w)


def _joined(b: Builder, parts: Sequence[Instruction], axis: int) -> Instruction:
    return parts[0] if len(parts) == 1 else b.add(Concat(axis=axis), *parts)


def _product(b: Builder, x: Instruction, w: Instruction) -> Instruction:
    """Returns the product of x [.., k] with w [k, n]; that of a single column is a multiplication."""
    dims, (inner, columns) = x.shape.dims, w.shape.dims
    if inner == 1 and len(dims) > 1:
        wide = (*dims[:-1], columns)
        return b.add(Mul(), *(b.add(Multibroadcast(out_lens=wide), v) for v in (x, w)))
    single = tuple(a for a, n in enumerate(dims[:-1]) if n == 1)
    rows = b.add(Squeeze(axes=single), x) if single else x
    if rows.shape.rank == 1:  # a matrix of one row
        rows, single = b.add(Unsqueeze(axes=(0,)), rows), single[1:]
        if not dims[:-1]:
            return b.add(Squeeze(axes=(0,)), b.add(Dot(), rows, w))
    lead = rows.shape.dims[:-2]
    made = b.add(Dot(), rows, b.add(Multibroadcast(out_lens=(*lead, inner, columns)), w) if lead else w)
    return b.add(Unsqueeze(axes=single), made) if single else made
