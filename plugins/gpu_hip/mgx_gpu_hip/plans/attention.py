"""Attention by cuDNN's fused engines where they are faster, otherwise by a generated kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Instruction, Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.attention import Attention
from mgx_core.ops.control import Group
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Add, Mul
from mgx_core.ops.reshape import regroup
from mgx_core.ops.softmax import Softmax
from mgx_core.rules.constants import scalar_of
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last

from ..codegen.attention import (
    attention_kernel,
    attention_microseconds,
    reading_microseconds,
    separate_microseconds,
)
from ..codegen.attention_pattern import Pattern, from_group, from_op, transposed_from
from ..codegen.bodies import Access, flat
from ..codegen.generators import Inputs, computing
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import DEVICE_ALIGNMENT, LIBRARY_ALIGNMENT, GpuEmitter, has_traced, tensor_of
from ..library.attention import AttentionProblem
from .loops import write_pointwise
from .offer import generated, offer, output_like
from .readers import is_convolution

__all__ = ["PLANS"]

PLANS = Kernels("gpu")
LIBRARY = 8.0  # the least microseconds of the library's attention, whose engines take seconds to compile


def write_group(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    pattern = from_group(modules[0], [x for x in xs if x is not None], ys[0])
    if isinstance(pattern, No):
        return pattern
    if _separate_is_faster(pattern, traits):
        return No("few blocks would read long keys: separate products are faster")
    return attention_kernel(pattern, traits)


def _separate_is_faster(p: Pattern, traits: DeviceTraits) -> bool:
    """Returns True for many queries and keys of few large heads, whose blocks would read the keys many times.

    On an H200, 1,024 queries and 2,048 keys of one head of 256 elements took 57 us, and 1,024 of both 34; separately 15 and 11.
    """
    whole = max(attention_microseconds(p, traits), reading_microseconds(p, traits))
    return p.s > 4 and p.dtype.bits == 16 and separate_microseconds(p) < 0.7 * whole


def write_op(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> KernelSource | No:
    if any(x is not None and x.dtype is dt.float64 for x in xs):
        return No("the kernel has no float64")
    pattern = from_op(op, xs, ys[0])
    return pattern if isinstance(pattern, No) else attention_kernel(pattern, traits)


@offer(PLANS, Group, name="library", when=tagged("attention", "attention"))
def emit_library(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one library call that does not materialize the scores."""
    tuner = e.context.tuner
    if tuner is None:
        raise Refused("the device has no vendor libraries")
    if has_traced(*args):
        raise Refused("library attention is compiled for the extents")
    if any(a.shape.dtype not in (dt.float16, dt.bfloat16) for a in args):
        raise Refused("library attention requires 16-bit floats")
    body = modules[0]
    shape = body.outputs[0].shape
    whole = out = e.allocate(shape.dtype, shape.lens(), _as_image(e, shape))
    xs = [tensor_of(a) for a in args]
    pattern: Pattern = or_refused(
        e.once(("attention", body, tuple(xs), tensor_of(out)), lambda: from_group(body, xs, tensor_of(out)))
    )
    if len(pattern.batch) not in (1, 2, 3):
        raise Refused(f"library attention has one to three batch axes, got {len(pattern.batch)}")
    if pattern.after is not None:
        out = e.allocate(pattern.dtype, shape.lens(), whole.strides)
    generated = attention_microseconds(pattern, e.context.traits)
    scale, biased = or_refused(_scores(body))
    problem, operands = or_refused(_problem(e, pattern, scale, args, out, biased=biased))
    if not e.exhaustive and _turned(pattern) and generated < LIBRARY + _copy_microseconds(pattern):
        raise Refused("the generated kernel is faster than copies of the operands")
    timed = or_refused(tuner.attention(problem, e.exhaustive))
    rest = _copy_microseconds(pattern)
    rest += 0.0 if pattern.after is None else 2.5 + prod(out.lens) * (out.shape.dtype.size + 1) / 3e6
    if not e.exhaustive and timed.us + rest > generated:
        raise Refused("the generated kernel is faster")
    if not e.exhaustive and 0.7 * (timed.us + rest) > separate_microseconds(pattern):
        raise Refused("separate products are faster")
    e.library(timed.plan, "o", {"o": out, **operands})
    if pattern.after is not None:
        assert pattern.after_module is not None
        given = [out, *(args[n] for n in pattern.after.index[1:])]
        e.kernel(write_pointwise, Group(tag="pointwise"), [pattern.after_module], given, [whole])
    return whole


