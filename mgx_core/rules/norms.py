"""Recognizes normalizations that exporters decompose into primitive ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.broadcast import Multibroadcast
from ..ops.norm import GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from ..ops.pointwise import Add, Div, Mul, Pow, Recip, Rsqrt, Sqdiff, Sqrt, Sub
from ..ops.reduce import Reduce, ReduceMean
from ..ops.reshape import Reshape
from .constants import aligned, uniform
from .engine import ROUNDING, Builder, Rules
from .matching import either, op_as, other
from .outline import through_views

__all__ = ["NORMS"]

NORMS: Final = Rules("raise-norms")


def reduced_axes(ins: Instruction) -> tuple[int, ...]:
    """Returns the axes that a reduction reduces; none given means all."""
    rank = ins.inputs[0].shape.rank
    return tuple(sorted(op_as(ins, Reduce).axes)) or tuple(range(rank))


def repeated(ins: Instruction, op: type, x: Instruction) -> Instruction | None:
    """Returns the reduction `op` of x that an instruction broadcasts along the reduced axes."""
    inner = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    good = isinstance(inner.op, op) and len(inner.inputs) == 1 and inner.inputs[0] is x
    return inner if good else None


class Root(NamedTuple):
    """Divisor of a norm: the root of a mean plus epsilon."""

    mean: Instruction
    epsilon: float


def inverse_root(ins: Instruction) -> Root | None:
    """rsqrt(mean + eps), 1 / sqrt(mean + eps), recip(sqrt(mean + eps)), (mean + eps) ^ -0.5, repeated or not."""
    at = through_views(ins)
    if isinstance(at.op, Rsqrt):
        return _root(at.inputs[0])
    if isinstance(at.op, Pow) and uniform(at.inputs[1]) == -0.5:
        return _root(at.inputs[0])
    if isinstance(at.op, Recip):
        return root(at.inputs[0])
    if isinstance(at.op, Div) and uniform(at.inputs[0]) == 1:
        return root(at.inputs[1])
    return None


def root(ins: Instruction) -> Root | None:
    """sqrt(mean + eps), (mean + eps) ^ 0.5, repeated or not."""
    at = through_views(ins)
    if isinstance(at.op, Sqrt) or (isinstance(at.op, Pow) and uniform(at.inputs[1]) == 0.5):
        return _root(at.inputs[0])
    return None


def _root(ins: Instruction) -> Root | None:
    ins = through_views(ins)
    if not isinstance(ins.op, Add):
        return None
    for term, rest in either(ins):
        epsilon, mean = uniform(term), through_views(rest)
        if epsilon is not None and isinstance(mean.op, ReduceMean) and len(mean.inputs) == 1:
            return Root(mean, epsilon)
    return None


def squared(ins: Instruction) -> Instruction | None:
    """d in d * d or d ^ 2."""
    if isinstance(ins.op, Mul) and ins.inputs[0] is ins.inputs[1]:
        return ins.inputs[0]
    return ins.inputs[0] if isinstance(ins.op, Pow) and uniform(ins.inputs[1]) == 2 else None


def minus_own_reduction(d: Instruction, op: type) -> tuple[Instruction, tuple[int, ...]] | None:
    """x and the axes in ``x - op(x)`` for a reduction."""
    if not isinstance(d.op, Sub):
        return None
    own = repeated(d.inputs[1], op, d.inputs[0])
    return None if own is None else (d.inputs[0], reduced_axes(own))


def variance_of(mean: Instruction) -> tuple[Instruction, tuple[int, ...]] | None:
    """x and the axes where a mean is the variance of x."""
    power = mean.inputs[0]
    if isinstance(power.op, Sqdiff):
        own = repeated(power.inputs[1], ReduceMean, power.inputs[0])
        found = None if own is None else (power.inputs[0], reduced_axes(own))
    else:
        d = squared(power)
        found = None if d is None else minus_own_reduction(d, ReduceMean)
    return found if found is not None and found[1] == reduced_axes(mean) else None


def _trailing(axes: tuple[int, ...], rank: int) -> bool:
    return axes == tuple(range(rank - len(axes), rank))


def _over_root(i: Instruction) -> Iterator[tuple[Instruction, Root]]:
    """Yields x and the root in ``x / root``, ``x * (1 / root)``."""
    for x, divisor in (i.inputs,) if isinstance(i.op, Div) else either(i):
        under = root(divisor) if isinstance(i.op, Div) else inverse_root(divisor)
        if under is not None:
            yield x, under


@NORMS.on(Mul, Div, reads=Sub, changes=ROUNDING)
def layernorm_from_parts(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x - mean(x)) / sqrt(variance(x) + eps) -> layernorm(x), over trailing axes."""
    for d, under in _over_root(i):
        if not isinstance(d.op, Sub):
            continue
        own, spread = minus_own_reduction(d, ReduceMean), variance_of(under.mean)
        if own is None or spread is None or own[0] is not spread[0] or own[1] != spread[1]:
            return No("the subtracted mean is not the variance's")
        x, axes = own
        if not _trailing(axes, i.shape.rank) or not i.shape.dtype.is_float:
            return No(f"it normalizes over axes {list(axes)}, which are not the last ones")
        return b.add(LayerNorm(axis=axes[0], epsilon=under.epsilon), x)
    return None


