"""Low-precision products and their epilogues through cuDNN, where it is faster than the generated kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Instruction, Kernels, Module, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.activation import GeluErf, GeluTanh, Relu, Sigmoid
from mgx_core.ops.control import Group
from mgx_core.ops.convert import Convert
from mgx_core.ops.pointwise import Add, Clip, Div, Max, Min, Mul, Nearbyint, Sub
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.ops.trigonometry import Tanh
from mgx_core.rules.constants import scalar_of
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.targets.view_steps import viewed
from mgx_core.types.dtype import DType

from ..codegen.narrow_tiles import microseconds, tiles_by_time
from ..emitter import GpuEmitter, has_traced
from ..library.cudnn_narrow import NarrowProblem, Operand, Source, Step, gelu_by_tanh
from .convolutions import to_channels_last
from .narrow_products import narrow, narrow_group, summed_group
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")

BINARY: Final[dict[type[Operation], str]] = {Add: "add", Mul: "mul", Sub: "sub", Div: "div", Max: "max", Min: "min"}
UNARY: Final[dict[type[Operation], str]] = {
    Relu: "relu", Tanh: "tanh", Sigmoid: "sigmoid", GeluErf: "gelu_erf", GeluTanh: "gelu_tanh"
}  # fmt: skip
TYPES: Final = (dt.int8, dt.float8_e4m3fn, dt.float8_e5m2)
# architectures on which the best of the timed tiles was compared with cuDNN: over 81 products and convolutions of resnet50 and
# mobilenet_v2, cuDNN was 8 to 18 % faster for half of the larger windows of bytes, and rarely for others
COMPARED: Final = ("sm_90",)
# operations per microsecond that a generated kernel is estimated to reach where it was faster for such windows, too: those with
# 128 channels by 18 %; half the rate of an H200
FAST: Final = 8e8


@offer(PLANS, QuantDot, QuantConvolution, name="library", when=narrow)
def emit_single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits one cuDNN call that stores the sums."""
    x, w = _operands(e, args)
    lens = op.infer(*(Shape(v.shape.dtype, v.lens) for v in (x, w))).lens()
    to = dt.int32 if x.shape.dtype.is_integer else dt.float32
    return _emit(e, op, x, w, lens, lens, to, None)


