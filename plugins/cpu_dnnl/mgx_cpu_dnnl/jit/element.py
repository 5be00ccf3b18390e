"""Element types in memory and in registers, and conversions between them."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from .code import Code, V
from .float_steps import clamp

__all__ = ["MEMORY", "computed", "convert", "elem_of", "from_memory", "raw_type", "supported", "to_memory"]

# IR types of elements in memory; bool takes a byte
MEMORY: Final[dict[DType, str]] = {
    dt.bool_: "i8", dt.int8: "i8", dt.uint8: "i8", dt.int16: "i16", dt.uint16: "i16", dt.int32: "i32", dt.uint32: "i32",
    dt.int64: "i64", dt.uint64: "i64", dt.float16: "half", dt.bfloat16: "i16", dt.float32: "float",
    dt.float64: "double",
}  # fmt: skip


def supported(dtype: DType) -> bool:
    return dtype in MEMORY


def raw_type(dtype: DType) -> DType | None:
    """Returns an integer type of the same width, for copying bits."""
    return {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}.get(dtype.size)


def computed(dtype: DType) -> DType:
    """Returns the type that values of `dtype` have in registers."""
    return dt.float32 if dtype in (dt.float16, dt.bfloat16) else dtype


def elem_of(dtype: DType) -> str:
    """Returns the IR element type of values in registers."""
    return "i1" if dtype is dt.bool_ else MEMORY[computed(dtype)]


def from_memory(c: Code, x: V, dtype: DType) -> V:
    """Returns a loaded value in its register type."""
    if dtype is dt.bool_:
        return c.compare("ne", x, c.const(0, x))
    if dtype is dt.float16:
        wide = c.cast("fpext", x, "float")
    elif dtype is dt.bfloat16:
        whole = c.cast("zext", x, "i32")
        wide = c.cast("bitcast", c.op("shl", whole, c.const(16, whole)), "float")
    else:
        return x
    c.narrow[wide.ref] = x
    return wide


def to_memory(c: Code, x: V, dtype: DType) -> V:
    """Returns a computed value in its memory type: narrow floats are rounded to nearest even.

    AVX512-BF16 rounds subnormal numbers to 0, as all arithmetic of programs does.
    """
    if dtype is dt.bool_:
        return c.cast("zext", x, "i8")
    if dtype in (dt.float16, dt.bfloat16):
        known = c.narrow.get(x.ref)
        if known is not None and known.elem == MEMORY[dtype]:
            return known
    if dtype is dt.float16:
        return c.cast("fptrunc", x, "half")
    if dtype is dt.bfloat16 and c.bfloat16:
        return c.cast("bitcast", c.cast("fptrunc", x, "bfloat"), "i16")
    if dtype is dt.bfloat16:
        whole = c.cast("bitcast", x, "i32")
        last = c.op("and", c.op("lshr", whole, c.const(16, whole)), c.const(1, whole))
        rounded = c.op("add", c.op("add", whole, c.const(0x7FFF, whole)), last)
        nan = c.op("or", whole, c.const(0x00400000, whole))
        rounded = c.select(c.compare("uno", x, x), nan, rounded)
        return c.cast("trunc", c.op("lshr", rounded, c.const(16, whole)), "i16")
    return x


def convert(c: Code, x: V, dtype: DType, to: DType) -> V:
    """Returns a computed value of one type as a computed value of another, as `mgx_core.ops.scalar.convert` defines it."""
    if to in (dt.float16, dt.bfloat16):
        wide = convert(c, x, dtype, dt.float32)
        return wide if dtype is to else from_memory(c, to_memory(c, wide, to), to)
    dtype = computed(dtype)
    if dtype is to:
        return x
    elem = elem_of(to)
    if to is dt.bool_:
        return c.compare("une" if dtype.is_float else "ne", x, c.const(0, x))
    if dtype is dt.bool_:
        return c.cast("uitofp" if to.is_float else "zext", x, elem)
    if dtype.is_float and to.is_float:
        return c.cast("fpext" if to.bits > dtype.bits else "fptrunc", x, elem)
    if dtype.is_float:
        if to.bits < 32:  # through int32, for which the CPU has vector conversions
            x = clamp(c, x, float(to.lowest), float(to.highest))
            x = c.select(c.compare("uno", x, x), c.const(0.0, x), x)
            return c.cast("trunc", c.cast("fptosi", x, "i32"), elem)
        return _whole(c, x, to)
    if to.is_float:
        return c.cast("sitofp" if dtype.kind == "i" else "uitofp", x, elem)
    if to.bits == dtype.bits:
        return x
    if to.bits < dtype.bits:
        return c.cast("trunc", x, elem)
    return c.cast("sext" if dtype.kind == "i" else "zext", x, elem)


def _whole(c: Code, x: V, to: DType) -> V:
    """Converts floats to 32- or 64-bit integers: truncates, saturates, and maps NaN to 0.

    Uses vector comparisons and selects, since LLVM scalarizes its saturating conversion.
    """
    signed = to.kind == "i"
    low, end = c.const(float(to.lowest), x), c.const(float(to.highest + 1), x)  # both powers of two
    inside = c.select(c.compare("ogt", x, low), x, low)  # also replaces NaN by the lowest number
    out = c.cast("fptosi" if signed else "fptoui", inside, elem_of(to))  # lanes that are too large are replaced below
    out = c.select(c.compare("oge", x, end), c.const(-1 if not signed else int(to.highest), out), out)
    return c.select(c.compare("uno", x, x), c.const(0, out), out)
