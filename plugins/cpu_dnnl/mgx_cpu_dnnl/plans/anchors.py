"""Registers plans for anchors with two operands: for the single op, and for its groups with a pointwise epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias

from mgx_core import Instruction, Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.dtype import DType

from ..emitter import CpuEmitter
from ..layout import descriptor
from ..native_library import native
from .epilogues import Epilogue, fused_epilogue
from .offer import FLOATS, Check, offer, only
from .precision import narrowed, widened

__all__ = [
    "Run", "floats_around", "float32_only", "of_one_type", "offer_anchor", "offer_widened", "onednn_convolution",
]  # fmt: skip

SPLIT_FACTOR: Final = 4  # oneDNN splits sums only if the weights of a block exceed 1/SPLIT_FACTOR of the L2 cache
BACKWARD_PREFIX: Final = "conv:"  # of transposed-convolution kernels that reuse the backward pass of a convolution

# (emitter, op, x, weights, epilogue or None) -> result
Run = Callable[[CpuEmitter, Any, Value, Value, Epilogue | None], Value]
ShapeCheck: TypeAlias = Callable[[Any, Shape, Shape], No | None]  # (op, x, weights) -> why it is refused, or None


def of_one_type(dtypes: frozenset[DType]) -> Callable[[ShapeCheck], Check]:
    """Returns a decorator that turns a predicate on the shapes of two operands of one of these types into a check."""
    names = " or ".join(sorted(map(str, dtypes), reverse=True))

    def decorate(check: ShapeCheck) -> Check:
        def checked(op: Any, inputs: Sequence[Any], modules: Sequence[Any]) -> No | None:
            x, w = inputs
            if not all(isinstance(s, Shape) and s.dtype in dtypes for s in (x, w)) or x.dtype is not w.dtype:
                return No(f"operands of one type, {names}, are required, got {x} and {w}")
            return check(op, x, w)

        return checked

    return decorate


float32_only: Final = of_one_type(frozenset({dt.float32}))


def floats_around(anchor: type[Operation], when: Check | None = None) -> Check:
    """Returns a check for groups around this op with a supported type; when: an additional check."""
    floats = only(FLOATS, 1)

    def check(op: Any, inputs: Sequence[Any], modules: Sequence[Any]) -> No | None:
        return floats(op, inputs, modules) or (None if when is None else when(op, inputs, modules))

    return around(anchor, when=check, tag=anchor.name)


def offer_anchor(plans: Kernels, anchor: type[Operation], run: Run, name: str, when: Check) -> None:
    """Registers `run` for a single op and for groups around it."""

    @offer(plans, anchor, when=when, name=name)
    def emit_anchor(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
        x, w = args
        return run(e, op, x, w, None)

    def build(e: CpuEmitter, ins: Instruction, operands: Sequence[Value], epilogue: Epilogue | None) -> Value:
        return run(e, ins.op, operands[0], operands[1], epilogue)

    @offer(plans, Group, when=floats_around(anchor, when), name=name)
    def emit_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
        return fused_epilogue(e, modules[0], [a for a in args if a is not None], build)


def offer_widened(plans: Kernels, anchor: type[Operation], run: Run) -> None:
    """Registers `run` for narrow floats on processors without native support: computes in float32, rounds once."""

    @offer(plans, anchor, when=only(frozenset({dt.float16, dt.bfloat16})), name="onednn-wide")
    def emit_wide(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
        x, w = args
        return narrowed(e, run(e, op, widened(e, x), widened(e, w), None), x.shape.dtype)


def onednn_convolution(
    e: CpuEmitter,
    builder: str,
    x: Value,
    w: Value,
    permute: Callable[[Value], Value],
    lens: list[int],
    epilogue: Epilogue | None,
    flops: int,
    out: Value | None = None,
    **numbers: Sequence[int],
) -> Value:
    """Emits a oneDNN convolution or transposed convolution of x [n, c, ..]; operand and result are channels last.

    builder: name in the native module; permute: permutes the axes of w to oneDNN's order; out: memory for the result (default:
    the epilogue's residual, else new memory); numbers: strides, dilations and padding of the windows.
    Errors: Refused if oneDNN has no correct and efficient implementation.
    """
    _native = native()
    if w.shape.broadcasted():  # oneDNN does not support broadcast weights
        array = e.constant(w)
        w = e.copy(w) if array is None else e.literal(array)
    if out is None and epilogue is not None:
        out = epilogue.in_place([x, w], channels_last(lens))
    if out is None:
        out = e.allocate(x.shape.dtype if epilogue is None else epilogue.dtype, lens, channels_last(lens))
    weights = permute(w)
    per = weights.lens[len(weights.lens) - len(x.lens) + 1]  # channels of one group
    if x.shape.dtype is dt.bfloat16 and not e.fast_math and per % 2 and (per > 3 or builder != "convolution"):
        raise Refused(
            f"oneDNN pads {per} channels per group to pairs, which turns infinities into NaN (allowed by fast_math)"
        )
    w_md = descriptor(weights)
    bias = None if epilogue is None else _take_bias(epilogue, lens[1])
    attributes = {} if epilogue is None else epilogue.attributes(e, out)
    made = e.made(
        builder,
        descriptor(x),
        _native.MemoryDesc(list(w_md.dims), w_md.dtype, "any"),
        None if bias is None else descriptor(bias),
        descriptor(out),
        **numbers,
        **attributes,
    )
    if made.impl == "brgconv:avx512_core_amx" and _has_stride_bug(x.lens, weights.lens, numbers["strides"][-1]):
        raise Refused(
            f"oneDNN's {made.impl} is incorrect for {x.lens[1]} channels and strided windows of width {w.lens[-1]}"
        )
    if (bias is not None or attributes) and _has_split_sum_bug(
        made.impl, prod(weights.lens) // lens[1] * x.shape.dtype.size
    ):
        raise Refused(f"oneDNN's {made.impl} may apply bias and post-ops to partial sums")
    if epilogue is not None and made.impl.startswith(BACKWARD_PREFIX):
        raise Refused(f"oneDNN's {made.impl} applies post-ops element by element with its reference implementation")
    packed = e.packed(weights, w_md, made.weights) if e.is_constant(w) else e.reordered(weights, w_md, made.weights)
    bound = {_native.ARG_SRC: x, _native.ARG_WEIGHTS: packed, _native.ARG_DST: out}
    if bias is not None:
        bound[_native.ARG_BIAS] = bias
    if epilogue is not None:
        bound |= epilogue.arguments(made)
    e.primitive(f"{builder.removesuffix('olution')} {made.impl}", made, bound, flops=flops)
    return out


def _has_stride_bug(lens: Sequence[int], weights: Sequence[int], step: int) -> bool:
    """Returns True if oneDNN 3.2 may compute wrong results on AMX: it misplaces channels of a partial tile at the end of rows.

    lens: of the input, [n, c, ..]; weights: extents, with a leading group axis for grouped convolutions.  Grouped convolutions
    are not affected (determined by experiment, 17 to 80 channels per group).
    """
    grouped = len(weights) > len(lens)
    return not grouped and lens[1] % 32 != 0 and weights[-1] % 2 == 0 and step > 1


def _has_split_sum_bug(impl: str, size: int) -> bool:
    """Returns True if oneDNN 3.2 may apply bias and post-ops once per partial sum instead of once per sum.

    Its strided transposed convolutions split the reduction if the weights of 64 outputs exceed the L2 cache, and apply the
    epilogue to each part.  Determined by experiment with 1 MiB of L2: wrong from 1 MiB of weights on, in one case out of five.
    size: bytes of the weights of one output channel.
    """
    return "brgconv_strided" in impl and SPLIT_FACTOR * 64 * size > int(native().cache_sizes().get("l2", 0))


def _take_bias(epilogue: Epilogue, channels: int) -> Value | None:
    """Removes the first link and returns its operand as the bias, if it adds one value per channel; else None."""
    for position, (link, operand) in enumerate(epilogue.links[:2]):
        if link.kind != "binary" or link.algorithm != "add" or operand is None or operand is epilogue.residual:
            if position == 0 and link.kind == "binary" and link.algorithm == "add":
                continue
            return None
        varies = [a for a, (n, s) in enumerate(zip(operand.lens, operand.strides, strict=True)) if s and n != 1]
        if varies != [1] or operand.strides[1] != 1 or operand.lens[1] != channels:
            return None
        del epilogue.links[position]
        return Value(Shape(operand.shape.dtype, [channels]), operand.buffer, operand.offset)
    return None
