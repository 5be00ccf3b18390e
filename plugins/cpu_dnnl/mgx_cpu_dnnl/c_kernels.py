"""Kernels of other packages, given as compiled functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from mgx_core import Module, Operation, Shape, TupleShape
from mgx_core.errors import ParameterError, Refused
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Buffer, Value

from .emitter import CpuEmitter
from .kernel import CpuKernel

__all__ = ["c_function_kernel"]


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
) -> CpuKernel:
    """A kernel from a C function, for a plan of target ``cpu`` to return.

    C signature: ``void f(void* const* buffers, const int64_t* args, int64_t begin, int64_t end, void* scratch)``.
    buffers: the row-major operands, then the results; work: the number of items, given the operands' shapes, of which the
    function does [begin, end), several threads at once; args: int64 numbers for it (a float by its bits), given the shapes;
    owner: kept alive as long as the function may be called; grain: least items worth a thread; scratch_bytes: memory per
    thread.  Errors: ParameterError for an address of 0, and for work or args that are not integers.
    """

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

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            where = [(ident(v.buffer), v.byte_offset) for v in (*operands, *outputs)]
            program.add_loop(name, address, owner, where, numbers, count, grain, scratch_bytes)

        e.step(name, [v.buffer for v in operands], [v.buffer for v in outputs], install)
        return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

    grain, scratch_bytes = whole(name, "grain", grain, least=1), whole(name, "scratch_bytes", scratch_bytes, least=0)
    if isinstance(address, bool) or not isinstance(address, int) or not address:
        raise ParameterError(f"kernel {name!r}: address must be that of a compiled function, got {address!r}")
    return CpuKernel(name, op, modules, emit)


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
