"""Kernels of other packages: C text, or functions that are compiled already."""

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
    """Returns a kernel from C text, for a plan of target ``cpu`` to return.

    text: has one function ``void NAME(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch)``
    (of several, `entry` names the one that is called).  It is compiled by ``$CC``, cc, gcc or clang when it is first needed on a
    machine, and then kept in the cache directory; without a compiler the next plan is taken, or the definition, with that reason.
    All else as for `c_function_kernel`.

    Errors: ParameterError for a text without such a function; where it is emitted, for one that the compiler refuses.
    """
    found = _FUNCTION.findall(text)
    if entry not in found if entry else len(found) != 1:
        wanted = f"named {entry!r}" if entry else "to call (of several, `entry` names it)"
        raise ParameterError(
            f"kernel {name!r}: the text must have one function void NAME(void *const *buffers, ...) {wanted}; it has "
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
    """Returns a kernel from a C function that is compiled already, for a plan of target ``cpu`` to return.

    C signature: ``void f(void* const* buffers, const int64_t* args, int64_t begin, int64_t end, void* scratch)``.
    buffers: the row-major operands, then the results; work: the number of items, given the operands' shapes, of which the
    function does [begin, end), several threads at once; args: int64 numbers for it (a float by its bits), given the shapes;
    owner: kept alive as long as the function may be called; grain: least items worth a thread; scratch_bytes: memory per
    thread.  Errors: ParameterError for an address of 0, and for work or args that are not integers.
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
    """Returns a kernel that calls a C function.  function: gives its address and what keeps it alive."""

    def emit(e: CpuEmitter, op: Any, modules: Sequence[Module], given: Sequence[Value | None]) -> Results:
        operands = [e.row_major(v) for v in given if v is not None]
        shapes = [v.shape for v in operands]
        result = op.result([None if v is None else Shape(v.shape.dtype, v.lens) for v in given], modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        fixed = [s for s in items if isinstance(s, Shape) and not s.dynamic()]
        if len(fixed) < len(items):
            raise Refused(f"the result {result} has extents that are known at run time only")
        outputs = [e.allocate(s.dtype, s.lens()) for s in fixed]
        numbers = [whole(name, "args", n) for n in args(shapes)]
        count = whole(name, "work", work(shapes), least=0)
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

    grain, scratch_bytes = whole(name, "grain", grain, least=1), whole(name, "scratch_bytes", scratch_bytes, least=0)
    return EmittedKernel(name, op, modules, emit)


def whole(kernel: str, word: str, number: Any, least: int = -(1 << 63)) -> int:
    """Returns a number for the C function.  Errors: ParameterError unless it is an integer of 64 bits and at least `least`."""
    try:
        found = operator.index(number)
    except TypeError:
        raise ParameterError(
            f"kernel {kernel!r}: {word} must give integers (a float by its bits, or through memory), got {number!r}"
        ) from None
    if not least <= found < 1 << 63:
        raise ParameterError(f"kernel {kernel!r}: {word} must give integers from {least} to 2^63 - 1, got {found}")
    return found


def float_bits(value: float) -> int:
    """Returns a number among `args` that stands for a C double: ``double v; memcpy(&v, args + n, sizeof v);``."""
    found: int = struct.unpack("q", struct.pack("d", value))[0]
    return found
