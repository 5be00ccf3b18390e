"""Matrix products through vendor libraries, with fused epilogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, inf, prod
from typing import Any, Final

import numpy as np

from mgx_core import Instruction, Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_core.ops.pad import Pad
from mgx_core.ops.pointwise import Mul
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.rules.constants import scalar_of
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, packed_strides
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import TracedInt, alignment, divides, usual

from ..codegen.generators import spread, static
from ..codegen.geometry import uniform_step
from ..codegen.movement import pad
from ..codegen.products import ScaledDot, is_small, product
from ..emitter import DEVICE_ALIGNMENT, GpuEmitter
from ..library.gemm_problem import GemmProblem, Matrix
from ..library.varying_product import VaryingProduct, problem_numbers
from ..tuning import TimedPlan
from .epilogues import Steps, read_group
from .offer import emit_generated, offer

__all__ = ["FLOATS", "PLANS", "library_product", "rounded_columns", "timed_product"]

PLANS = Kernels("gpu")
FLOATS: Final = (dt.float32, dt.float16, dt.bfloat16)
COLUMNS: Final = 8  # elements of 2 bytes in a vector of 16 bytes
COPY: Final = 1.5  # minimum microseconds of a launch
BANDWIDTH: Final = 3e6  # bytes per microsecond
PADDED: Final = static(1, pad)


@offer(PLANS, Dot, name="library")
def emit_dot(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return library_product(e, *args)


def _halves(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    a, b, *zero_points = (i.dtype if isinstance(i, Shape) else None for i in inputs)
    if a is b and a in (dt.float16, dt.bfloat16) and not zero_points:
        return None
    return No(f"operands of {a} and {b} have kernels of their own")


@offer(PLANS, QuantDot, name="library", when=_halves)
def emit_wide_dot(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return library_product(e, *_with_one_batch(*args), to=dt.float32)


write_product = spread(product)


@offer(PLANS, QuantDot, name="generated", when=_halves, write=write_product)
def emit_generated_wide_dot(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return emit_generated(e, write_product, op, modules, _with_one_batch(*args))


@offer(PLANS, Group, name="library", when=around(Dot, tag=Dot.name))
@offer(PLANS, Group, name="library", when=around(QuantDot, tag=QuantDot.name, when=_halves))
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found = read_group(e, modules[0], args, Dot if op.tag == Dot.name else QuantDot)
    a, b = _with_one_batch(*found.operands)
    made = library_product(e, a, b, found.epilogue, modules[0].outputs[0].shape.dtype)
    if found.joint is found.anchor:
        return made
    made = e.row_major(made)
    return Value(Shape(made.shape.dtype, found.joint.shape.lens()), made.buffer, made.offset)


@offer(PLANS, Group, name="scaled", when=around(Dot, tag=Dot.name))
def emit_scaled_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits a float16 product that is scaled before it is stored, and what follows in a launch of its own.

    Where a scale was moved from an operand behind the product, the sums may exceed float16 without it.
    """
    env: dict[Instruction, Any] = dict(zip(modules[0].parameters.values(), args, strict=True))
    members = [i for i in modules[0] if not (i.is_param or i.is_return)]
    anchor, tail = members[0], members[-1]
    single = len(members) == 2 and isinstance(anchor.op, Dot) and isinstance(tail.op, PointwiseGroup)
    if not single or anchor.shape.dtype is not dt.float16 or tail.inputs.count(anchor) != 1:
        raise Refused("it is not a float16 product followed by pointwise work")
    rest = tail.modules[0].clone()
    sums = list(rest.parameters.values())[tail.inputs.index(anchor)]
    scaled = sums.users[0] if len(sums.users) == 1 else sums
    alpha = next((scalar_of(x) for x in scaled.inputs if x is not sums), None)
    if not isinstance(scaled.op, Mul) or alpha is None:
        raise Refused("the product is not scaled first")
    a, b = (e.value_of(i, env) for i in anchor.inputs)
    if a.lens[-2] == 1:
        raise Refused("products of one row have kernels of their own")
    marks = e.marks()
    try:
        made = library_product(e, a, b, Steps(alpha=alpha))
    except Refused:
        e.rollback(marks)
        made = e.allocate(dt.float16, [*a.lens[:-1], b.lens[-1]])
        e.kernel(write_product, ScaledDot(alpha), (), [a, b], [made])  # type: ignore[arg-type]
    if rest.outputs == (scaled,):
        return made
    rest.replace(scaled, sums)
    rest.sweep()
    return e.run_op(tail.op, [rest], [made if i is anchor else e.value_of(i, env) for i in tail.inputs])


