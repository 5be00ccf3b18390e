"""Algebra on matrix products and convolutions: folds constant factors and terms into weights and biases."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.convert import Convert
from ..ops.convolution import Convolution
from ..ops.elementwise import Pointwise
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.pointwise import Add, Mul, Sub
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.scalar import convert, widen
from ..types.argument import Array
from ..types.dim import Dim
from ..types.dtype import bfloat16, float32
from .constants import aligned, along, finite, split, spread
from .engine import ROUNDING, Builder, Rules
from .matching import either, last_two_swapped, one_user, op_as
from .outline import through_views

__all__ = ["SIMPLIFY"]

SIMPLIFY: Final = Rules("simplify-algebra")

MOVES: Final = (Transpose, Reshape, Squeeze, Unsqueeze)
OUT_OF_RANGE: Final = "the weights would leave the range of their type, or lose digits in it"
LARGEST: Final = 1 << 27  # elements of a weight that is rewritten while compiling


def weight(ins: Instruction) -> Array | None:
    """Returns the array of a literal, or of one broadcast over batches."""
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    if source.literal is None or not isinstance(source.literal.value, np.ndarray):
        return None
    value = source.literal.value
    return value if value.ndim >= 2 and value.size <= LARGEST else None


def reweighted(b: Builder, old: Instruction, w: Array, factors: Array, behind: bool = False) -> Instruction | None:
    """Returns the weight w times factors that broadcast to it, as a replacement for `old`, broadcast as that is.

    None if a product overflows, or if a subnormal product (which has lost digits) is not negligible beside the largest weight,
    as in channels that training has almost removed.  behind: the factors could be applied to the sums at no cost;
    then also None if the products would be rounded to bfloat16 (8 bits of mantissa): with darknet53, whose weights are exact
    in torch, the errors were 2 to 3 times torch's.
    """
    with np.errstate(all="ignore"):
        exact = widen(w) * widen(factors)
    alike = tuple(a for a, n in enumerate((1,) * (w.ndim - factors.ndim) + factors.shape) if n == 1)
    largest = np.abs(exact).max(alike, initial=0)
    counts = (largest > 0) & (largest >= old.shape.dtype.epsilon * largest.max(initial=0))
    if (counts & (largest < old.shape.dtype.smallest_normal)).any():
        return None
    with np.errstate(all="ignore"):
        narrow = convert(exact, old.shape.dtype)  # checked after the range: numpy is slow on subnormal numbers
    if not finite(narrow) or (behind and old.shape.dtype is bfloat16 and not np.array_equal(widen(narrow), exact)):
        return None
    made = b.literal(narrow)
    return made if made.shape.dims == old.shape.dims else b.add(old.op, made)


# factors --------------------------------------------------------------------------------------------------------------


@SIMPLIFY.on(Mul, reads=Convolution, changes=ROUNDING)
def factor_into_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x, w) * s -> convolution(x, w * s), s one number for each channel of the result."""
    found = split(i)
    if found is None or not isinstance(found[0].op, Convolution):
        return None
    convolution, s = found
    w, scale = weight(convolution.inputs[1]), aligned(s)
    if w is None or scale is None or len(convolution.users) > 1 or not i.shape.dtype.is_float:
        return No("the weights are not constant, or the convolution has other users")
    factors = along(scale, i.shape.rank, 1)
    if factors is None:
        return No("the factor differs within a channel")
    return _times_factors(b, convolution, 1, w, factors.reshape(-1, *(1,) * (w.ndim - 1)), behind=True)


def _times_factors(
    b: Builder, product: Instruction, at: int, w: Array, factors: Array, behind: bool = False
) -> Instruction | No:
    """Returns a product with operand `at`, the weights w, times factors; a common factor may remain as a scalar after it."""
    operands = list(product.inputs)
    made, common = reweighted(b, operands[at], w, factors, behind), None
    if made is None:
        common, rest = _common_factor(factors)
        made = None if common is None else reweighted(b, operands[at], w, rest, behind)
    if made is None:
        return No(OUT_OF_RANGE)
    operands[at] = made
    result = b.add(product.op, *operands)
    return result if common is None else b.add(Mul(), result, spread(b, common, result.shape.dims, result))


