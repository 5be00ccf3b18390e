"""Matrix products through oneDNN, with weights packed once and pointwise work as post-ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Instruction, Kernels, Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.linear import Dot
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.traced_int import usual

from ..emitter import CpuEmitter
from ..layout import descriptor, is_nested
from ..native_library import native
from .anchors import floats_around
from .epilogues import Epilogue, fused_epilogue
from .native_loops import native_loop
from .offer import FLOATS, offer, only
from .packed_products import packed_group, packed_product
from .precision import narrowed, widened

__all__ = ["PLANS", "plain_product", "product"]

PLANS = Kernels("cpu")
MIN_BATCHED_ROWS: Final = 16  # with fewer rows per matrix, copying the batch together is cheaper than a batched product
MAX_SMALL: Final = 64**3  # maximum multiplications of a product for which compiled loops beat oneDNN's generic GEMM
MIN_READ_BYTES: Final = 1 << 16  # minimum bytes of a matrix that is not constant to multiply it row by row
MIN_COLUMNS: Final = 512  # per work item, which reads pieces of rows that are long enough for prefetching
MIN_ROWS: Final = 8  # minimum rows assumed by its cost: below it, moving the right matrix dominates


@offer(PLANS, Dot, when=only(FLOATS), name="product")
def emit_dot(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    a, b = args
    return plain_product(e, a, b)


@offer(PLANS, Group, when=floats_around(Dot), name="product")
def emit_dot_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    given = [a for a in args if a is not None]
    with e.trial() as trial:
        fused = packed_group(e, modules[0], given)
        trial.keep()
        return fused
    return fused_epilogue(e, modules[0], given, build)


def build(e: CpuEmitter, anchor: Instruction, operands: Sequence[Value], epilogue: Epilogue | None) -> Value:
    if epilogue is None:
        return plain_product(e, operands[0], operands[1])
    if _is_read_by_rows(e, operands[0], operands[1]):
        raise Refused("the loop over the rows of a matrix that is not constant has no epilogue")
    return product(e, operands[0], operands[1], epilogue, loops=True)


def plain_product(e: CpuEmitter, a: Value, b: Value) -> Value:
    """Emits a product without epilogue: as a compiled loop, through oneDNN, or bfloat16 in float32."""
    if _is_read_by_rows(e, a, b):
        return _row_product(e, a, b)
    with e.trial() as trial:
        (found,) = packed_product(e, a, b)
        trial.keep()
        return found
    if a.shape.dtype is not dt.bfloat16 or b.shape.dtype is not dt.bfloat16:
        return product(e, a, b, None, loops=True)
    with e.trial() as trial:
        found = product(e, a, b, None)
        trial.keep()
        return found
    return narrowed(e, product(e, widened(e, a), widened(e, b), None), dt.bfloat16)


def _is_read_by_rows(e: CpuEmitter, a: Value, b: Value) -> bool:
    """Returns True for one row times a float32 matrix that is not constant, which oneDNN would copy before it multiplies."""
    large = usual(a.lens[-1] * b.lens[-1]) * 4 >= MIN_READ_BYTES and prod(a.lens[:-1]) == prod(b.lens[:-2]) == 1
    return large and a.shape.dtype is b.shape.dtype is dt.float32 and b.strides[-1] == 1 and e.constant(b) is None


def _row_product(e: CpuEmitter, a: Value, b: Value) -> Value:
    k, n = b.lens[-2:]
    out = e.allocate(dt.float32, [*a.lens[:-1], n])
    width = max(MIN_COLUMNS, -(-n // (e.threads or native().thread_count())))
    numbers = [k, n, width, a.strides[-1], b.strides[-2]]
    native_loop(e, "row product", "row_product", [a, b, out], [out], numbers, -(-n // width), flops=2 * k * n)
    return out


def _is_small(a: Value, b: Value) -> bool:
    """Returns True for a batch of small float32 products, for which compiled loops are faster than oneDNN's generic GEMM."""
    rows, k, columns = *a.lens[-2:], b.lens[-1]
    few = max(rows, MIN_ROWS) * k * columns <= MAX_SMALL
    return few and a.shape.dtype is dt.float32 and any(n != 1 for n in a.lens[:-2])


