"""Opcodes of the bytecode interpreter, in numerical order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Final

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.dtype import DType

__all__ = ["BLOCK", "KEY", "Operation", "number_of", "operations"]

KEY: Final = "interpreter 1"
BLOCK: Final = 512  # elements of a register, as in `interpreter_loop.h`

ONE: Final = (
    "neg", "abs", "sqrt", "rsqrt", "sign", "exp", "exp_negative", "expm1", "log", "log1p", "log2", "erf", "tanh", "sigmoid",
    "sin", "cos", "asin", "acos", "atan", "floor", "ceil", "round", "trunc", "number",
)  # fmt: skip
TWO: Final = (
    "add", "sub", "mul", "exact_div", "pow", "mod", "fmod", "max", "min", "max_const", "min_const", "max_number",
)  # fmt: skip
WHOLE: Final = ("add", "sub", "mul", "max", "min", "div", "mod")
COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")
LOGICAL: Final = ("logical_and", "logical_or", "logical_xor")
CONVERTED: Final = (dt.float32, dt.int64, dt.int32, dt.int16, dt.uint16, dt.uint8, dt.int8, dt.bool_)
NARROW: Final = (dt.float16, dt.bfloat16)


class Operation(NamedTuple):
    """An opcode for given element types: a primitive, a conversion, or the scale of a division by an invariant.

    operands, result: types in memory; scalar: computes a single element, with the divisions of scalar code.
    """

    name: str
    operands: tuple[DType, ...]
    result: DType
    scalar: bool = False


def _vectors() -> Iterator[Operation]:
    single = dt.float32
    yield from (Operation(name, (single,), single) for name in ONE)
    yield from (Operation(name, (single, single), single) for name in TWO)
    yield Operation("fma", (single,) * 3, single)
    yield Operation("divisor_scale", (single,), single)
    for narrow in (dt.uint8, dt.int8):
        yield Operation(f"whole_{narrow}", (single,), narrow)
        yield Operation(f"rounded_{narrow}", (single, single), narrow)
    yield from (Operation(name, (single,), dt.bool_) for name in ("isnan", "isinf"))
    for whole in (dt.int64, dt.int32):
        yield from (Operation(name, (whole, whole), whole) for name in WHOLE)
        yield from (Operation(name, (whole,), whole) for name in ("neg", "abs"))
    for dtype in (single, dt.int64, dt.int32):
        yield from (Operation(name, (dtype, dtype), dt.bool_) for name in COMPARISONS)
        yield Operation("where", (dt.bool_, dtype, dtype), dtype)
    yield Operation("where", (dt.bool_,) * 3, dt.bool_)
    yield from (Operation(name, (dt.bool_, dt.bool_), dt.bool_) for name in (*LOGICAL, "eq", "ne"))
    yield Operation("logical_not", (dt.bool_,), dt.bool_)
    yield from (Operation("convert", (a,), b) for a, b in permutations(CONVERTED, 2))
    for narrow in NARROW:
        yield from (Operation("convert", (narrow,), single), Operation("convert", (single,), narrow))


@cache
def operations() -> dict[Operation, int]:
    """Returns the opcodes by operation."""
    vectors = list(_vectors())
    return {found: i for i, found in enumerate([*vectors, *(o._replace(scalar=True) for o in vectors)])}


def number_of(name: str, operands: tuple[DType, ...], result: DType, scalar: bool) -> int | None:
    """Returns an operation's opcode; None if the interpreter does not support it."""
    return operations().get(Operation(name, operands, result, scalar))
