"""Loops of the native module for the most common kinds of work, which then need no LLVM."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple

from ..native_library import native
from .code import clamp_single
from .graph import Node, number

__all__ = ["Chain", "NativeLoop", "bits_of", "chain_of", "encode_chain"]


class NativeLoop:
    """A loop of the native module, with the interface of a compiled `Function`."""

    __slots__ = ("name",)
    engine = None  # the native module owns the code

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def address(self) -> int:
        found: int = native().native_loop(self.name)
        return found


class Chain(NamedTuple):
    """A chain of float32 operations: the initial value, then each operation's name and other operand."""

    start: Node
    steps: list[tuple[str, Node | float]]


OPERATIONS: Final = {"add": 0, "mul": 1, "max": 2, "min": 3}  # commutative operations; numbers as in `chain.h`
MAX_LOADS: Final = 7


class EncodedChain(NamedTuple):
    """An encoded chain: its loads in the native loop's order, and its operations as integers."""

    order: list[int]
    operations: list[int]


def encode_chain(chain: Chain, loads: Sequence[Node]) -> EncodedChain | None:
    """Encodes a chain for the native module; None if an operand is neither a float32 load nor a constant."""
    if len(loads) > MAX_LOADS or any(node.dtype is not dt.float32 for node in loads):
        return None
    first = loads.index(chain.start)
    order = [first, *(k for k in range(len(loads)) if k != first)]
    place = {loads[k].ident: i for i, k in enumerate(order)}
    operations = []
    for name, operand in chain.steps:
        if operand.kind != "load" if isinstance(operand, Node) else math.isnan(operand):
            return None
        at = (place[operand.ident], 0) if isinstance(operand, Node) else (-1, bits_of(operand))
        operations += [OPERATIONS[name], *at]
    return EncodedChain(order, operations)


def chain_of(result: Node, start: Node | None = None) -> Chain | None:
    """Returns the chain of binary float32 operations that computes `result`; operands are loads, sums of two loads or constants.

    start: the load that it must start from (default: any).  None if `result` is not such a chain.
    """

    def is_operand(node: Node) -> bool:
        if node.kind == "prim" and node.word == "add":
            return all(a.kind == "load" and a is not start for a in node.args)
        return node.kind in ("load", "const") and node is not start

    steps: list[tuple[str, Node | float]] = []
    node = result
    while node is not start and (start is not None or node.kind != "load"):
        if node.kind != "prim" or node.word not in OPERATIONS or node.dtype is not dt.float32:
            return None
        a, b = node.args
        if not is_operand(b) or a.kind == "const":
            a, b = b, a
        if not is_operand(b) or b.dtype is not dt.float32:
            return None
        steps.append((node.word, float(number(b)) if b.kind == "const" else b))
        node = a
    return Chain(node, steps[::-1]) if node.dtype is dt.float32 else None


def bits_of(value: float) -> int:
    """Returns the bit pattern of a float32 as an integer."""
    (found,) = struct.unpack("i", struct.pack("f", clamp_single(value)))
    return int(found)
