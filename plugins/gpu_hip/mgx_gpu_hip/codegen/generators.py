"""Adapters for generator functions, with checks of the op's operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from mgx_core import Module, No, Shape
from mgx_core.errors import ShapeError, UnsupportedError
from mgx_core.ops.operation import Operation

from .extents import arguments
from .source import DeviceTraits, KernelSource, Tensor, supported, tensors

__all__ = ["Inputs", "Generator", "copying", "computing", "non_empty", "source_of", "spread", "static"]

Inputs: TypeAlias = "Sequence[Tensor | None]"
Generated: TypeAlias = "KernelSource | No"
# generator: from an op, its operands, results, device traits and sub-modules to the kernel
Generator: TypeAlias = "Callable[[Any, Inputs, Sequence[Tensor], DeviceTraits, Sequence[Module]], Generated]"

LONGEST: Final = (1 << 32) - (1 << 16)  # elements along an axis: kernels count them in 32 bits, in steps of a block


def source_of(
    write: Generator,
    op: Operation,
    inputs: Sequence[Shape | Tensor | None],
    outputs: Sequence[Shape | Tensor],
    traits: DeviceTraits,
    modules: Sequence[Module] = (),
) -> KernelSource | No:
    """Returns the kernel of an op on strided tensors, or the reason why it has none.

    inputs and outputs: static extents with strides (tensors may state their alignment; shapes: 16 bytes); outputs with
    data-dependent extents have their upper bounds, and `KernelSource.extents` states where the actual ones are written (those
    counts are outputs after the op's own).  modules: the body, for groups.
    """
    with arguments() as recorder:
        try:
            made = write(op, tensors(inputs), [Tensor.of(y) for y in outputs], traits, modules)
        except (UnsupportedError, ShapeError) as error:
            made = No(str(error))
        return No(recorder.message(made.why)) if isinstance(made, No) else made


def copying(function: Callable[..., Generated]) -> Generator:
    """Adapts ``function(op, inputs, outputs, traits)`` of an op that only copies elements, of a size with an integer type."""

    def write(
        op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
    ) -> Generated:
        if any(t is not None and t.dtype.size not in (1, 2, 4, 8) for t in (*xs, *ys)):
            return No(f"{op.name} does not support elements of 16 bytes")
        return _too_long(op, (*xs, *ys)) or function(op, xs, ys, traits)

    return write


def static(count: int, function: Callable[..., Generated]) -> Generator:
    """Adapts ``function(op, *inputs, *outputs, traits)`` of an op with `count` inputs, without run-time attributes."""

    def write(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> Generated:
        if any(x is not None for x in xs[count:]):
            return No(f"{op.name} does not support attributes known only at run time")
        return function(op, *xs[:count], *ys, traits)

    return copying(write)


def computing(function: Callable[..., Generated]) -> Generator:
    """Adapts ``function(op, inputs, outputs, traits)`` of an op that computes with its elements."""

    def write(
        op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
    ) -> Generated:
        if not supported(*(t.dtype for t in (*xs, *ys) if t is not None)):
            return No(f"{op.name} of {', '.join(str(t.dtype) for t in (*xs, *ys) if t is not None)}")
        return _too_long(op, (*xs, *ys)) or function(op, xs, ys, traits)

    return write


def _too_long(op: Any, operands: Inputs) -> No | None:
    # one by one: a comparison of two extents would restrict the trace to this order
    found = next((n for t in operands if t is not None for n in t.lens if n > LONGEST), None)
    return None if found is None else No(f"{op.name} does not support an axis of {found} elements")


def spread(function: Callable[..., Generated]) -> Generator:
    """Adapts ``function(op, *inputs, *outputs, traits)`` of an op that computes with its elements."""
    return computing(lambda op, xs, ys, traits: function(op, *xs, *ys, traits))


def non_empty(write: Generator) -> Generator:
    """Restricts `write` to operands with elements, for an op whose results are elements of its first operand."""

    def checked(
        op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
    ) -> Generated:
        if xs[0] is not None and not xs[0].elements and any(y.elements for y in ys):
            return No(f"{op.name} requires an operand with elements")
        return write(op, xs, ys, traits, modules)

    return checked