@offer(PLANS, Group, name="attention", when=tagged("attention", "attention"), write=write_group)
def emit_generated(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch that does not materialize the scores."""
    shape = modules[0].outputs[0].shape
    image = _as_image(e, shape)
    if image is not None:
        out = e.allocate(shape.dtype, shape.lens(), image)
        try:
            e.kernel(write_group, op, modules, list(args), [out])
            return out
        except Refused:  # an epilogue requires a row-major result
            pass
    out = e.allocate(shape.dtype, shape.lens())
    e.kernel(write_group, op, modules, list(args), [out])
    return out


def _as_image(e: GpuEmitter, shape: Shape) -> list[int] | None:
    """Returns strides of the result that make it an image, channels last, for the convolutions that read it; None otherwise.

    Convolutions would copy a row-major result: a product of 8192 x 640 x 768 took 37 us on an H200 with such a copy.
    """
    if e.current is None or e.current.result != Shape(shape.dtype, shape.lens()):
        return None  # a member of a group, or symbolic
    chain, at = [], e.current
    while at.users and not all(map(is_convolution, map(op_of, at.users))):
        (reader, *others), before = at.users, at
        at = reader
        chain.append((op_of(reader), before.shape.lens()))
        if others or not (isinstance(op_of(reader), Transpose) or op_of(reader).reshapes) or len(reader.inputs) > 1:
            return None
    if not at.users or not isinstance(at.result, Shape) or at.shape.dynamic() or at.shape.rank < 3:
        return None
    e.uncacheable()  # depends on the readers
    laid = Shape(shape.dtype, at.shape.lens(), channels_last(at.shape.lens()))
    for op, lens in reversed(chain):
        if isinstance(op, Transpose):
            laid = transposed_from(op, laid)
        else:
            seen = regroup(laid, tuple(lens))
            if seen is None:
                return None
            laid = seen[1]
    return laid.strides()


@offer(PLANS, Attention, name="library")
def emit_library_op(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one library call for attention without masks, or causal from the first key on: every query has a key."""
    tuner = e.context.tuner
    if tuner is None:
        raise Refused("the device has no vendor libraries")
    q, k, v, *others = args
    if any(x is not None for x in others) or op.replace(scale=None, causal=False, precision=None) != Attention():
        raise Refused("library attention of this op has no masks, lengths, sinks, offsets, windows or caps")
    if has_traced(q, k, v):
        raise Refused("library attention is compiled for the extents")
    if q.shape.dtype not in (dt.float16, dt.bfloat16):
        raise Refused("library attention requires 16-bit floats")
    out = output_like(e, q.shape.dtype, [*q.lens[:3], v.lens[3]], [q, k, v])
    pattern = or_refused(from_op(op, [tensor_of(x) for x in (q, k, v)], tensor_of(out)))
    scale = 1 / math.sqrt(max(pattern.d, 1)) if op.scale is None else op.scale
    problem, operands = or_refused(_problem(e, pattern, scale, (q, k, v), out, causal=op.causal))
    timed = or_refused(tuner.attention(problem, e.exhaustive))
    if not e.exhaustive and timed.us + _copy_microseconds(pattern) > attention_microseconds(pattern, e.context.traits):
        raise Refused("the generated kernel is faster")
    e.library(timed.plan, "o", {"o": out, **operands})
    return out


generated(PLANS, computing(write_op), Attention)


def _problem(
    e: GpuEmitter,
    p: Pattern,
    scale: float,
    args: Sequence[Value],
    out: Value,
    biased: bool = False,
    causal: bool = False,
) -> tuple[AttentionProblem, dict[str, Value]] | No:
    operands = {w: _seen(args[a.index], a) for w, a in (("q", p.q), ("k", p.k), ("v", p.v))}
    if any(x.shape.dtype is not out.shape.dtype for x in operands.values()):
        return No("library attention requires operands and a result of one type")
    if 0 in (*p.batch, p.s, p.t, p.d, p.e):
        return No("an extent is 0")
    if any(v.align(DEVICE_ALIGNMENT) % LIBRARY_ALIGNMENT for v in operands.values()):
        return No(f"its operands are not aligned to {LIBRARY_ALIGNMENT} bytes")
    share = p.batch[-1] if len(p.batch) == 3 else 1
    heads = prod(p.batch[1:]) if len(p.batch) > 1 else p.batch[0]
    batch = p.batch[0] if len(p.batch) > 1 else 1
    sizes = {"q": (p.s, p.d), "k": (p.t, p.d), "v": (p.t, p.e)}
    laid = {"q": p.q.strides, "k": p.k.strides, "v": p.v.strides}
    for word in _turned(p):
        x, before = operands[word], laid[word]
        unique = [n if s else 1 for n, s in zip((*p.batch, *sizes[word]), before, strict=True)]
        operands[word] = copied = e.copy(Value(Shape(x.shape.dtype, unique, before), x.buffer, x.offset))
        laid[word] = tuple(t if s else 0 for s, t in zip(before, copied.strides, strict=True))
    q, k, v, o = laid["q"], laid["k"], laid["v"], p.o
    if len(p.batch) == 3:
        if any(x[2] for x in (k, v)) or any(x[1] != share * x[2] for x in (q, o)):
            return No("the heads have two axes, but do not share keys and values")
        q, o = ((x[0], *x[2:]) for x in (q, o))
        k, v = ((*x[:2], *x[3:]) for x in (k, v))
    shared = heads // share if share > 1 else 0
    for word, steps, rows in (("q", q, p.s), ("k", k, p.t), ("v", v, p.t), ("o", o, p.s)):
        counts = (batch, shared or heads if word in ("k", "v") else heads, rows)
        if any(s == 0 and n != 1 for s, n in zip(reversed(steps[:-1]), reversed(counts), strict=False)):
            return No(f"{word} is broadcast along an axis, which the library does not support")
    bias: dict[str, Any] = {}
    if biased:
        assert p.score is not None
        reads = p.score.reads()
        if len(reads) != 1:
            return No("more than one term is added to the scores")
        number = p.score.index[reads[0].index]
        if p.sees and not _every_query_sees_a_key(e, args[number]):
            return No("queries without keys must give zeros, which the library does not support")
        at = Access(number, reads[0].strides, reads[0].offset)
        whole = (batch, heads, p.s, p.t)
        steps = at.strides
        if len(p.batch) == 3:
            if steps[1] != share * steps[2]:
                return No("the layout of the bias differs between groups of heads and heads")
            steps = (steps[0], *steps[2:])
        strides = (0,) * (4 - len(steps)) + steps
        lens = tuple(n if s else 1 for n, s in zip(whole, strides, strict=True))
        if lens[3] != p.t:
            return No("the bias is broadcast over the keys")
        seen = _seen(args[at.index], at)
        summand = e.aligned(Value(Shape(seen.shape.dtype, lens, strides), seen.buffer, seen.offset), inner=3)
        operands["bias"] = summand
        bias = {"bias": lens, "bias_strides": tuple(s or 1 for s in summand.strides)}
    problem = AttentionProblem(
        batch, heads, p.s, p.t, p.d, q=_four(q), k=_four(k), v=_four(v), o=_four(o), scale=scale,
        kv_heads=shared, v_size=p.e, dtype=out.shape.dtype, causal=causal, **bias,
    )  # fmt: skip
    return problem, operands


def _turned(p: Pattern) -> list[str]:
    """Returns the operands whose rows are not adjacent elements, as in images, channels first: the library requires copies."""
    return [w for w, a in (("q", p.q), ("k", p.k), ("v", p.v)) if a.strides[-1] != 1]


def _copy_microseconds(p: Pattern) -> float:
    """Returns estimated microseconds of the copies that the library requires."""
    size = prod(p.batch) * p.dtype.size * max(p.s, p.t) * max(p.d, p.e)
    return len(_turned(p)) * (2.5 + 2 * size / 3e6)


def _every_query_sees_a_key(e: GpuEmitter, summand: Value) -> bool:
    """Returns True if a constant mask leaves every query at least one key."""
    array = e.constant(summand)
    return array is not None and bool(np.isfinite(array.max(axis=-1).astype(np.float32)).all())


def _scores(body: Module) -> tuple[float, bool] | No:
    """Returns the scale of the product, and True if a bias is added to it."""
    whole = flat(body)
    softmax = next(i for i in whole if isinstance(i.op, Softmax))
    at, scale, biased = softmax.inputs[0], 1.0, False
    while not isinstance(at.op, Dot):
        numbers = [scalar_of(i) for i in at.inputs]
        if isinstance(at.op, Mul) and len(at.inputs) == 2 and any(n is not None for n in numbers):
            side = 0 if numbers[1] is not None else 1
            factor = numbers[1 - side]
            assert factor is not None
            scale *= factor
            at = at.inputs[side]
        elif isinstance(at.op, Add) and not biased and scale == 1.0:
            sides = [n for n, i in enumerate(at.inputs) if _from_product(i)]
            if len(sides) != 1:
                return No("the scores are a sum of products")
            biased, at = True, at.inputs[sides[0]]
        else:
            return No(f"library attention does not support {at.op.name} of the scores")
    return scale, biased


def _from_product(ins: Instruction) -> bool:
    while not isinstance(ins.op, Dot):
        if not isinstance(ins.op, Mul):
            return False
        ins = next((i for i in ins.inputs if scalar_of(i) is None), ins.inputs[0])
    return True


def _seen(x: Value, access: Access) -> Value:
    return Value(Shape(x.shape.dtype, x.lens, x.strides), x.buffer, x.offset + access.offset)


def _four(strides: Sequence[int]) -> tuple[int, int, int, int]:
    """Returns strides over [batch, heads, rows, columns]; strides of axes of extent 1 are replaced by valid ones."""
    a, b, c, d = (*(0,) * (4 - len(strides)), *strides)
    step = c or d
    b = b or step * 8
    return a or b * 8, b, step, d