def matmul_operand(e: CpuEmitter, value: Value) -> Value:
    """Returns a value with unit stride along one of the last two axes, as oneDNN's matmul requires; copies it if needed."""
    rows, columns = value.strides[-2:]
    high, wide = value.lens[-2:]
    if any(s == 0 and n != 1 for n, s in ((high, rows), (wide, columns))):
        return e.copy(value)
    if not is_nested(value):
        return e.row_major(value)
    if wide == 1 and columns != 1:
        # the stride of an axis of extent 1 is arbitrary, but oneDNN's matmul checks it
        return value.view_at(0, Shape(value.shape.dtype, value.lens, [*value.strides[:-1], 1]))
    if high == 1 and columns == 1 and rows != wide:  # likewise, and so that equal products share a primitive
        return value.view_at(0, Shape(value.shape.dtype, value.lens, [*value.strides[:-2], wide, 1]))
    if columns == 1 or ((rows == 1 or high == 1) and columns > 0):
        return value
    return e.row_major(value)


def product(
    e: CpuEmitter, a: Value, b: Value, epilogue: Epilogue | None, out: Value | None = None, *, loops: bool = False
) -> Value:
    """Emits the product of a [.., m, k] and b [.., k, n], row-major, through oneDNN.

    out: memory for the result (default: the residual's, or new); loops: refuse products for which compiled loops are faster.
    """
    _native = native()
    e.require_fixed("matmul", "matmul", [a, b])
    lens = [*a.lens[:-1], b.lens[-1]]
    k = a.lens[-1]
    if epilogue is not None and epilogue.residual is not None:
        out = epilogue.in_place([a, b], Shape(epilogue.dtype, lens).strides())
    if out is None:
        out = e.allocate(a.shape.dtype if epilogue is None else epilogue.dtype, lens)
    if 0 in lens or k == 0:
        raise Refused("an extent is 0")
    a, b = matmul_operand(e, a), matmul_operand(e, b)
    flat = _flattened(a, b, out)
    if flat is None and a.lens[-2] < MIN_BATCHED_ROWS:
        a, flat = _merge_batch(e, a, b, out)
    if flat is None and b.shape.dtype is dt.bfloat16 and k % 2 and not e.fast_math and b.shape.broadcasted():
        b = e.copy(b)  # for odd k and broadcast matrices oneDNN pads with values that turn infinities into NaN
    if flat is not None:
        (a_md, b_md, out_md), shape_of = flat
    else:
        a_md, b_md, out_md = descriptor(a), descriptor(b), descriptor(out)
        shape_of = None
    attributes = {} if epilogue is None else epilogue.attributes(e, out, shape_of)
    weights = e.constant(b)
    wanted = _native.MemoryDesc(list(b_md.dims), b_md.dtype, "any") if weights is not None else b_md
    made = e.made("matmul", a_md, wanted, out_md, **attributes)
    if loops and flat is None and made.impl.startswith("gemm") and _is_small(a, b):
        raise Refused("oneDNN would call its generic GEMM for each small product of the batch")
    packed = e.packed(b, b_md, made.weights) if weights is not None else b
    bound = {_native.ARG_SRC: a, _native.ARG_WEIGHTS: packed, _native.ARG_DST: out}
    if epilogue is not None:
        bound |= epilogue.arguments(made)
    e.primitive(f"matmul {made.impl}", made, bound, flops=2 * k * prod(lens))
    return out


def _merge_batch(e: CpuEmitter, a: Value, b: Value, out: Value) -> tuple[Value, Any]:
    """Returns a and its descriptors of `_flattened`, copying a if that merges the batch into one product; else (a, None)."""
    with e.trial() as trial:
        copied = e.copy(a)
        flat = _flattened(copied, b, out)
        if flat is not None:
            trial.keep()
            return copied, flat
    return a, None


def _flattened(a: Value, b: Value, out: Value) -> Any:
    """Returns descriptors of the batch as one product if b is the same for all and the rows of a have one stride; else None."""
    rank = len(a.lens)
    if rank < 3 or any(s != 0 and n != 1 for n, s in zip(b.lens[:-2], b.strides[:-2], strict=True)):
        return None
    rows, step = prod(a.lens[:-1]), a.strides[-2]
    if a.strides[-1] != 1 and a.lens[-1] != 1:
        return None
    expected = step
    for n, s in zip(reversed(a.lens[:-1]), reversed(a.strides[:-1]), strict=True):
        if n != 1 and s != expected:
            return None
        expected *= n
    if a.lens[-2] == 1:
        step = a.strides[-3] if a.lens[-3] != 1 else max(a.strides[-2], a.lens[-1])
        if rank > 3 and any(n != 1 for n in a.lens[:-3]):
            return None
    step = max(step, a.lens[-1])
    if not out.shape.standard():
        return None
    k, n = a.lens[-1], b.lens[-1]
    a_md = descriptor(a, [rows, k], [step, 1])
    b_md = descriptor(b, b.lens[-2:], b.strides[-2:])
    out_md = descriptor(out, [rows, n], [n, 1])
    return (a_md, b_md, out_md), (rows, n)