@offer(PLANS, Group, name="library", when=narrow_group)
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one cuDNN call for the product and its epilogue."""
    _ready(e)
    group = summed_group(modules[0])
    body, anchor, joint = group.body, group.anchor, group.joint
    lens, result = anchor.shape.lens(), joint.shape.lens()
    if len(body.outputs) != 1 or body.outputs[0].shape.lens() != result:
        raise Refused("the group has several results, or other extents than the product")
    operands, env = group.operands(e, args)
    x, w = _operands(e, operands)
    to = body.outputs[0].shape.dtype
    if to not in (*TYPES, dt.float16, dt.bfloat16, dt.float32):
        raise Refused(f"cuDNN does not store sums as {to}")
    if isinstance(anchor.op, QuantConvolution):
        form = _Form(4, 1, tuple(lens), channels_last(lens))
    else:
        form = _Form(3, 2, (1, prod(lens[:-1]), lens[-1]), [prod(lens), lens[-1], 1])
    steps = _Steps(e, joint, env, form, to)
    steps.read(body.outputs[0])
    return _emit(e, anchor.op, x, w, lens, result, to, steps)


def _ready(e: GpuEmitter) -> None:
    tuner = e.context.tuner
    if tuner is None or not tuner.measures:
        raise Refused("no timed library on this device has 8-bit products with epilogues")


def _operands(e: GpuEmitter, args: Sequence[Value | None]) -> tuple[Value, Value]:
    _ready(e)
    x, w, *zeros = args
    assert x is not None and w is not None
    if has_traced(x):
        raise Refused("cuDNN compiles its kernels for the extents")
    if any(z is not None for z in zeros):
        raise Refused("cuDNN does not support zero points")
    if {x.shape.dtype, w.shape.dtype} - {*TYPES}:
        raise Refused(f"cuDNN does not multiply {x.shape.dtype} and {w.shape.dtype}")
    return x, w


def _emit(
    e: GpuEmitter, op: Any, x: Value, w: Value, lens: list[int], result: list[int], to: DType, steps: _Steps | None
) -> Value:
    if isinstance(op, QuantConvolution):
        return _convolution(e, op, x, w, lens, to, steps)
    if prod(w.lens) != prod(w.lens[-2:]) and any(
        s and n != 1 for n, s in zip(w.lens[:-2], w.strides[:-2], strict=True)
    ):
        raise Refused("the weights differ between batches")
    if x.lens[:-1] != lens[:-1]:
        raise Refused("the left operand is broadcast")
    made = _product(e, x, w, lens, to, steps)
    return Value(Shape(to, result), made.buffer, made.offset)


def _product(e: GpuEmitter, x: Value, w: Value, lens: list[int], to: DType, steps: _Steps | None) -> Value:
    k, n = w.lens[-2:]
    rows = prod(lens[:-1])
    if k % 16 or n % 16:
        raise Refused("cuDNN requires rows of a multiple of 16 bytes")
    problem = NarrowProblem((1, rows, k), (1, k, n), (1, rows, n), (x.shape.dtype, w.shape.dtype, to), *_of(steps))
    plan = _faster(e, problem, rows, n, k)
    w2 = w.view_at(0, Shape(w.shape.dtype, w.lens[-2:], w.strides[-2:]))
    weights = e.packed(w2, [1, k])
    out = e.allocate(to, lens)
    e.library(plan, "y", {"x": e.row_major(x), "w": weights, "y": out, **({} if steps is None else steps.values)})
    return out


def _convolution(
    e: GpuEmitter, op: QuantConvolution, x: Value, w: Value, lens: list[int], to: dt.DType, steps: _Steps | None
) -> Value:
    if len(lens) != 4 or op.group != 1 or x.lens[1] % 16 or lens[1] % 16:
        raise Refused("cuDNN requires ungrouped images whose channels take a multiple of 16 bytes")
    stride, dilation, begins, ends = op.sliding(x.lens[2:], w.lens[2:])
    if min(*begins, *ends) < 0:
        raise Refused("cuDNN requires padding of at least 0")
    problem = NarrowProblem(
        tuple(x.lens),
        tuple(w.lens),
        tuple(lens),
        (x.shape.dtype, w.shape.dtype, to),
        *_of(steps),
        stride,
        dilation,
        tuple(zip(begins, ends, strict=True)),
    )
    plan = _faster(e, problem, prod(lens) // lens[1], lens[1], prod(w.lens[1:]))
    out = e.allocate(to, lens, channels_last(lens))
    given = {"x": to_channels_last(e, x), "w": e.packed(w, channels_last(w.lens)), "y": out}
    e.library(plan, "y", given | ({} if steps is None else steps.values))
    return out


def _of(steps: _Steps | None) -> tuple[tuple[Step, ...], tuple[Operand, ...]]:
    return ((), ()) if steps is None else (tuple(steps.steps), steps.operands)


def _faster(e: GpuEmitter, problem: NarrowProblem, rows: int, columns: int, depth: int) -> Any:
    """Returns cuDNN's plan.

    Errors: Refused if the generated kernel is known or, where kernels are not timed, estimated to be faster.
    """
    traits, tuner = e.context.traits, e.context.tuner
    assert tuner is not None
    whole = problem.types[0].is_integer
    larger = problem.is_window and prod(problem.w[2:]) > 1
    tile = tiles_by_time(rows, columns, depth, 1, traits, whole)[0]
    sums = microseconds(tile, rows, columns, depth, 1, traits, whole)
    if traits.arch in COMPARED and not e.exhaustive and not (whole and larger and problem.flops < FAST * sums):
        raise Refused("generated kernels are faster, except for some larger windows of bytes")
    ours = sums + _finishing(problem)
    if not e.measured and ours < 5.0:
        raise Refused("the generated kernel is faster for small products")
    timed = or_refused(tuner.narrow(problem, e.exhaustive))
    if not e.measured and timed.us > ours:
        raise Refused("the generated kernel is faster")
    return timed.plan


def _finishing(p: NarrowProblem) -> float:
    """Returns estimated microseconds of the generated kernel's epilogue on an H200: rounding and reading tensors."""
    each = 1e-6 * (p.types[2].size == 1) + 1e-6 * sum(prod(o.dims) == prod(p.y) for o in p.operands)
    return each * prod(p.y)


class _Form:
    """The iteration space of the sums as the library sees it."""

    def __init__(self, rank: int, column: int, dims: tuple[int, ...], strides: Sequence[int]) -> None:
        self.rank, self.column, self.dims, self.strides = rank, column, dims, tuple(strides)