def _common_factor(factors: Array) -> tuple[Array | None, Array]:
    """Returns a power of two and what remains of factors of at most 1/2: weights times those stay in the range of their type.

    The scales of residual branches start at 1e-5 or less in many vision transformers, where products with weights would be
    subnormal in float16.  What remains is at most 1: sums that were finite before the factors stay finite.  None if nothing
    but that power remains, or it is not exact in the factors' type.
    """
    wide = widen(factors)
    largest = np.abs(wide).max(initial=0.0)
    if not 0 < largest <= 0.5:
        return None, factors
    power = np.exp2(np.ceil(np.log2(largest)))
    common, rest = np.asarray(power).astype(factors.dtype), wide / power
    if float(widen(common)) != power or (rest == 1).all():
        return None, factors
    return common, rest


@SIMPLIFY.on(Convert, reads=(Mul, Add), changes=ROUNDING)
def wide_norm_into_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """narrow(wide(product(x, w) + a) * s + c) -> product(x, w * s) + narrow(a * s + c): a normalization in a wider type.

    The product is a convolution or dot; s, a and c are one number for each of its channels or columns; a and c may be absent.
    """
    scaled, shift = _without_term(i.inputs[0])
    found = split(scaled) if isinstance(scaled.op, Mul) else None
    if found is None or not isinstance(found[0].op, Convert):
        return None
    wide, factor = found
    product, term = _without_term(wide.inputs[0])
    if not isinstance(product.op, (Convolution, Dot)) or (w := weight(product.inputs[1])) is None:
        return None
    kind = product.shape.dtype
    if i.shape.dtype is not kind or not kind.is_float or not wide.shape.dtype.is_float:
        return None
    if any(len(x.users) > 1 for x in (i.inputs[0], scaled, wide, wide.inputs[0], product)):
        return No("the product or a part of the norm has other users")
    by_filter = isinstance(product.op, Convolution)
    axis = 1 if by_filter else i.shape.rank - 1
    none = np.zeros(1, np.float32)
    s, c, a = (none if x is None else along(aligned(x), i.shape.rank, axis) for x in (factor, shift, term))
    if s is None or c is None or a is None:
        return No("the norm differs within a channel")
    factors = s.reshape(-1, *(1,) * (w.ndim - 1)) if by_filter else s
    made = reweighted(b, product.inputs[1], w, factors, behind=by_filter)
    moved = widen(c) if term is None else widen(a) * widen(s) + widen(c)
    if made is None or not finite(convert(moved, kind)):
        return No(OUT_OF_RANGE)
    y = b.add(product.op, product.inputs[0], made)
    if shift is None and term is None:
        return y
    return b.add(Add(), y, spread(b, moved.reshape(-1, *(1,) * (i.shape.rank - 1 - axis)), y.shape.dims, y))


def _without_term(x: Instruction) -> tuple[Instruction, Instruction | None]:
    """Returns x and the constant of `x + constant`; the value itself and None for anything else."""
    found = split(x) if isinstance(x.op, Add) else None
    return (x, None) if found is None else found


def _constant_before(i: Instruction, cls: type[Mul | Add], axis: int) -> tuple[Instruction, Array, Array] | No | None:
    """Returns x, the constant along an axis, and the weights of a product of `x * constant` or `x + constant`."""
    work, w = i.inputs[0], weight(i.inputs[1])
    found = split(work) if isinstance(work.op, cls) else None
    if found is None or w is None:
        return None
    x, constant = found
    if cls is Add and isinstance(x.op, (Pointwise, Convolution, Dot)):
        return No("the sum is the last op of x's epilogue: nothing would be saved")
    values = along(aligned(constant), i.shape.rank, axis)
    if values is None or len(work.users) > 1 or not i.shape.dtype.is_float:
        what = "sum" if cls is Add else "product"
        return No(f"the constant differs within a channel or column, or the {what} has other users")
    return x, values, w