def _with_one_batch(a: Value, b: Value) -> tuple[Value, Value]:
    """Returns both operands with the batch axes of the result, along which an operand of one matrix has stride 0."""
    rank = max(len(a.lens), len(b.lens)) - 2
    given = [[1] * (rank + 2 - len(x.lens)) + x.lens[:-2] for x in (a, b)]
    batch = [q if p == 1 else p for p, q in zip(*given, strict=True)]
    return _over(a, batch), _over(b, batch)


def _over(x: Value, batch: list[int]) -> Value:
    if x.lens[:-2] == batch:
        return x
    missing = len(batch) + 2 - len(x.lens)
    steps = [0 if n == 1 else s for n, s in zip(x.lens[:-2], x.strides[:-2], strict=True)]
    return x.view_at(0, Shape(x.shape.dtype, [*batch, *x.lens[-2:]], [0] * missing + steps + x.strides[-2:]))


def library_product(e: GpuEmitter, a: Value, b: Value, epilogue: Steps | None = None, to: DType | None = None) -> Value:
    """Returns a [.., m, k] times b [.., k, n], row-major, in the type `to`, by default that of a.  Errors: Refused."""
    if e.context.libraries is None:
        raise Refused("the device has no vendor libraries")
    epilogue = epilogue or Steps()
    operands = dict(epilogue.operands)
    if a.shape.dtype not in FLOATS or a.shape.dtype is not b.shape.dtype:
        raise Refused(f"the libraries do not multiply {a.shape.dtype} and {b.shape.dtype}")
    to = to or a.shape.dtype
    lens = [*a.lens[:-1], b.lens[-1]]
    m, k, n = a.lens[-2], a.lens[-1], b.lens[-1]
    if 0 in lens or k == 0:
        raise Refused("an extent is 0")
    b = _shared(b)
    rounded = rounded_columns(e, b, len(b.lens) - 1, epilogue)
    if rounded is not None:
        made = library_product(e, a, *rounded, to)
        return Value(Shape(to, lens, made.strides), made.buffer, made.offset)
    given = a, b
    count = prod(a.lens[:-2])
    a_matrix, a = _matrix(e, a)
    b_matrix, b = _matrix(e, b)
    residual = operands.get("residual")
    r_matrix = None
    if residual is not None:
        r_matrix, residual = _matrix(e, residual)
        if r_matrix.transposed:
            residual = e.copy(residual)
            r_matrix, residual = _matrix(e, residual)
        operands["residual"] = residual
        r_matrix = replace(r_matrix, align=min(r_matrix.align, 16))
    d_matrix = Matrix(to, n, batch_stride=m * n if count > 1 else 0, align=16)
    numbers = problem_numbers(m, n, k, count, a_matrix, b_matrix, d_matrix, r_matrix)
    problem = GemmProblem(
        usual(m),
        usual(n),
        usual(k),
        a=_usual_strides(a_matrix),
        b=_usual_strides(b_matrix),
        d=_usual_strides(d_matrix),
        batch=usual(count),
        residual=None if r_matrix is None else _usual_strides(r_matrix),
        epilogue=tuple(epilogue.steps),
        alpha=epilogue.alpha,
        bias_dtype=to if "bias" in epilogue.steps else None,
        compute="tf32" if e.tf32 and a.shape.dtype is dt.float32 else "f32",
    )
    found = or_refused(timed_product(e, problem))
    varies = any(type(number) is TracedInt for number in numbers)
    if varies and found.choice.get("library") == "cudnn":
        raise Refused("cuDNN compiles its kernels for the extents")
    copied = sum(_copy_us(x) for x, y in zip(given, (a, b), strict=True) if x.buffer is not y.buffer)
    if e.context.tuner is not None and found.us + copied > _small_us(problem):
        raise Refused("the generated kernel for small matrices is faster")
    if epilogue.steps and e.context.tuner is not None and not e.exhaustive and found.choice.get("library") == "cudnn":
        bare = timed_product(e, replace(problem, epilogue=(), residual=None, bias_dtype=None))
        moved = 2 * count * m * n * to.size
        if not isinstance(bare, No) and bare.us + 2.0 + moved / 3e6 < found.us:
            raise Refused("a product and a separate launch are faster than cuDNN's fused product")
    longer = _longer_rows(e, given[0], given[1], replace(epilogue, operands=operands), problem, found.us)
    if longer is not None:
        return library_product(e, *longer, to)
    out = e.allocate(to, lens)
    if "bias" in operands:
        operands["bias"] = e.aligned(operands["bias"])
    aligns = {"a": a_matrix.align, "b": b_matrix.align}
    plan = VaryingProduct(problem, numbers, e.context.libraries) if varies else found.plan
    e.library(plan, "d", {"a": a, "b": b, "d": out, **operands}, aligns)
    return out


