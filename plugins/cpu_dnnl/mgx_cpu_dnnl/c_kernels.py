"""Third-party kernels, from C source or from compiled functions."""

from __future__ import annotations

import ctypes
import operator
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from mgx_core import Module, Operation, Shape, TupleShape
from mgx_core.errors import ParameterError, Refused
from mgx_core.targets.emitted import EmittedKernel
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Buffer, Value

from .c_guard import guarded
from .emitter import CpuEmitter

__all__ = ["c_function_kernel", "c_kernel", "float_bits"]

_FUNCTION: Final = re.compile(r"^\s*void\s+(\w+)\s*\(\s*void\s*\*\s*const\s*\*", re.M)


def c_kernel(
    name: str,
    op: Operation,
    text: str,
    work: Callable[[Sequence[Shape]], int],
    args: Callable[[Sequence[Shape]], Sequence[int]] = lambda shapes: (),
    modules: Sequence[Module] = (),
    grain: int = 1,
    scratch_bytes: int = 0,
    entry: str = "",
) -> EmittedKernel:
    """Returns a kernel from C source, for use in a plan of target ``cpu``.

    text: defines ``void NAME(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch)`` (if
    there are several, `entry` names the one to call).  It is compiled by ``$CC``, cc, gcc or clang on first use and cached on
    disk; without a compiler the plan is refused, and the next plan or the reference implementation is used.
    Other arguments: see `c_function_kernel`.

    Errors: ParameterError for a source without such a function; on emission, if compilation fails.
    """
    found = _FUNCTION.findall(text)
    if entry not in found if entry else len(found) != 1:
        wanted = f"named {entry!r}" if entry else "(if there are several, name the one to call in `entry`)"
        raise ParameterError(
            f"kernel {name!r}: the source must define one function void NAME(void *const *buffers, ...) {wanted}; it defines "
            f"{', '.join(found) or 'none'}"
        )

    def compiled(e: CpuEmitter) -> tuple[int, Any]:
        library = e.context.c_libraries.load(text, f"kernel {name!r}")
        return ctypes.cast(library[entry or found[0]], ctypes.c_void_p).value or 0, library

    return _kernel(name, op, compiled, work, args, modules, grain, scratch_bytes)


def c_function_kernel(
    name: str,
    op: Operation,
    address: int,
    work: Callable[[Sequence[Shape]], int],
    args: Callable[[Sequence[Shape]], Sequence[int]] = lambda shapes: (),
    owner: Any = None,
    modules: Sequence[Module] = (),
    grain: int = 1,
    scratch_bytes: int = 0,
) -> EmittedKernel:
    """Returns a kernel from a compiled C function, for use in a plan of target ``cpu``.

    C signature: ``void f(void* const* buffers, const int64_t* args, int64_t begin, int64_t end, void* scratch)``.
    buffers: row-major operands without absent ones, then results; work: returns the number of items for the shapes of these
    operands; threads call the function concurrently on ranges [begin, end); args: returns int64 arguments (floats by their
    bits) for the shapes; owner: kept alive as long as the function may be called; grain: minimum items per thread;
    scratch_bytes: scratch memory per thread.  Errors: ParameterError for an address of 0, and for work or args that are not
    integers.
    """
    if isinstance(address, bool) or not isinstance(address, int) or not address:
        raise ParameterError(f"kernel {name!r}: address must be that of a compiled function, got {address!r}")
    return _kernel(name, op, lambda e: (address, owner), work, args, modules, grain, scratch_bytes)


def _kernel(
    name: str,
    op: Operation,
    function: Callable[[CpuEmitter], tuple[int, Any]],
    work: Callable[[Sequence[Shape]], int],
    args: Callable[[Sequence[Shape]], Sequence[int]],
    modules: Sequence[Module],
    grain: int,
    scratch_bytes: int,
) -> EmittedKernel:
    """Returns a kernel that calls a C function.  function: returns its address and its owner."""

    def emit(e: CpuEmitter, op: Any, modules: Sequence[Module], given: Sequence[Value | None]) -> Results:
        operands = [e.row_major(v) for v in given if v is not None]
        shapes = [v.shape for v in operands]
        result = op.result([None if v is None else Shape(v.shape.dtype, v.lens) for v in given], modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        fixed = [s for s in items if isinstance(s, Shape) and not s.dynamic()]
        if len(fixed) < len(items):
            raise Refused(f"the result {result} has data-dependent extents")
        outputs = [e.allocate(s.dtype, s.lens()) for s in fixed]
        numbers = [checked_integer(name, "args", n) for n in args(shapes)]
        count = checked_integer(name, "work", work(shapes), least=0)
        address, owner = function(e)

        if e.guarded:
            title = f"kernel {name!r} of {op!r} (in {getattr(work, '__module__', '?')})"
            call = guarded(title, address, owner, numbers, count, scratch_bytes, fixed)
            e.host_step(name, call, operands, outputs)
            return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            where = [(ident(v.buffer), v.byte_offset) for v in (*operands, *outputs)]
            program.add_loop(name, address, owner, where, numbers, count, grain, scratch_bytes)

        e.step(name, [v.buffer for v in operands], [v.buffer for v in outputs], install)
        return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

    grain = checked_integer(name, "grain", grain, least=1)
    scratch_bytes = checked_integer(name, "scratch_bytes", scratch_bytes, least=0)
    return EmittedKernel(name, op, modules, emit)


def checked_integer(kernel: str, argument: str, number: Any, least: int = -(1 << 63)) -> int:
    """Validates an argument of the C function.  Errors: ParameterError unless it is a 64-bit integer of at least `least`."""
    try:
        found = operator.index(number)
    except TypeError:
        raise ParameterError(
            f"kernel {kernel!r}: {argument}: an integer is required (encode floats with `float_bits`), got {number!r}"
        ) from None
    if not least <= found < 1 << 63:
        raise ParameterError(
            f"kernel {kernel!r}: {argument}: an integer from {least} to 2^63 - 1 is required, got {found}"
        )
    return found


def float_bits(value: float) -> int:
    """Encodes a double as an element of `args`; in C: ``double v; memcpy(&v, args + n, sizeof v);``."""
    found: int = struct.unpack("q", struct.pack("d", value))[0]
    return found