@SIMPLIFY.on(Convolution, reads=Mul, changes=ROUNDING)
def input_factor_into_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x * s, w) -> convolution(x, w * s), s one number for each channel of x."""
    found = _constant_before(i, Mul, 1)
    if found is None or isinstance(found, No):
        return found
    x, factors, w = found
    group = op_as(i, Convolution).group
    by_row = np.broadcast_to(factors, (group * w.shape[1],)).reshape(group, w.shape[1]).repeat(w.shape[0] // group, 0)
    made = reweighted(b, i.inputs[1], w, by_row.reshape(*w.shape[:2], *(1,) * (w.ndim - 2)))
    return No(OUT_OF_RANGE) if made is None else b.add(i.op, x, made)


@SIMPLIFY.on(Convolution, reads=Add, changes=ROUNDING)
def input_term_out_of_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x + a, w) -> convolution(x, w) + bias, a one number for each channel of x, without padding."""
    found = _constant_before(i, Add, 1)
    if found is None or isinstance(found, No):
        return found
    x, terms, w = found
    if any(op_as(i, Convolution).padding) or op_as(i, Convolution).padding_mode != "default":
        return No("the padding is not part of the sum")
    group = op_as(i, Convolution).group
    inner = w.shape[1]
    by_group = np.broadcast_to(widen(terms), (group * inner,)).reshape(group, 1, inner)
    total = widen(w).reshape(group, -1, inner, w.size // (w.shape[0] * inner) if w.size else 1).sum(-1)
    bias = (total * by_group).sum(-1).reshape(-1, *(1,) * (w.ndim - 2))
    product = b.add(i.op, x, i.inputs[1])
    return b.add(Add(), product, spread(b, bias, product.shape.dims, product))


@SIMPLIFY.on(Mul, reads=Dot, changes=ROUNDING)
def factor_into_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a, w) * s -> dot(a, w * s), s one number, or one for each column; dot(w, a) likewise with rows."""
    found = split(i)
    if found is None or not isinstance(found[0].op, Dot):
        return None
    dot, s = found
    at = next((n for n in (1, 0) if weight(dot.inputs[n]) is not None), None)
    if at is None:
        return None
    w, scale = weight(dot.inputs[at]), aligned(s)
    if len(dot.users) > 1 or w is None or scale is None or not i.shape.dtype.is_float:
        return No("the product has other users")
    rank = i.shape.rank
    factors = along(scale, rank, rank - 1 if at == 1 else rank - 2)
    if factors is None:
        return No(f"the factor differs within a {'column' if at == 1 else 'row'}")
    return _times_factors(b, dot, at, w, factors if at == 1 else factors.reshape(-1, 1))


@SIMPLIFY.on(Sub, reads=Dot)
def difference_from_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """c - dot(a, w) -> dot(a, -w) + c for weights w: the term becomes a bias or residual of the product."""
    c, dot = i.inputs
    if not isinstance(dot.op, Dot) or not i.shape.dtype.is_float:
        return None
    a, old = dot.inputs
    w = weight(old)
    if w is None:
        return None
    if not (one_user(dot) and one_user(old) and one_user(through_views(old))):
        return No("the product or its weights have other users")
    made = b.literal(convert(-widen(w), old.shape.dtype))
    return b.add(Add(), b.add(dot.op, a, made if made.shape.dims == old.shape.dims else b.add(old.op, made)), c)


@SIMPLIFY.on(Dot, reads=Mul, changes=ROUNDING)
def input_factor_into_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a * s, w) -> dot(a, w * s), s one number, or one for each column of a."""
    found = _constant_before(i, Mul, i.shape.rank - 1)
    if found is None or isinstance(found, No):
        return found
    x, factors, w = found
    made = reweighted(b, i.inputs[1], w, factors.reshape(-1, 1))
    return No(OUT_OF_RANGE) if made is None else b.add(Dot(), x, made)


