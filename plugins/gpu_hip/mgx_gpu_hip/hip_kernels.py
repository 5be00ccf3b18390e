"""Hand-written HIP kernels, as other packages supply them."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias

from mgx_core import Module, No, Operation, ParameterError, Shape, TupleShape
from mgx_core.errors import counted
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.traced_int import TracedInt

from .codegen.source import Arg, Buffer, KernelLaunch, KernelSource, Number, storage_type
from .compile.source import Parameter, kernels, signature
from .emitter import GpuEmitter
from .kernel import GpuKernel

__all__ = ["hip_kernel"]

Shapes: TypeAlias = "Sequence[Shape | None]"
Extent: TypeAlias = "int | Sequence[int]"

NUMBERS: Final = {"i": "i32", "I": "u32", "q": "i64", "Q": "u64", "f": "float", "d": "double"}
SIZES: Final = {
    "bool": 1, "char": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "half_t": 2, "bf16_t": 2, "int": 4, "i32": 4, "u32": 4,
    "unsigned": 4, "float": 4, "i64": 8, "u64": 8, "double": 8,
}  # fmt: skip

_PLAIN = re.compile(r'(?:extern\s+"C"\s+)?__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void(\s+)(\w+)(\s*)\(')
_ALIGNED = r"(?:\balignas\(\d+\)\s*)?"
_SHARED = re.compile(rf"{_ALIGNED}\b(?<!extern )__shared__\s+{_ALIGNED}([\w ]+?)\s+(\w+)\s*((?:\[[^\]]*\]\s*)+);")
_DYNAMIC = re.compile(rf"{_ALIGNED}\bextern\s+__shared__\s+{_ALIGNED}([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")


def hip_kernel(
    name: str,
    op: Operation,
    text: str,
    grid: Callable[[Shapes], Extent],
    block: Extent = 256,
    args: Callable[[Shapes], Sequence[int | float]] = lambda shapes: (),
    row_major: bool = True,
    scratch: Callable[[Shapes], Sequence[int]] = lambda shapes: (),
    shared_bytes: Callable[[Shapes], int] = lambda shapes: 0,
    modules: Sequence[Module] = (),
    entry: str = "",
) -> GpuKernel:
    """Returns a kernel from HIP source, for a plan of target ``gpu`` to return.

    text: has one function ``extern "C" __global__ void NAME(const T* x, .., T* y, .., int n, ..)`` (`entry` selects one of
    several).  Its parameters are the addresses of the operands, of the results and of scratch buffers, then the numbers returned
    by `args`.  grid: blocks, and block: threads per block, each one to three numbers; scratch: bytes of each scratch buffer;
    shared_bytes: dynamic shared memory.  `grid`, `args`, `scratch` and `shared_bytes` are called with the shapes of the operands
    (None for an absent one, whose address is 0).  row_major: copy operands that are not row-major and contiguous; otherwise the
    shapes have strides, which the kernel must use.  Results are row-major.

    Errors: ParameterError if the source has no such function and, at launch, if operands do not match its parameters.  Line
    numbers in compiler messages count from the first line of `text`.
    """
    threads = _three(block, f"kernel {name!r} for {op.name}: block")
    if not 1 <= prod(threads) <= 1024:
        raise ParameterError(f"kernel {name!r} for {op.name}: a block must have 1 to 1024 threads, got {prod(threads)}")
    text, entry = _portable(text, entry, prod(threads), f"kernel {name!r} for {op.name}")
    parameters = signature(text, entry)
    if not callable(grid):
        raise ParameterError(
            f"kernel {name!r} for {op.name}: grid must be a function of the operands' shapes, got {grid!r}"
        )
    # for a functools.partial, that of its function
    package = str(getattr(getattr(grid, "func", grid), "__module__", "?")).partition(".")[0]

    def emit(e: GpuEmitter, op: Any, modules: Sequence[Module], given: Sequence[Any]) -> Results | No:
        if any(isinstance(v, tuple) for v in given):
            return No("an operand is a tuple")
        declared = sum(not i.variadic for i in op.inputs)
        given = [*given, *[None] * (declared - len(given))]  # instructions may omit absent inputs at the end
        operands = [v if v is None or not row_major else e.row_major(v) for v in given]
        shapes = [None if v is None else v.shape for v in operands]
        result = op.result([None if v is None else v.plain for v in operands], modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        static = [s for s in items if isinstance(s, Shape) and not s.dynamic()]
        if len(static) != len(items):
            return No(f"the result {result} has data-dependent extents")
        outputs = [e.allocate(s.dtype, s.lens()) for s in static]
        where = f"kernel {name!r} of package {package} for {op!r}"
        sizes = [-(-n // 16) * 16 for n in _whole(scratch(shapes), f"{where}: scratch")]
        numbers = list(args(shapes))
        called = _arguments(parameters, [*operands, *outputs], len(operands), len(sizes), numbers, where)
        blocks = _three(grid(shapes), f"{where}: grid")
        (shared,) = _whole([shared_bytes(shapes)], f"{where}: shared_bytes")
        launch = KernelLaunch(entry, blocks, threads, tuple(called), shared)
        launches = (launch,) if prod(blocks) else ()
        source = KernelSource(
            entry, text, launches, len(operands), len(outputs), tuple(sizes), title=name, origin=where, overlaps=False
        )
        e.launch(source, operands, outputs)
        return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

    return GpuKernel(name, op, modules, emit)


def _three(given: Any, what: str) -> tuple[int, int, int]:
    """Returns extents along x, y and z.  Errors: ParameterError unless there are one to three non-negative integers."""
    extents = _whole(given if isinstance(given, Sequence) else (given,), what)
    if not 1 <= len(extents) <= 3:
        raise ParameterError(f"{what} must have one to three extents, got {given!r}")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _whole(given: Any, what: str) -> list[int]:
    """Returns counts or sizes as integers.  Errors: ParameterError unless they are non-negative integers."""
    try:
        found = [*map(_index, given)]
    except TypeError:
        found = [-1]
    if any(n < 0 for n in found):
        raise ParameterError(f"{what} must return non-negative integers, got {given!r}")
    return found


def _index(n: Any) -> int:
    """Returns an integer, which may be traced.  Errors: TypeError."""
    return n if type(n) is TracedInt else operator.index(n)


def _number(p: Parameter, kind: str, number: Any, where: str) -> Number:
    """Returns an argument of a number parameter.  Errors: ParameterError if its type cannot represent it."""
    try:
        value = float(number) if p.code in "fd" else _index(number)
        struct.pack(p.code, value)
        return Number(kind, value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, struct.error):
        raise ParameterError(
            f"{where}: args must return a number of type {p.type} for {p.name}, got {number!r}"
        ) from None


def _portable(text: str, entry: str, threads: int, where: str) -> tuple[str, str]:
    """Returns the source with portable macros in place of compiler-specific syntax, line for line, and the function to launch.

    Errors: ParameterError if there is no such function.
    """
    text = _PLAIN.sub(rf"KERNEL({threads})\1\2\3(", text)
    text = _SHARED.sub(r"SHARED(\1, \2, \3);", _DYNAMIC.sub(r"SHARED_DYNAMIC(\1, \2);", text))
    found = kernels(text)
    if entry in found or (not entry and len(found) == 1):
        return text, entry or found[0]
    there = f"it has {', '.join(found)}" if found else "it has none"
    wanted = f"named {entry!r}" if entry else "to launch (of several, `entry` names it)"
    raise ParameterError(f'{where}: the source must have one function extern "C" __global__ void {wanted}; {there}')


def _arguments(
    parameters: Sequence[Parameter],
    values: Sequence[Value | None],
    inputs: int,
    scratch: int,
    numbers: Sequence[int | float],
    where: str,
) -> list[Arg]:
    """Returns arguments in the order of the parameters.  Errors: ParameterError if they do not match."""
    pointers, count = len(values) + scratch, len(numbers)
    if [p.code == "P" for p in parameters] != [True] * pointers + [False] * count:
        raise ParameterError(
            f"{where}: the function must take {counted(pointers, 'pointer')} ({counted(inputs, 'operand')}, "
            f"{counted(len(values) - inputs, 'result')}, {scratch} scratch) and then {counted(count, 'number')}, "
            f"got ({', '.join(f'{p.type} {p.name}' for p in parameters)})"
        )
    for p, value in zip(parameters, values, strict=False):
        size = SIZES.get(p.type.removesuffix("*"))
        if value is not None and size is not None and size != value.shape.dtype.size:
            raise ParameterError(f"{where}: {p.name} must point to {storage_type(value.shape.dtype)}, got {p.type}")
    found: list[Arg] = [Buffer("input", n) if n < inputs else Buffer("output", n - inputs) for n in range(len(values))]
    found += [Buffer("scratch", n) for n in range(scratch)]
    for p, number in zip(parameters[pointers:], numbers, strict=True):
        kind = NUMBERS.get(p.code)
        if kind is None:
            raise ParameterError(f"{where}: number {p.name} must be one of {', '.join(NUMBERS.values())}, got {p.type}")
        found.append(_number(p, kind, number, where))
    return found
