"""Einsum: the parser of equations, the op, and its decomposition into matrix products."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..errors import ParameterError, ShapeError
from ..named_tuples import NamedTuple
from ..types.argument import Array
from ..types.dim import Dim, broadcast, product
from ..types.dtype import float32, of
from ..types.shape import Shape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .declaration import op
from .linear import Diagonal, Dot
from .movement import Transpose
from .operation import Operation
from .pointwise import Mul
from .reduce import ReduceSum
from .reshape import Reshape, Squeeze
from .scalar import convert, widen

__all__ = ["Einsum"]

Label: TypeAlias = "str | int"  # a letter; or an axis of the ellipsis, counted -1, -2, ... from its end


class Equation(NamedTuple):
    """The labels of every operand's axes and of the result's."""

    terms: list[list[Label]]
    output: list[Label]


def split(term: str) -> tuple[str, bool, str]:
    """Returns letters before the ellipsis, whether there is one, letters after it.  Errors: ParameterError."""
    head, dots, tail = term.partition("...")
    if not all(c in string.ascii_letters for c in head + tail):
        raise ParameterError(f"an einsum term consists of letters and at most one '...', got {term!r}")
    return head, bool(dots), tail


def read(equation: str, ranks: Sequence[int]) -> Equation:
    """Parses an equation for operands of these ranks.

    Errors: ParameterError for a malformed equation; ShapeError if a term does not fit its operand's rank.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    if "->" in right or "," in right:
        raise ParameterError(f"an einsum equation has one '->' and one result, got {equation!r}")
    words = left.split(",")
    if len(words) != len(ranks):
        raise ShapeError(f"equation {equation!r} is for {len(words)} operands, got {len(ranks)}")
    terms: list[list[Label]] = []
    for word, rank in zip(words, ranks, strict=True):
        head, dots, tail = split(word)
        rest = rank - len(head) - len(tail)
        if rest < 0 or (rest and not dots):
            raise ShapeError(f"term {word!r} of {equation!r} does not fit an operand of rank {rank}")
        terms.append([*head, *range(-rest, 0), *tail])
    dots_rank = max((-label for term in terms for label in term if isinstance(label, int)), default=0)
    ellipsis: list[Label] = list(range(-dots_rank, 0))
    flat = [label for term in terms for label in term]
    if not arrow:
        once = sorted(label for label in set(flat) if isinstance(label, str) and flat.count(label) == 1)
        return Equation(terms, [*ellipsis, *once])
    head, dots, tail = split(right)
    if ellipsis and not dots:
        raise ParameterError(f"the result of {equation!r} must keep the axes of '...'")
    output: list[Label] = [*head, *(ellipsis if dots else []), *tail]
    if len(set(output)) != len(output):
        raise ParameterError(f"the result of {equation!r} names an axis twice")
    for label in output:
        if label not in flat:
            raise ParameterError(f"axis {label!r} of the result of {equation!r} is in no term")
    return Equation(terms, output)


def extents(equation: Equation, shapes: Sequence[Sequence[Dim]]) -> dict[Label, Dim]:
    """Returns the extent of each label; extents of 1 broadcast.  Errors: ShapeError if two others differ."""
    found: dict[Label, Dim] = {}
    for i, (term, dims) in enumerate(zip(equation.terms, shapes, strict=True)):
        own: dict[Label, Dim] = {}
        for label, d in zip(term, dims, strict=True):
            if label in own and isinstance(own[label], int) and isinstance(d, int) and own[label] != d:
                raise ShapeError(f"axis {label!r} has extents {own[label]} and {d} in operand {i}")
            own[label] = d
            try:
                found[label] = broadcast(found[label], d) if label in found else d
            except ShapeError:
                raise ShapeError(f"axis {label!r} has extents {found[label]} and {d} (operand {i})") from None
    return found


@op("einsum", linear=tuple(range(8)))
class Einsum(Operation):
    """Sum of products over the axes that appear in the equation's terms but not in its result.

    xs: tensors of one number type, as many as the equation has terms; letters name axes, `...` represents broadcast
    axes, a letter repeated in a term selects the diagonal.  Errors: ParameterError for a malformed equation, ShapeError if
    ranks or extents do not fit it.  Source: ONNX Einsum-12.
    """

    equation: str

    def infer(self, *xs: Shape) -> Shape:
        if not xs:
            raise ShapeError("einsum needs at least one operand")
        for x in xs[1:]:
            if x.dtype is not xs[0].dtype:
                raise ShapeError(f"operands must share one type, got {xs[0].dtype} and {x.dtype}")
        if not xs[0].dtype.is_number:
            raise ShapeError(f"operands must be numbers, got {xs[0].dtype}")
        equation = read(self.equation, [x.rank for x in xs])
        sizes = extents(equation, [x.dims for x in xs])
        return xs[0].with_dims(sizes[label] for label in equation.output)

    def compute(self, *xs: Array) -> Array:
        equation = read(self.equation, [x.ndim for x in xs])
        sizes = extents(equation, [x.shape for x in xs])
        code = {label: i for i, label in enumerate(sizes)}
        if len(code) > 52:
            raise ShapeError(f"einsum takes at most 52 axes, got {len(code)}")
        args: list[Any] = []
        for x, term in zip(xs, equation.terms, strict=True):
            kept = [a for a, label in enumerate(term) if x.shape[a] == sizes[label]]
            flat = widen(x).reshape([x.shape[a] for a in kept])
            args += [flat, [code[term[a]] for a in kept]]
        out = np.einsum(*args, [code[label] for label in equation.output], optimize=len(xs) > 1)
        return convert(np.asarray(out), of(xs[0].dtype))

    def decompose(self, b: Builder, *xs: Operand) -> Operand:
        """Decomposes into diagonals, sums, then matrix products from left to right; several steps on narrow floats in float32."""
        equation = read(self.equation, [x.shape.rank for x in xs])
        sizes = extents(equation, [x.shape.dims for x in xs])
        steps, dtype = Steps(b, sizes), xs[0].shape.dtype
        operands = [steps.simple(x, term) for x, term in zip(xs, equation.terms, strict=True)]
        wide = dtype.is_float and dtype.bits < 32 and several_steps(operands, equation.output)
        if wide:  # results between would be rounded, and overflow
            operands = [(b.add(Convert(target_type=float32), x), labels) for x, labels in operands]
        done = steps.sum_out(operands[0], wanted(operands[1:], equation.output))
        for i, operand in enumerate(operands[1:], 2):
            keep = wanted(operands[i:], equation.output)
            there = set(done[1])
            operand = steps.sum_out(operand, keep | there)
            done = steps.contract(steps.sum_out(done, keep | set(operand[1])), operand, keep)
        x, labels = steps.sum_out(done, set(equation.output))
        return steps.arrange((b.add(Convert(target_type=dtype), x) if wide else x, labels), equation.output)