@NORMS.on(Add, reads=Sub, changes=ROUNDING)
def layernorm_from_batch_form(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * s + (beta - mean(x) * s), s = rsqrt(variance(x) + eps) * gamma -> layernorm(x, gamma, beta)."""
    for scaled, rest in either(i):
        match scaled, rest:
            case Instruction(Mul()), Instruction(Sub(), (beta, Instruction(Mul()) as product)):
                pass
            case _:
                continue
        for x, s in either(scaled):
            factor = other(product, s)
            mean = None if factor is None else repeated(factor, ReduceMean, x)
            if mean is None or not isinstance(s.op, Mul):
                continue
            for inverse, gamma in either(s):
                under = inverse_root(inverse)
                spread = None if under is None else variance_of(under.mean)
                if under is None or spread is None or spread[0] is not x:
                    continue
                axes = spread[1]
                if reduced_axes(mean) != axes or not _trailing(axes, i.shape.rank):
                    return No("the normalization is not over the last axes")
                made = b.add(Mul(), b.add(LayerNorm(axis=axes[0], epsilon=under.epsilon), x), gamma)
                return b.add(Add(), made, beta)
    return None


@NORMS.on(Mul, Div, reads=(Rsqrt, Sqrt, Pow, Recip, Div), changes=ROUNDING)
def rmsnorm_from_parts(i: Instruction, b: Builder) -> Instruction | No | None:
    """x / sqrt(mean(x * x) + eps) -> rmsnorm(x), over trailing axes."""
    for x, under in _over_root(i):
        if squared(under.mean.inputs[0]) is not x or (
            isinstance(x.op, Sub) and minus_own_reduction(x, ReduceMean) is not None
        ):
            continue
        axes = reduced_axes(under.mean)
        if not _trailing(axes, i.shape.rank) or not i.shape.dtype.is_float:
            return No(f"it normalizes over axes {list(axes)}, which are not the last ones")
        return b.add(RmsNorm(axis=axes[0], epsilon=under.epsilon), x)
    return None


def _factor(ins: Instruction, axis: int) -> Instruction | None:
    """Returns a scale or bias in the form that a norm accepts: broadcast over the axes before `axis` only."""
    value = aligned(ins)
    if value is not None:
        rank = ins.shape.rank
        lead = rank - value.ndim
        if any(n != 1 for n in value.shape[: max(axis - lead, 0)]):
            return None
        source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) else ins
        return source if source.literal is not None else None
    if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1:
        inner = ins.inputs[0]
        lead = ins.shape.rank - inner.shape.rank
        return inner if all(d == 1 for d in inner.shape.dims[: max(axis - lead, 0)]) else None
    return None


def _taken_in(
    i: Instruction, b: Builder, norms: tuple[type[LayerNorm | RmsNorm], ...], before: int, what: str
) -> Instruction | No | None:
    """Appends the other operand of `i` to the operands of a norm that has `before` of them."""
    for norm, term in either(i):
        given = norm.inputs[:before]
        if isinstance(norm.op, norms) and len(given) == before and all(x.is_absent for x in norm.inputs[before:]):
            if len(norm.users) > 1:
                return No("the norm has other users")
            found = _factor(term, norm.op.axis % i.shape.rank)
            if found is None:
                return No(f"the {what} does not match the normalized axes")
            return b.add(norm.op, *given, found)
    return None


@NORMS.on(Mul, reads=(LayerNorm, RmsNorm), changes=ROUNDING)
def scale_into_norm(i: Instruction, b: Builder) -> Instruction | No | None:
    """layernorm(x) * scale -> layernorm(x, scale); rmsnorm likewise."""
    return _taken_in(i, b, (LayerNorm, RmsNorm), 1, "factor")


@NORMS.on(Add, reads=LayerNorm, changes=ROUNDING)
def bias_into_norm(i: Instruction, b: Builder) -> Instruction | No | None:
    """layernorm(x, scale) + bias -> layernorm(x, scale, bias)."""
    return _taken_in(i, b, (LayerNorm,), 2, "term")


# group normalization --------------------------------------------------------------------------------------------------


@NORMS.on(Reshape, reads=InstanceNorm, changes=ROUNDING)
def group_norm_from_instances(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(instancenorm(reshape(x, [n, groups, -1]))) -> groupnorm(x), as exporters write it."""
    inner = i.inputs[0]
    if not isinstance(inner.op, InstanceNorm) or len(i.inputs) > 1:
        return None
    joined, *factors = inner.inputs
    if not isinstance(joined.op, Reshape) or len(joined.inputs) > 1 or joined.shape.rank != 3 or len(inner.users) > 1:
        return None
    x = joined.inputs[0]
    groups = joined.shape.dims[1]
    if x.shape.rank < 2 or x.shape.dims != i.shape.dims or x.shape.dims[0] != joined.shape.dims[0]:
        return No("the result's extents differ from the normalized tensor's, or batches are merged")
    channels = x.shape.dims[1]
    if not isinstance(groups, int) or not isinstance(channels, int) or channels % groups:
        return No("the channels do not divide into the groups")
    if [uniform(f) for f in factors] != [1.0, 0.0][: len(factors)]:
        return No("the factors differ between groups")
    return b.add(GroupNorm(num_groups=groups, epsilon=inner.op.epsilon), x)