class _Steps:
    """Translates a group's members to library steps, for a result type."""

    def __init__(self, e: GpuEmitter, joint: Instruction, env: dict[Instruction, Any], form: _Form, to: DType) -> None:
        self.e, self.joint, self.env, self.form = e, joint, env, form
        self.narrow = to.bits <= 8  # the result tolerates approximations
        self.steps: list[Step] = []
        self.known: dict[Instruction, Source] = {joint: -1}
        self.found: dict[str, Operand] = {}
        self.values: dict[str, Value] = {}

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(self.found.values())

    def read(self, result: Instruction) -> None:
        """Errors: Refused for members without a cuDNN node."""
        at, zero = self._stored(result)
        source = self.source(at)
        if zero:
            source = self._step("add", source, zero)
        if source != len(self.steps) - 1:
            self.steps.append(("identity", source, None))

    def _stored(self, result: Instruction) -> tuple[Instruction, float]:
        """Returns the value before its final conversion, clip and rounding, and the zero point to add.

        An odd zero point added before rounding changes the direction of ties to even.
        """
        to, zero = result.shape.dtype, 0.0
        at = result.inputs[0] if isinstance(result.op, Convert) else result
        if not isinstance(result.op, Convert) or to not in TYPES:
            return at, zero
        if isinstance(at.op, Clip):
            low, high = (scalar_of(i) for i in at.inputs[1:3])
            if low is None or high is None or low > to.lowest or high < to.highest:
                raise Refused("the clip is narrower than the range of the type")
            at = at.inputs[0]
            number = scalar_of(at.inputs[1]) if isinstance(at.op, Add) else None
            if number is not None and number.is_integer() and isinstance(at.inputs[0].op, Nearbyint):
                at, zero = at.inputs[0], number
        elif to.is_integer:
            raise Refused("the conversion wraps around instead of saturating")
        if to.is_integer and not isinstance(at.op, Nearbyint):
            raise Refused("the conversion truncates instead of rounding")
        return (at.inputs[0] if to.is_integer else at), zero

    def source(self, ins: Instruction) -> Source:
        number = scalar_of(ins)
        if number is not None:
            return float(number)
        if ins not in self.known:
            self.known[ins] = self._made(ins)
        return self.known[ins]

    def _made(self, ins: Instruction) -> Source:
        cls = type(ins.op)
        if cls in BINARY and ins.shape.dtype.is_float:
            left, right = (self.source(i) for i in ins.inputs)
            if isinstance(left, float) and cls in (Add, Mul, Max, Min):
                left, right = right, left
            if isinstance(left, float):
                raise Refused(f"cuDNN has no {ins.op.name} of a scalar and a tensor")
            return self._step(BINARY[cls], left, right)
        if cls is GeluErf and ins.shape.dtype.is_float and self.narrow:
            self.steps += gelu_by_tanh(self.source(ins.inputs[0]), len(self.steps))
            return len(self.steps) - 1
        if cls in UNARY and ins.shape.dtype.is_float:
            return self._step(UNARY[cls], self.source(ins.inputs[0]), None)
        if cls is Convert and ins.shape.dtype.is_float and ins.shape.dtype.bits >= 16:
            return self.source(ins.inputs[0])
        if cls is Clip:
            low, high = (scalar_of(i) for i in ins.inputs[1:3])
            if low is None or high is None:
                raise Refused("the bounds of a clip are not constant")
            return self._step("min", self._step("max", self.source(ins.inputs[0]), low), high)
        if ins in self.env or ins.is_literal or ins.op.view is not None:
            return self._operand(ins)
        raise Refused(f"cuDNN has no pointwise node for {ins.op.name}")

    def _step(self, mode: str, left: Source, right: Source | None) -> int:
        self.steps.append((mode, left, right))
        return len(self.steps) - 1

    def _operand(self, ins: Instruction) -> str:
        value = viewed(self.e, ins, self.env)
        if value is None:
            raise Refused("an operand is computed inside the group")
        form, name = self.form, f"o{len(self.found)}"
        lens, strides = value.lens, value.strides
        column = 1 if form.rank == 4 else len(lens) - 1
        varies = [a for a, (n, s) in enumerate(zip(lens, strides, strict=True)) if n != 1 and s]
        if varies in ([], [column]):
            n = lens[column] if varies else 1
            value = value.view_at(0, Shape(value.shape.dtype, [n], [strides[column] or 1]))
            wide = self.e.derived_constant(value, ("single precision",), lambda array: array.astype(np.float32))
            value = self.e.aligned(self.e.row_major(value) if wide is None else wide)
            dims = tuple(n if a == form.column else 1 for a in range(form.rank))
            steps = channels_last(list(dims)) if form.rank == 4 else [n, n, 1]
        elif lens == self.joint.shape.lens() and len(varies) == sum(n != 1 for n in lens):
            value = to_channels_last(self.e, value) if form.rank == 4 else self.e.row_major(value)
            value = self.e.aligned(value)
            dims, steps = form.dims, list(form.strides)
        else:
            raise Refused("an operand is broadcast along some axes only")
        if value.shape.dtype not in (*TYPES, dt.float16, dt.bfloat16, dt.float32):
            raise Refused(f"cuDNN does not read operands of {value.shape.dtype}")
        self.found[name] = Operand(name, dims, tuple(steps), value.shape.dtype)
        self.values[name] = value
        return name