@SIMPLIFY.on(Dot, reads=Add, changes=ROUNDING)
def input_term_out_of_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x + a, w) -> dot(x, w) + dot(a, w) for constants a, w."""
    found = _constant_before(i, Add, i.shape.rank - 1)
    if found is None or isinstance(found, No):
        return found
    x, terms, w = found
    if w.ndim != 2:
        return No("the weights are not one matrix")
    bias = np.broadcast_to(widen(terms), (w.shape[0],)) @ widen(w)
    product = b.add(Dot(), x, i.inputs[1])
    return b.add(Add(), product, spread(b, bias, product.shape.dims, product))


@SIMPLIFY.on(Dot, reads=(Mul, *MOVES), changes=ROUNDING)
def scale_out_of_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a * s, c) -> dot(a, c) * s for a scalar s, also through transposes: the scale moves into the epilogue."""
    for side in (0, 1):
        mul = i.inputs[side]
        moves: list[Instruction] = []
        while isinstance(mul.op, MOVES) and len(mul.inputs) == 1 and one_user(mul):
            moves.append(mul)
            mul = mul.inputs[0]
        if not isinstance(mul.op, Mul):
            continue
        for rest, factor in either(mul):
            scale = through_views(factor)
            if scale.literal is None or scale.shape.elements() != 1:
                continue
            if len(mul.users) > 1:
                return No("the scaled operand has other users")
            if not i.shape.dtype.is_float or i.shape.dtype.highest < float32.highest / 2:
                return No(f"{i.shape.dtype} products may overflow in another order")
            operands = list(i.inputs)
            operands[side] = rest
            for move in reversed(moves):
                operands[side] = b.add(move.op, operands[side])
            product = b.add(Dot(), *operands)
            return b.add(Mul(), product, spread(b, np.asarray(scale.literal.value).reshape(()), product.shape.dims))
    return None


# order and repetition -------------------------------------------------------------------------------------------------


@SIMPLIFY.on(Transpose, reads=Dot)
def dot_of_transposes(i: Instruction, b: Builder) -> Instruction | No | None:
    """transpose(dot(transpose(x), transpose(y))) -> dot(y, x); constants are transposed at compile time."""
    dot = i.inputs[0]
    if not isinstance(dot.op, Dot) or not last_two_swapped(i):
        return None
    if len(dot.users) > 1:
        return No("the product has other users")
    x, y = dot.inputs
    if not all(last_two_swapped(v) or v.is_literal for v in (x, y)) or (x.is_literal and y.is_literal):
        return No("an operand is not transposed")
    turned = [v.inputs[0] if last_two_swapped(v) else b.add(i.op, v) for v in (y, x)]
    return b.add(Dot(), *turned)


@SIMPLIFY.on(Dot, reads=Multibroadcast)
def dot_of_repeated(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(multibroadcast(x), multibroadcast(y)) -> multibroadcast(dot(x, y)) if both broadcast over the same batches."""
    x, y = i.inputs
    if not all(isinstance(v.op, Multibroadcast) and len(v.inputs) == 1 for v in (x, y)):
        return None
    inner = [v.inputs[0].shape.dims for v in (x, y)]
    rank = i.shape.rank
    if any(len(d) < 2 or d[-2:] != v.shape.dims[-2:] for d, v in zip(inner, (x, y), strict=True)):
        return None
    batches: list[list[Dim]] = [[*[1] * (rank - len(d)), *d[:-2]] for d in inner]
    wide = [p if q == 1 else q for p, q in zip(*batches, strict=True)]
    if wide == list(i.shape.dims[:-2]) or any(p not in (1, n) for p, n in zip(batches[0], wide, strict=True)):
        return None
    parts = []
    for v in (x, y):
        dims = (*wide, *v.shape.dims[-2:])
        parts.append(
            v.inputs[0] if v.inputs[0].shape.dims == dims else b.add(Multibroadcast(out_lens=dims), v.inputs[0])
        )
    return b.add(Multibroadcast(out_lens=i.shape.dims), b.add(Dot(), *parts))
