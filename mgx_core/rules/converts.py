"""Conversions that cancel or do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.control import GetTupleElem
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from ..ops.index import Gather, GatherElements, Gathernd
from ..ops.topk import Topk
from ..types.dtype import DType
from .engine import Builder, Rules

__all__ = ["CONVERTS", "holds_all"]

CONVERTS: Final = Rules("eliminate-convert")

_DIGITS: Final = {"float64": (53, 11), "float32": (24, 8), "float16": (11, 5), "bfloat16": (8, 8)}


def holds_all(wide: DType, narrow: DType) -> bool:
    """Returns True if every value of `narrow` is a value of `wide`."""
    if wide is narrow:
        return True
    if wide.is_float and narrow.is_float and wide.name in _DIGITS:
        if narrow.name not in _DIGITS:
            return wide.bits >= 16 and narrow.bits <= 8 and wide.name != "float16"
        return all(a >= b for a, b in zip(_DIGITS[wide.name], _DIGITS[narrow.name], strict=True))
    if wide.is_float and narrow.is_integer and wide.name in _DIGITS:
        return narrow.bits - (narrow.kind == "i") <= _DIGITS[wide.name][0]
    if wide.is_integer and narrow.is_integer:
        if wide.kind == narrow.kind:
            return wide.bits >= narrow.bits
        return wide.kind == "i" and wide.bits > narrow.bits
    return narrow.kind == "b" and wide.is_number


@CONVERTS.on(Convert)
def drop_same_type(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(x) -> x if x already has the type."""
    return i.inputs[0] if i.inputs[0].result == i.result else None


@CONVERTS.on(GetTupleElem, reads=Topk)
def convert_behind_topk(i: Instruction, b: Builder) -> Instruction | No | None:
    """get_tuple_elem(topk(convert(x)), n) -> that of topk(x), values converted, if the type holds every value of x."""
    topk = i.inputs[0]
    if not isinstance(topk.op, Topk) or len(topk.inputs) > 1 or not isinstance(topk.inputs[0].op, Convert):
        return None
    wide, x = topk.inputs[0], topk.inputs[0].inputs[0]
    narrow = x.shape.dtype
    if not (holds_all(wide.shape.dtype, narrow) and narrow.kind in "biuf"):
        return No(f"{wide.shape.dtype} does not hold every {narrow}")
    if narrow.bits < (16 if narrow.is_float else 8):
        return No(f"few targets have kernels that order {narrow}")
    made = b.add(i.op, b.add(topk.op, x))
    return made if made.result == i.result else b.add(Convert(target_type=i.shape.dtype), made)


@CONVERTS.on(Gather, GatherElements, Gathernd, reads=Convert)
def convert_behind_gather(i: Instruction, b: Builder) -> Instruction | No | None:
    """gather(convert(x), indices) -> convert(gather(x, indices)) for a wider type, if pointwise ops or products read the result.

    A gather that repeats rows would write and read them all in the wider type.
    """
    wide, *others = i.inputs
    if not isinstance(wide.op, Convert) or wide.inputs[0].is_literal:
        return None
    x = wide.inputs[0]
    narrow = x.shape.dtype
    if narrow.bits >= wide.shape.dtype.bits or not (narrow.is_float and holds_all(wide.shape.dtype, narrow)):
        return No(f"{wide.shape.dtype} does not hold every {narrow} in more bits")
    if len(wide.users) > 1:
        return No("the conversion has other users")
    if not i.users or not all(isinstance(u.op, Pointwise) or u.op.product for r in i.users for u in _read(r)):
        return No("no reader would convert what it reads")
    return b.add(Convert(target_type=i.shape.dtype), b.add(i.op, x, *others))


def _read(user: Instruction) -> Sequence[Instruction]:
    """Returns the readers of a value through one of its users: itself, or those of a view."""
    if user.op.view is None or user.is_return:
        return (user,)
    return [r for u in user.users for r in _read(u)]


@CONVERTS.on(Convert, reads=Convert)
def join_converts(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(convert(x)) -> convert(x) if the intermediate type represents every value of x."""
    inner = i.inputs[0]
    if not isinstance(inner.op, Convert):
        return None
    x = inner.inputs[0]
    source, between, to = x.shape.dtype, inner.shape.dtype, i.shape.dtype
    if not holds_all(between, source):
        return No(f"{between} does not hold every {source}")
    if to.kind == "s":
        return No("text shows which type it was converted from")
    if between.is_float and source.is_integer and to.is_integer and not holds_all(to, source):
        return No(f"{to} does not represent every {source}: floats saturate, integers wrap")
    return x if x.result == i.result else b.add(i.op, x)