Term: TypeAlias = "tuple[Operand, list[Label]]"


def wanted(operands: Sequence[Term], output: Sequence[Label]) -> set[Label]:
    """Returns labels that are still needed: those of the operands left, and of the output."""
    return {label for _, term in operands for label in term} | set(output)


def several_steps(operands: Sequence[Term], output: Sequence[Label]) -> bool:
    """Returns True unless one sum or product, which rounds once, makes the result."""
    if len(operands) != 2:
        return len(operands) > 2
    first, second = (set(term) for _, term in operands)
    return not first ^ second <= set(output)  # axes of one operand are summed before the product


class Steps:
    """The steps of a decomposition, on operands whose axes are labeled."""

    def __init__(self, b: Builder, sizes: dict[Label, Dim]) -> None:
        self.b = b
        self.sizes = sizes

    def simple(self, x: Operand, term: list[Label]) -> Term:
        """Returns the operand with every label once, and without axes of extent 1 that are broadcast."""
        labels = list(term)
        for label in set(term):
            while labels.count(label) > 1:
                first = labels.index(label)
                second = labels.index(label, first + 1)
                x = self.b.add(Diagonal(axis1=first, axis2=second), x)
                del labels[second]
        ones = [a for a, label in enumerate(labels) if x.shape.dims[a] == 1 and self.sizes[label] != 1]
        if ones:
            x = self.b.add(Squeeze(axes=tuple(ones)), x)
        return x, [label for a, label in enumerate(labels) if a not in ones]

    def sum_out(self, operand: Term, keep: set[Label]) -> Term:
        """Returns the operand summed over the axes that nothing else needs."""
        x, labels = operand
        axes = [a for a, label in enumerate(labels) if label not in keep]
        if axes:
            x = self.b.add(Squeeze(axes=tuple(axes)), self.b.add(ReduceSum(axes=tuple(axes)), x))
        return x, [label for label in labels if label in keep]

    def contract(self, a: Term, b: Term, keep: set[Label]) -> Term:
        """Returns the product of two operands, summed over the shared axes that nothing else needs."""
        shared = [label for label in a[1] if label in b[1]]
        batch = [label for label in shared if label in keep]
        inner = [label for label in shared if label not in keep]
        rows = [label for label in a[1] if label not in shared]
        columns = [label for label in b[1] if label not in shared]
        if not inner:
            order = [*batch, *rows, *columns]
            return self.b.add(Mul(), self.spread(a, order), self.spread(b, order)), order
        left = self.merged(self.arrange(a, [*batch, *rows, *inner]), len(batch), len(rows), len(inner))
        right = self.merged(self.arrange(b, [*batch, *inner, *columns]), len(batch), len(inner), len(columns))
        out = self.b.add(Dot(), left, right)
        order = [*batch, *rows, *columns]
        return self.reshaped(out, [self.sizes[label] for label in order]), order

    def merged(self, x: Operand, lead: int, first: int, second: int) -> Operand:
        """Returns x as batches of matrices: `first` axes merged into rows, `second` into columns."""
        dims = x.shape.dims
        return self.reshaped(x, [*dims[:lead], product(dims[lead : lead + first]), product(dims[lead + first :])])

    def arrange(self, operand: Term, order: Sequence[Label]) -> Operand:
        """Returns the operand with its axes in the given order."""
        x, labels = operand
        if list(order) == labels:
            return x
        return self.b.add(Transpose(permutation=tuple(labels.index(label) for label in order)), x)

    def spread(self, operand: Term, order: Sequence[Label]) -> Operand:
        """Returns the operand broadcast to all the axes of `order`."""
        x = self.arrange(operand, [label for label in order if label in operand[1]])
        x = self.reshaped(x, [self.sizes[label] if label in operand[1] else 1 for label in order])
        dims = [self.sizes[label] for label in order]
        return x if list(x.shape.dims) == dims else self.b.add(Multibroadcast(out_lens=tuple(dims)), x)

    def reshaped(self, x: Operand, dims: Sequence[Dim]) -> Operand:
        return x if list(x.shape.dims) == list(dims) else self.b.add(Reshape(dims=tuple(dims)), x)
