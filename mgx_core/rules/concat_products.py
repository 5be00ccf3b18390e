"""Multiplies the parts of a concatenation separately where some of them repeat rows or pixels of a smaller tensor."""

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
from ..ops.convert import Convert
from ..ops.convolution import Convolution
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
    if (why := _too_few(prod(n for n in whole.shape.dims[:-1] if isinstance(n, int)), sizes, sources)) is not None:
        return why
    weights = _pieces(b, w, 0, sizes)
    parts = list(zip(whole.inputs, weights, sources, strict=True))
    own = [(x, part) for x, part, source in parts if source is None]
    terms = []
    if own:
        xs, ws = ([pair[n] for pair in own] for n in (0, 1))
        terms.append(_product(b, _joined(b, xs, rank - 1), _joined(b, ws, 0)))
    terms += [_again(b, x, _product(b, source, part)) for x, part, source in parts if source is not None]
    return _sum(b, terms)


@CONCAT_PRODUCTS.on(Convolution, reads=(Concat, Convert), changes=ROUNDING)
def convolution_of_repeated_parts(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(concat(x, y), w) -> convolution(x, w1) + convolution(y, w2), 1 x 1, if y repeats a row or column of an image.

    Networks on points convolve each point beside its differences from its neighbors.
    """
    read, w = i.inputs
    converted = isinstance(read.op, Convert)
    whole = read.inputs[0] if converted else read
    op, rank = i.op, i.shape.rank
    if (
        not isinstance(whole.op, Concat)
        or whole.op.axis % rank != 1
        or not isinstance(op, Convolution)
        or op.group != 1
    ):
        return None
    sizes = [n for x in whole.inputs if isinstance(n := x.shape.dims[1], int)]
    dims = [n for n in whole.shape.dims if isinstance(n, int)]
    moves = any(n != 1 for n in (*w.shape.dims[2:], *op.stride)) or any(op.padding)
    if moves or len(sizes) < len(whole.inputs) or len(dims) < rank:
        return None
    sources = [_repeated_pixels(x) for x in whole.inputs]
    if all(s is None for s in sources):
        return None
    if not one_user(whole) or not one_user(read):
        return No("the concatenation has other users")
    if (why := _too_few(prod((dims[0], *dims[2:])), sizes, sources)) is not None:
        return why

    def convolved(parts: Sequence[Instruction], weights: Sequence[Instruction]) -> Instruction:
        x = _joined(b, parts, 1)
        return b.add(op, b.add(read.op, x) if converted else x, _joined(b, weights, 1))

    parts = list(zip(whole.inputs, _pieces(b, w, 1, sizes), sources, strict=True))
    own = [(x, part) for x, part, source in parts if source is None]
    terms = [convolved([x for x, _ in own], [part for _, part in own])] if own else []
    for _, part, source in parts:
        if source is not None:
            terms.append(b.add(Multibroadcast(out_lens=i.shape.dims), convolved([source], [part])))
    return _sum(b, terms)


def _too_few(rows: int, sizes: Sequence[int], sources: Sequence[Instruction | None]) -> No | None:
    """Returns a refusal if the parts that repeat a source have too few elements; rows: of each part, with its size."""
    repeated = rows * sum(n for n, source in zip(sizes, sources, strict=True) if source is not None)
    return No("too few repeated elements to multiply them separately") if repeated < SMALLEST else None


def _repeated_pixels(x: Instruction) -> Instruction | None:
    """Returns the images that x repeats along an axis of the image."""
    if not isinstance(x.op, Multibroadcast) or len(x.inputs) != 1:
        return None
    source, dims = x.inputs[0], x.shape.dims
    given = source.shape.dims
    return source if len(given) == len(dims) and given[:2] == dims[:2] and given != dims else None


def _sum(b: Builder, terms: Sequence[Instruction]) -> Instruction:
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


def _pieces(b: Builder, w: Instruction, axis: int, sizes: Sequence[int]) -> list[Instruction]:
    """Returns consecutive slices of a tensor; of a constant as constants, so that products of one value can be merged first."""
    held = None if w.literal is None else w.literal.value
    made = []
    for n, end in zip(sizes, accumulate(sizes), strict=True):
        if isinstance(held, np.ndarray):
            made.append(b.literal(held[(*[slice(None)] * axis, slice(end - n, end))]))
        else:
            made.append(b.add(Slice(axes=(axis,), starts=(end - n,), ends=(end,)), w))
    return made


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