def _usual_strides(x: Matrix) -> Matrix:
    return replace(x, ld=usual(x.ld), batch_stride=usual(x.batch_stride))


def _copy_us(x: Value) -> float:
    return COPY + 2 * usual(x.shape.elements()) * x.shape.dtype.size / BANDWIDTH


def _small_us(p: GemmProblem) -> float:
    """Returns estimated microseconds of the generated kernel for small matrices on an H200, and of a separate epilogue."""
    p = p.folded
    if not is_small(p.m, p.n, p.k):
        return inf
    size, results = p.a.dtype.size, p.batch * p.m * p.n
    shares = (p.m * p.k, p.a), (p.k * p.n, p.b)
    moved = size * (results + sum(n * (p.batch if x.batch_stride else 1) for n, x in shares))
    width = gcd(p.k if p.b.transposed else p.n, 16 // size)
    loads = results * p.k * (2 / width if p.b.transposed else 1 + 1 / width)
    return 2.5 + max(moved / 2.5e6, loads / 4e6) + (2.0 + 2 * results * size / BANDWIDTH if p.epilogue else 0.0)


def _shared(b: Value) -> Value:
    """Removes broadcast batch axes of weights, so that constants computed from them are not expanded."""
    if any(s and n != 1 for n, s in zip(b.lens[:-2], b.strides[:-2], strict=True)):
        return b
    return b.view_at(0, Shape(b.shape.dtype, b.lens[-2:], b.strides[-2:]))


def _longer_rows(
    e: GpuEmitter, a: Value, b: Value, epilogue: Steps, problem: GemmProblem, us: float
) -> tuple[Value, Value, Steps] | None:
    """Pads k with zeros, in rows of `a` and in constant weights, so that rows are a multiple of 16 bytes.

    None unless the padded product and the copy were measured to be faster than `us` microseconds.
    """
    k, more = a.lens[-1], -problem.k % COLUMNS
    if type(k) is TracedInt or not more or a.shape.dtype.size != 2 or e.context.tuner is None or not e.is_constant(b):
        return None
    longer = replace(
        problem,
        k=k + more,
        a=Matrix(a.shape.dtype, k + more, batch_stride=(k + more) * problem.m if problem.batch > 1 else 0, align=16),
        b=Matrix(a.shape.dtype, problem.n, batch_stride=problem.b.batch_stride and (k + more) * problem.n, align=16),
    )
    found = timed_product(e, longer)
    copied = COPY + 2 * problem.batch * problem.m * (k + more) * a.shape.dtype.size / BANDWIDTH
    if isinstance(found, No) or found.us + copied >= us:
        return None
    rows = len(b.lens) - 2
    tall = e.derived_constant(b, ("rows", more), lambda array: _with_zeros(array, rows, more))
    if tall is None:
        return None
    wide = e.allocate(a.shape.dtype, [*a.lens[:-1], k + more])
    pads = [0] * len(a.lens)
    e.kernel(PADDED, Pad(pads=(*pads, *pads[:-1], more)), (), [a], [wide])
    return wide, tall, epilogue


def rounded_columns(e: GpuEmitter, weights: Value, axis: int, epilogue: Steps) -> tuple[Value, Steps] | None:
    """Pads columns of constant weights and bias with zeros, so that rows of 16-bit results are a multiple of 16 bytes.

    None if they are already, or cannot be padded.
    """
    columns, operands = weights.lens[axis], dict(epilogue.operands)
    if not e.is_constant(weights):
        return None
    more = -columns % COLUMNS
    if not more or columns < 2 * COLUMNS or weights.shape.dtype.size != 2 or operands.keys() - {"bias"}:
        return None
    wide = e.derived_constant(weights, ("columns", axis, more), lambda array: _with_zeros(array, axis, more))
    if wide is None:
        return None
    if "bias" in operands:
        found = e.derived_constant(operands["bias"], ("bias", columns, more), lambda array: _bias(array, columns, more))
        if found is None:
            return None
        operands["bias"] = found
    return wide, replace(epilogue, operands=operands)


def _with_zeros(array: Array, axis: int, more: int) -> Array:
    return np.pad(array, [(0, more if a == axis else 0) for a in range(array.ndim)])


def _bias(array: Array, columns: int, more: int) -> Array:
    """Returns the values along the only axis on which an operand varies, zero-padded."""
    axis = next(a for a in reversed(range(array.ndim)) if array.shape[a] == columns and array.strides[a])
    return np.pad(np.moveaxis(array, axis, -1).reshape(-1, columns)[0], (0, more))


def timed_product(e: GpuEmitter, problem: GemmProblem, compiled: bool = True) -> TimedPlan | No:
    """Returns the fastest library plan; compiled: including kernels compiled for the problem."""
    tuner, libraries = e.context.tuner, e.context.libraries
    assert libraries is not None
    if tuner is not None:
        found = tuner.gemm(problem, compiled, e.exhaustive)
    else:
        plan = libraries.plan(problem)
        found = plan if isinstance(plan, No) else TimedPlan.of(plan, 0.0)
    if isinstance(found, No):
        return found
    if problem.a.dtype is dt.float32 and problem.compute == "f32" and found.choice.get("library") == "cudnn":
        return No("cuDNN rounds float32 operands of products to TF32")
    return found


def _matrix(e: GpuEmitter, x: Value) -> tuple[Matrix, Value]:
    """Returns the layout of a [.., rows, columns] value, copied if libraries do not support its strides.

    The copy's rows are its columns where these are contiguous in memory, and are whole vectors if either are.
    """
    ragged = not divides(COLUMNS, x.lens[-2]) and divides(COLUMNS, x.lens[-1])
    turned = x.strides[-2] == 1 and x.strides[-1] != 1 and not ragged
    order = [*range(len(x.lens) - 2), len(x.lens) - 1, len(x.lens) - 2]
    for attempt in (x, None):
        value = e.copy(x, packed_strides(x.lens, order) if turned else None) if attempt is None else attempt
        rows, columns = value.strides[-2:]
        height, width = value.lens[-2:]
        step = uniform_step(value.lens[:-2], value.strides[:-2])
        if step is None:
            continue
        align = alignment(step * value.shape.dtype.size, value.align(DEVICE_ALIGNMENT))  # of each matrix of the batch
        if columns == 1 or width == 1:
            ld = rows if height > 1 and rows >= width else width
            if height == 1 or rows >= width:
                return Matrix(value.shape.dtype, ld, batch_stride=step, align=align), value
        if rows == 1 or height == 1:
            ld = columns if width > 1 and columns >= height else height
            if width == 1 or columns >= height:
                return Matrix(value.shape.dtype, ld, True, step, align), value
    raise Refused(f"libraries do not support the strides of {x.shape}")
