"""Generates the interpreter's bytecode for graph nodes: allocates slots and selects instructions.

A row value has one element if vectors run along rows, and one per neighboring row if they run across rows.
Results must be bit-identical to the compiled loop's, so this mirrors `Scope` step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Final

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple
from mgx_core.records import dataclass
from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import TracedInt

from .element import computed
from .graph import Node, bounded, number
from .native_loop import bits_of
from .opcodes import BLOCK, number_of

__all__ = ["Assembler", "NotExpressible", "Pass"]

MAX_SLOTS: Final = 160
LINE: Final = 64


class NotExpressible(Exception):
    """The interpreter lacks an operation that the loop needs, or has too few slots."""


@dataclass
class Pass:
    """One pass over a row: instructions per row and instructions per block of it, encoded for `interpreter_loop.h`."""

    walks: bool = False
    both: bool = False
    times: int = 1
    row_operands: list[int] = field(default_factory=list)
    inner_operands: list[int] = field(default_factory=list)
    row_code: list[int] = field(default_factory=list)
    inner_code: list[int] = field(default_factory=list)
    row_stores: list[tuple[int, int]] = field(default_factory=list)
    inner_stores: list[tuple[int, int]] = field(default_factory=list)
    splats: list[tuple[int, int, int]] = field(default_factory=list)
    reduces: list[tuple[int, int, int, int]] = field(default_factory=list)
    kept: list[tuple[int, int, int]] = field(default_factory=list)

    def numbers(self) -> list[int]:
        found = [int(self.walks), int(self.both), self.times]
        for single in (self.row_operands, self.inner_operands, self.row_code, self.inner_code):
            found += [len(single), *single]
        for several in (self.row_stores, self.inner_stores, self.splats, self.reduces, self.kept):
            found += [len(several), *(n for one in several for n in one)]
        return found


class _Side(NamedTuple):
    """An instruction list, the functions that return the slots of its operands and results, and whether these are scalars."""

    code: list[int]
    value: Callable[[Node], int]
    room: Callable[[DType], int]
    scalar: bool


class Assembler:
    """Allocates slots and their memory, and tracks which slot holds the value of each node.

    wide: row values have a whole register of elements; varies: returns True if a node varies along a row; operand: returns the
    operand number of a load; direct: by operand, True if it is read in place; targets: slots reserved for some nodes' values.
    """

    def __init__(
        self, wide: bool, varies: Callable[[Node], bool], operand: Callable[[Node], int], direct: Sequence[bool]
    ) -> None:
        self.wide, self.varies, self.operand, self.direct = wide, varies, operand, direct
        self.targets: dict[int, int] = {}
        self.offsets: list[int] = []
        self.size = 0  # bytes of scratch
        self.constants: list[tuple[int, int, int, int]] = []
        self.operand_slots: dict[int, int] = {}
        self.now = Pass()
        self._free: dict[int, list[int]] = {}
        self._size_of: dict[int, int] = {}
        self._numbers: dict[tuple[int, int, bool], int] = {}
        self._row: dict[int, int] = {}
        self._spread: dict[int, int] = {}
        self._inverses: dict[int, tuple[int | None, int]] = {}
        self._inner: dict[int, int] = {}
        self._uses: dict[int, int] = {}

    # memory

    def memory(self, nbytes: int) -> int:
        """Allocates scratch memory and returns its offset."""
        at = self.size
        self.size += -(-nbytes // LINE) * LINE
        return at

    def slot(self, nbytes: int) -> int:
        """Allocates a slot with its own memory."""
        if len(self.offsets) == MAX_SLOTS:
            raise NotExpressible
        self.offsets.append(self.memory(nbytes))
        return len(self.offsets) - 1

    def register(self, dtype: DType) -> int:
        """Allocates a register slot, from the free list if possible."""
        free = self._free.setdefault(dtype.size, [])
        found = free.pop() if free else self.slot(BLOCK * dtype.size)
        self._size_of[found] = dtype.size
        return found

    def _row_slot(self, dtype: DType) -> int:
        return self.slot(dtype.size * (BLOCK if self.wide else 1))

    def _constant(self, bits: int, size: int, many: bool) -> int:
        found = self._numbers.get((bits, size, many))
        if found is None:
            count = BLOCK if many else 1
            found = self._numbers[bits, size, many] = self.slot(size * count)
            self.constants.append((found, size, bits, count))
        return found

    def number(self, value: float, dtype: DType, many: bool) -> int:
        """Returns the slot of a constant; many: broadcast to a whole register."""
        if dtype is dt.float32:
            return self._constant(bits_of(float(value)), 4, many)
        if dtype.is_float:
            raise NotExpressible
        bits = 8 * dtype.size
        whole = int(value) & ((1 << bits) - 1)
        return self._constant(whole - (1 << bits) if whole >> (bits - 1) else whole, dtype.size, many)

    def of_operand(self, k: int, size: int) -> int:
        """Returns the slot that refers to an operand's elements in memory."""
        found = self.operand_slots.get(k)
        if found is None:
            found = self.operand_slots[k] = self.slot(0 if self.direct[k] else BLOCK * size)
        return found

    def _loads(self, node: Node) -> int:
        return self.of_operand(self.operand(node), node.dtype.size)

    # instructions

    def stored(self, node: Node, slot: int, to: DType, once: bool) -> int:
        """Returns the slot of a value converted to an output's element type; once: it is a row value."""
        if computed(node.dtype) is to:
            return slot
        if computed(node.dtype) is not computed(to):
            raise NotExpressible
        narrow = self._row_slot(to) if once else self.register(to)
        code = self.now.row_code if once else self.now.inner_code
        self._emit(code, "convert", (dt.float32,), to, (slot, narrow), once and not self.wide)
        return narrow

    def _emit(
        self, code: list[int], name: str, types: tuple[DType, ...], made: DType, slots: Iterable[int], scalar: bool
    ) -> None:
        operation = number_of(name, types, made, scalar)
        if operation is None:
            raise NotExpressible
        given = list(slots)
        code += [operation, len(given), *given]

    # values of rows

    def set_row(self, node: Node, slot: int) -> None:
        self._row[node.ident] = slot

    def mean(self, total: int, count: int) -> int:
        """Returns the slot of a total divided by the number of elements."""
        if type(count) is TracedInt:
            raise NotExpressible
        single, made = dt.float32, self._row_slot(dt.float32)
        many = self.number(float(count), single, self.wide)
        self._emit(self.now.row_code, "exact_div", (single, single), single, (total, many, made), not self.wide)
        return made

    def row(self, node: Node) -> int:
        """Returns the slot of a row-invariant node, computed once per row."""
        if node.kind == "const":
            return self.number(number(node), node.dtype, self.wide)
        found = self._row.get(node.ident)
        if found is None:
            found = self._row[node.ident] = self._make_row(node)
        return found

    def _make_row(self, node: Node) -> int:
        code, scalar = self.now.row_code, not self.wide
        if node.kind == "load":
            slot = self._loads(node)
            self.now.row_operands.append(self.operand(node))
            if computed(node.dtype) is node.dtype:
                return slot
            made = self._row_slot(dt.float32)
            self._emit(code, "convert", (node.dtype,), dt.float32, (slot, made), scalar)
            return made
        if node.kind not in ("prim", "convert"):
            raise NotExpressible
        made = self._row_slot(node.dtype)
        self._node(_Side(code, self.row, self._row_slot, scalar), node, made)
        return made

    def prepare(self, inner: Iterable[Node]) -> None:
        """Computes the row-invariant operands of nodes that vary, in the order of `Scope.prepare`."""
        for node in inner:
            if not self.varies(node):
                if node.kind != "const":
                    self.row(node)
                continue
            for a in node.args:
                if not self.varies(a) and a.kind != "const":
                    self.row(a)
            if node.kind == "prim" and node.word == "div" and node.dtype is dt.float32:
                by = node.args[1]
                if not self.varies(by) and by.kind != "const":
                    self._invert(by)

    def _invert(self, node: Node) -> None:
        """Computes s, a power of two, and 1 / (x s), so that a / x = (a s) / (x s); s is None if x is known to be at least 1."""
        if node.ident in self._inverses:
            return
        code, scalar, single = self.now.row_code, not self.wide, dt.float32
        x, one = self.row(node), self.number(1.0, single, self.wide)
        inverse = self._row_slot(single)
        scale = None
        if not (node.kind == "reduce" and node.word == "total"):
            scale, scaled = self._row_slot(single), self._row_slot(single)
            self._emit(code, "divisor_scale", (single,), single, (x, scale), scalar)
            self._emit(code, "mul", (single, single), single, (x, scale, scaled), scalar)
            x = scaled
        self._emit(code, "exact_div", (single, single), single, (one, x, inverse), scalar)
        self._inverses[node.ident] = scale, inverse

    # values along rows

    def begin(self, nodes: Iterable[Node]) -> None:
        """Starts the per-block instructions; nodes: every use of a value, for freeing registers after the last one."""
        self._inner, self._uses = {}, {}
        for node in nodes:
            self._uses[node.ident] = self._uses.get(node.ident, 0) + 1

    def set_inner(self, ident: int, slot: int) -> None:
        self._inner[ident] = slot

    def inner(self, node: Node) -> int:
        """Returns the slot of a node's value for a block of a row."""
        if node.kind == "const":
            return self.number(number(node), node.dtype, True)
        if not self.varies(node):
            return self._spread_row(self.row(node), node.dtype)
        found = self._inner.get(node.ident)
        if found is None:
            found = self._inner[node.ident] = self._make_inner(node)
        return found

    def _spread_row(self, slot: int, dtype: DType) -> int:
        if self.wide:
            return slot
        found = self._spread.get(slot)
        if found is None:
            size = computed(dtype).size
            found = self._spread[slot] = self.slot(BLOCK * size)
            self.now.splats.append((slot, found, size))
        return found

    def _make_inner(self, node: Node) -> int:
        if node.kind == "load":
            slot = self._loads(node)
            self.now.inner_operands.append(self.operand(node))
            if computed(node.dtype) is node.dtype:
                return slot
            made = self.register(dt.float32)
            self._emit(self.now.inner_code, "convert", (node.dtype,), dt.float32, (slot, made), False)
            return made
        if node.kind not in ("prim", "convert"):
            raise NotExpressible
        for a in node.args:
            self.inner(a)
        target = self.targets.get(node.ident)
        made = self.register(node.dtype) if target is None else target
        self._node(_Side(self.now.inner_code, self.inner, self.register, False), node, made)
        for a in node.args:
            self.used(a)
        return made

    def used(self, node: Node) -> None:
        """Frees the register of a value after its last use."""
        self._uses[node.ident] = self._uses.get(node.ident, 0) - 1
        slot = self._inner.get(node.ident)
        if self._uses[node.ident] == 0 and slot in self._size_of and node.kind != "load":
            self._free[self._size_of[slot]].append(slot)

    def _node(self, side: _Side, node: Node, made: int) -> None:
        """Emits the instructions that compute one node from its operands."""
        code, value, room, scalar = side
        types = tuple(computed(a.dtype) for a in node.args)
        if node.kind == "convert":
            to = dt.of(node.word)
            if computed(to) is not to:  # rounded to fewer bits and back
                if types != (dt.float32,):
                    raise NotExpressible
                narrow = room(to)
                self._emit(code, "convert", types, to, (value(node.args[0]), narrow), scalar)
                self._emit(code, "convert", (to,), dt.float32, (narrow, made), scalar)
                return
            self._emit(code, "convert", types, to, (value(node.args[0]), made), scalar)
            return
        if node.word == "div" and node.dtype is dt.float32:
            self._division(side, node, made)
            return
        name, args = bounded(node)
        self._emit(code, name, types, node.dtype, (*(value(a) for a in args), made), scalar)

    def _division(self, side: _Side, node: Node, made: int) -> None:
        """Emits a division by a constant or a row value as a product with the reciprocal, as `Scope` does."""
        code, value, room, scalar = side
        (a, b), single = node.args, dt.float32
        two = single, single
        if b.kind == "const":
            by = float(number(b))
            if not scalar and by != 0 and math.isfinite(by) and 1e-30 < abs(by) < 1e30:
                inverse = self.number(1.0 / by, single, True)
                self._emit(code, "mul", two, single, (value(a), inverse, made), scalar)
                return
        found = None if scalar else self._inverses.get(b.ident)
        if found is None:
            self._emit(code, "exact_div", two, single, (value(a), value(b), made), scalar)
            return
        scale, inverse = found
        inverse = self._spread_row(inverse, single)
        x = value(a)
        if scale is not None:
            scaled = room(single)
            self._emit(code, "mul", two, single, (x, self._spread_row(scale, single), scaled), scalar)
            x = scaled
        self._emit(code, "mul", two, single, (x, inverse, made), scalar)
        if scale is not None and x in self._size_of:
            self._free[single.size].append(x)
