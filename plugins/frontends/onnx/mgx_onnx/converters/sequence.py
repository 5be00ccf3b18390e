"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core.converting.lists import item_of, joined, length_of, parts_of
from mgx_core.ops.optional import Optional

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of, shape_of_type


@converts("SequenceConstruct", since=11)
def sequence_construct(n: Node, *items: Instruction) -> Instruction:
    return n.add("sequence_construct", *items)


@converts("SequenceEmpty", since=11)
def sequence_empty(n: Node) -> Instruction:
    return n.add("sequence_empty", dtype=dtype_of(n.attr("dtype", 1)))


@converts("SequenceAt", since=11)
def sequence_at(n: Node, sequence: Instruction, position: Instruction) -> Instruction:
    return item_of(n, sequence, position)


@converts("SequenceInsert", since=11)
def sequence_insert(
    n: Node, sequence: Instruction, item: Instruction, position: Instruction | None = None
) -> Instruction:
    return n.add("sequence_insert", sequence, item, position)


@converts("SequenceErase", since=11)
def sequence_erase(n: Node, sequence: Instruction, position: Instruction | None = None) -> Instruction:
    return n.add("sequence_erase", sequence, position)


@converts("SequenceLength", since=11)
def sequence_length(n: Node, sequence: Instruction) -> Instruction:
    return length_of(n, sequence)


@converts("SplitToSequence", since=11)
def split_to_sequence(n: Node, x: Instruction, split: Instruction | None = None) -> Instruction:
    return parts_of(n, x, split, n.attr("axis", 0), bool(n.attr("keepdims", 1)))


@converts("ConcatFromSequence", since=11)
def concat_from_sequence(n: Node, sequence: Instruction) -> Instruction:
    return joined(n, sequence, n.attr("axis"), bool(n.attr("new_axis", 0)))


@converts("Optional", since=15)
def optional(n: Node, x: Instruction | None = None) -> Instruction:
    declared = n.attr("type", None)
    if x is None and declared is None:
        n.fail("an Optional requires an input or attribute 'type'")
    return n.add("optional", x, type=None if declared is None else shape_of_type(declared, _extents))


def _extents(tensor: Any) -> list[int] | None:
    """Returns the extents of a type if all are static, else None."""
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return [d.dim_value for d in tensor.shape.dim]


@converts("OptionalHasElement", since=15)
def optional_has_element(n: Node, x: Instruction | None = None) -> Instruction:
    return n.add("optional_has_element", x) if x is None or _held(x) is None else n.literal(True)


@converts("OptionalGetElement", since=15)
def optional_get_element(n: Node, x: Instruction) -> Instruction:
    held = _held(x)
    return n.add("optional_get_element", x) if held is None else held


def _held(x: Instruction) -> Instruction | None:
    """Returns the value from which an optional was constructed; None if it is empty or not constructed in this graph."""
    return x.inputs[0] if isinstance(x.op, Optional) and x.inputs and not x.inputs[0].is_absent else None
