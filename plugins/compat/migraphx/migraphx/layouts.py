"""Infers MIGraphX's strides of instructions' results: views keep their operand's memory, other ops keep its axis order.

They are for display only: the core's results are row-major.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Instruction, Operation, Shape
from mgx_core.types.shape import AnyShape

__all__ = ["laid_out"]


def laid_out(ins: Instruction) -> AnyShape:
    """Returns the shape of an instruction's result with MIGraphX's strides."""
    found: dict[Instruction, AnyShape] = {}
    waiting = [ins]
    while waiting:
        at = waiting[-1]
        operands = at.inputs if _follows(at) else ()
        missing = [i for i in operands if i not in found]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        result, given = at.result, [s for s in (found[i] for i in operands) if isinstance(s, Shape)]
        strides = _strides(at.op, result, given) if given and isinstance(result, Shape) else None
        found[at] = result if strides is None else Shape(at.shape.dtype, at.shape.lens(), strides)
    return found[ins]


def _follows(ins: Instruction) -> bool:
    """True if a result's strides depend on those of its operands."""
    from mgx_core.ops.broadcast import Broadcast, Multibroadcast
    from mgx_core.ops.convolution import Convolution
    from mgx_core.ops.elementwise import Pointwise
    from mgx_core.ops.movement import Layout, Transpose
    from mgx_core.ops.pointwise import Identity
    from mgx_core.ops.pooling import Pooling
    from mgx_core.ops.reshape import Squeeze, Unsqueeze
    from mgx_core.ops.slice import Slice

    kinds = (
        Broadcast,
        Convolution,
        Identity,
        Layout,
        Multibroadcast,
        Pointwise,
        Pooling,
        Slice,
        Squeeze,
        Transpose,
        Unsqueeze,
    )
    static = all(
        isinstance(s, Shape) and s.ranked and not s.dynamic() for s in (ins.result, *(i.result for i in ins.inputs))
    )
    return static and isinstance(ins.op, kinds)


def _strides(op: Operation, result: Shape, operands: Sequence[Shape]) -> list[int] | None:
    """Returns a result's strides; None if it is row-major."""
    from mgx_core.ops.broadcast import Broadcast, Multibroadcast
    from mgx_core.ops.convert import Convert
    from mgx_core.ops.elementwise import Pointwise
    from mgx_core.ops.movement import Layout, Transpose
    from mgx_core.ops.pointwise import Identity
    from mgx_core.ops.reshape import Squeeze, Unsqueeze
    from mgx_core.ops.slice import Slice

    x = operands[0]
    lens, strides = x.lens(), x.strides()
    match op:
        case Transpose():
            return [strides[axis] for axis in op.permutation or reversed(range(x.rank))]
        case Layout():
            return Shape(result.dtype, lens, permutation=op.permutation).strides()
        case Multibroadcast():
            return _repeated(result, lens, strides, result.rank - x.rank)
        case Broadcast():
            return _repeated(result, lens, strides, op.axis % result.rank if result.rank else 0)
        case Squeeze():
            removed = {a % x.rank for a in op.axes} or {n for n, extent in enumerate(lens) if extent == 1}
            return [s for n, s in enumerate(strides) if n not in removed]
        case Unsqueeze():
            return _with_units(x, {a % result.rank for a in op.axes}) if x.rank else None
        case Slice() | Identity() | Convert():
            return strides
        case Pointwise():
            return _computed(result, operands)
    return _ordered(result, x)


def _repeated(result: Shape, lens: list[int], strides: list[int], first: int) -> list[int]:
    out = [0] * result.rank
    for n, (extent, step) in enumerate(zip(lens, strides, strict=True)):
        out[first + n] = step if extent == result.lens()[first + n] else 0
    return out


def _with_units(x: Shape, new: set[int]) -> list[int]:
    """Returns the strides of an unsqueezed tensor: a new axis steps over the whole axis after it."""
    lens, strides = x.lens(), x.strides()
    whole = [step * extent for step, extent in zip(strides, lens, strict=True)]
    out: list[int] = []
    taken = 0
    for axis in range(x.rank + len(new)):
        if axis in new:
            out.append(whole[taken] if taken < x.rank else 1)
        else:
            out.append(strides[taken])
            taken += 1
    return out


def _computed(result: Shape, operands: Sequence[Shape]) -> list[int] | None:
    """Returns the strides of an elementwise result: of the only packed operand, else of the only one that is not broadcast."""
    x = operands[0]
    if len(operands) == 1:
        if x.rank and not any(x.strides()):
            return x.strides()
        return None if x.broadcasted() else _ordered(result, x)
    y = operands[1]
    if x.packed() and x.strides() == y.strides():
        return x.strides()
    if x.packed() != y.packed():
        return (x if x.packed() else y).strides()
    if x.broadcasted() != y.broadcasted():
        return _ordered(result, y if x.broadcasted() else x)
    return None


def _ordered(result: Shape, like: Shape) -> list[int] | None:
    """Returns the strides of a packed result with another tensor's axis order."""
    if like.standard() or like.rank != result.rank:
        return None
    steps, lens = like.strides(), like.lens()
    order = sorted(range(like.rank), key=lambda axis: (-steps[axis], -lens[axis]))
    return Shape(result.dtype, result.lens(), permutation=order).strides()
