"""Functions that write the kernel of an op, and the checks before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from mgx_core import Module, No, Shape
from mgx_core.errors import ShapeError, UnsupportedError
from mgx_core.ops.operation import Operation

from .extents import arguments
from .source import DeviceTraits, KernelSource, Tensor, supported, tensors

__all__ = ["Inputs", "Write", "carrying", "computing", "picking", "source_of", "spread", "static"]

Inputs: TypeAlias = "Sequence[Tensor | None]"
Answer: TypeAlias = "KernelSource | No"
# from an op, its operands, its results, the device and the op's sub-modules to the kernel
Write: TypeAlias = "Callable[[Any, Inputs, Sequence[Tensor], DeviceTraits, Sequence[Module]], Answer]"

LONGEST: Final = (1 << 32) - (1 << 16)  # elements along an axis: kernels count them in 32 bits, in steps of a block


def source_of(
    write: Write,
    op: Operation,
    inputs: Sequence[Shape | Tensor | None],
    outputs: Sequence[Shape | Tensor],
    traits: DeviceTraits,
    modules: Sequence[Module] = (),
) -> KernelSource | No:
    """Returns kernel text for an op on strided tensors, or the reason why there is none.

    inputs and outputs: static extents with strides (tensors may state the alignment of their addresses; shapes: 16 bytes);
    outputs of ops whose extents depend on data have their upper bounds, and `KernelSource.extents` says where the true
    ones are written (those counts are outputs behind the op's own).  modules: the body, for groups.
    """
    with arguments() as recorder:
        try:
            made = write(op, tensors(inputs), [Tensor.of(y) for y in outputs], traits, modules)
        except (UnsupportedError, ShapeError) as error:
            made = No(str(error))
        return No(recorder.fixed(made.why)) if isinstance(made, No) else made


def carrying(function: Callable[..., Answer]) -> Write:
    """``function(op, inputs, outputs, traits)`` for an op that only moves elements, whose size an integer type must have."""

    def write(
        op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
    ) -> Answer:
        if any(t is not None and t.dtype.size not in (1, 2, 4, 8) for t in (*xs, *ys)):
            return No(f"{op.name} of elements of 16 bytes")
        return _too_long(op, (*xs, *ys)) or function(op, xs, ys, traits)

    return write


def static(count: int, function: Callable[..., Answer]) -> Write:
    """``function(op, *inputs, *outputs, traits)`` for an op of `count` inputs; its run-time attributes must be absent."""

    def write(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> Answer:
        if any(x is not None for x in xs[count:]):
            return No(f"{op.name} with attributes that are known only at run time")
        return function(op, *xs[:count], *ys, traits)

    return carrying(write)


def computing(function: Callable[..., Answer]) -> Write:
    """``function(op, inputs, outputs, traits)`` for an op that computes with its elements."""

    def write(
        op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
    ) -> Answer:
        if not supported(*(t.dtype for t in (*xs, *ys) if t is not None)):
            return No(f"{op.name} of {', '.join(str(t.dtype) for t in (*xs, *ys) if t is not None)}")
        return _too_long(op, (*xs, *ys)) or function(op, xs, ys, traits)

    return write


def _too_long(op: Any, operands: Inputs) -> No | None:
    # one by one: which of two extents is the larger one would hold for the extents at hand alone
    found = next((n for t in operands if t is not None for n in t.lens if n > LONGEST), None)
    return None if found is None else No(f"{op.name} along an axis of {found} elements")


def spread(function: Callable[..., Answer]) -> Write:
    """``function(op, *inputs, *outputs, traits)`` for an op that computes with its elements."""
    return computing(lambda op, xs, ys, traits: function(op, *xs, *ys, traits))


def picking(write: Write) -> Write:
    """`write` for an op each of whose results is made from elements of its first operand, which must have some."""

    def checked(
        op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
    ) -> Answer:
        if xs[0] is not None and not xs[0].elements and any(y.elements for y in ys):
            return No(f"{op.name} of a value without elements")
        return write(op, xs, ys, traits, modules)

    return checked
