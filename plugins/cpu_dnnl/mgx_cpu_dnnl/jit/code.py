"""LLVM IR builder: writes IR as text, with typed values, vectors of any width and structured loops.

Text is an order of magnitude faster to build than an object model of IR, and LLVM's parser verifies it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from mgx_core.named_tuples import NamedTuple

__all__ = ["BITS", "Code", "V", "i64"]

BITS: Final = {"i1": 1, "i8": 8, "i16": 16, "half": 16, "bfloat": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}
FLOATS: Final = frozenset({"half", "float", "double"})
# lines of a loop body above which the induction variable is hidden from LLVM: loop strength reduction took two thirds of the
# compile time of attention and made none of the many loops measured faster
LONG_BODY: Final = 32


class V(NamedTuple):
    """An SSA value or constant: its text, element type and number of lanes (0: a scalar)."""

    ref: str
    elem: str
    n: int

    @property
    def type(self) -> str:
        return f"<{self.n} x {self.elem}>" if self.n else self.elem


def i64(value: int) -> V:
    """Returns an i64 constant."""
    return V(str(value), "i64", 0)


class Code:
    """One LLVM function with the signature of a kernel, under construction."""

    def __init__(self, lanes: int, wide: bool, divides: bool = False, bfloat16: bool = False) -> None:
        self.lanes = lanes  # float32 lanes of a vector register
        self.wide = wide  # AVX-512 instructions may be used
        self.divides = divides  # a division is faster than a reciprocal estimate with refinement
        self.bfloat16 = bfloat16  # the instructions for bfloat16 of AVX512-BF16 may be used
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.extra: dict[str, str] = {}  # helper functions by name
        self.narrow: dict[str, V] = {}  # narrow floats that values were widened from, which need not be rounded again
        self._counts: dict[str, V] = {}  # lane counts of the masks that `first` has made
        self._next = 0
        self.block = "entry"

    # plain instructions

    def name(self) -> str:
        self._next += 1
        return f"%v{self._next}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def make(self, text: str, elem: str, n: int) -> V:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return V(name, elem, n)

    def op(self, opcode: str, a: V, b: V) -> V:
        """Emits a binary instruction on two values of one type."""
        return self.make(f"{opcode} {a.type} {a.ref}, {b.ref}", a.elem, a.n)

    def compare(self, how: str, a: V, b: V) -> V:
        """Emits ``fcmp`` or ``icmp``, depending on the type; `how` is the predicate."""
        kind = "fcmp" if a.elem in FLOATS else "icmp"
        return self.make(f"{kind} {how} {a.type} {a.ref}, {b.ref}", "i1", a.n)

    def select(self, c: V, a: V, b: V) -> V:
        if c.n == 0 and a.n:
            return self.make(f"select i1 {c.ref}, {a.type} {a.ref}, {b.type} {b.ref}", a.elem, a.n)
        return self.make(f"select {c.type} {c.ref}, {a.type} {a.ref}, {b.type} {b.ref}", a.elem, a.n)

    def cast(self, opcode: str, a: V, elem: str) -> V:
        to = V("", elem, a.n)
        return self.make(f"{opcode} {a.type} {a.ref} to {to.type}", elem, a.n)

    def reinterpret(self, a: V, elem: str, n: int) -> V:
        """Returns the bits of a value as n elements of another type."""
        return self.make(f"bitcast {a.type} {a.ref} to {V('', elem, n).type}", elem, n)

    def fneg(self, a: V) -> V:
        return self.make(f"fneg {a.type} {a.ref}", a.elem, a.n)

    def call(self, function: str, elem: str, n: int, *args: V) -> V:
        """Emits a call of a declared function or intrinsic by its full name."""
        result = V("", elem, n).type
        self.declared[function] = f"declare {result} @{function}({', '.join(a.type for a in args)})"
        return self.make(f"call {result} @{function}({', '.join(f'{a.type} {a.ref}' for a in args)})", elem, n)

    def run(self, function: str, *args: V) -> None:
        """Emits a call of a void function of the native module."""
        self.declared[function] = f"declare void @{function}({', '.join(a.type for a in args)})"
        self.emit(f"call void @{function}({', '.join(f'{a.type} {a.ref}' for a in args)})")

    def buffers(self, numbers: Iterable[int]) -> list[V]:
        """Returns the addresses of some buffers."""
        return [self.load(self.gep(V("%buffers", "ptr", 0), i, "ptr"), "ptr", 0) for i in numbers]

    def intrinsic(self, name: str, *args: V) -> V:
        """Emits a call of an overloaded intrinsic whose operands and result have the same type."""
        return self.call(f"llvm.{name}.{suffix(args[0])}", args[0].elem, args[0].n, *args)

    def fma(self, a: V, b: V, c: V) -> V:
        return self.intrinsic("fma", a, b, c)

    def add_pairs(self, a: V, b: V, c: V) -> V:
        """Returns c plus the sums of the products of two bfloat16 in each 32-bit lane of a and b (AVX512-BF16)."""
        x, y = (self.reinterpret(v, "bfloat", 2 * v.n) for v in (a, b))
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", "float", c.n, c, x, y)

    # constants and vectors

    def const(self, value: float | int | bool, like: V) -> V:
        return constant(value, like.elem, like.n)

    def splat(self, x: V, n: int) -> V:
        """Broadcasts a scalar, or lane 0 of a vector, to `n` lanes."""
        if x.n == n:
            return x
        if not n:
            return self.make(f"extractelement {x.type} {x.ref}, i32 0", x.elem, 0)
        if not x.ref.startswith("%"):
            return V(x.ref if x.n else f"splat ({x.elem} {x.ref})", x.elem, n)
        if not x.n:
            x = self.make(f"insertelement <{n} x {x.elem}> poison, {x.elem} {x.ref}, i32 0", x.elem, n)
        text = f"shufflevector {x.type} {x.ref}, {x.type} poison, <{n} x i32> zeroinitializer"
        return self.make(text, x.elem, n)

    def shuffle(self, a: V, b: V, order: Sequence[int]) -> V:
        mask = ", ".join(f"i32 {i}" for i in order)
        text = f"shufflevector {a.type} {a.ref}, {b.type} {b.ref}, <{len(order)} x i32> <{mask}>"
        return self.make(text, a.elem, len(order))

    def iota(self, elem: str, n: int) -> V:
        return V("<" + ", ".join(f"{elem} {i}" for i in range(n)) + ">", elem, n)

    def offsets(self, step: V, n: int, near: bool = False) -> V:
        """Returns 0, step, 2 step, ..; near: all fit into 32 bits, which makes gathers faster."""
        if near:
            return self.op("mul", self.iota("i32", n), self.splat(self.cast("trunc", step, "i32"), n))
        return self.op("mul", self.iota("i64", n), self.splat(step, n))

    def first(self, count: V, n: int) -> V:
        """Returns the mask of the first `count` (i64) of n lanes."""
        elem = "i32" if n > 8 or not self.wide else "i64"
        limit = self.intrinsic("umin", count, i64(n))
        small = self.cast("trunc", limit, elem) if elem == "i32" else limit
        mask = self.compare("ult", self.iota(elem, n), self.splat(small, n))
        self._counts[mask.ref] = limit
        return mask

    # memory

    def gep(self, base: V, index: V | int, elem: str) -> V:
        ref = index if isinstance(index, int) else index.ref
        return self.make(f"getelementptr {elem}, ptr {base.ref}, i64 {ref}", "ptr", 0)

    def load(self, address: V, elem: str, n: int, mask: V | None = None) -> V:
        align = max(BITS.get(elem, 64) // 8, 1)
        if mask is None:
            return self.make(f"load {V('', elem, n).type}, ptr {address.ref}, align {align}", elem, n)
        kind = V("", elem, n)
        zero = V("zeroinitializer", elem, n)
        return self._masked("load", kind, [V(f"align {align} {address.ref}", "ptr", 0), mask, zero])

    def store(self, address: V, x: V, mask: V | None = None, flags: str = "") -> None:
        align = max(BITS.get(x.elem, 64) // 8, 1)
        if mask is None:
            self.emit(f"store {x.type} {x.ref}, ptr {address.ref}, align {align}{flags}")
            return
        count = None if self.wide else self._counts.get(mask.ref)
        if count is not None:
            whole = self.compare("eq", count, i64(x.n))
            self.either(whole, lambda: self.store(address, x), lambda: self._store_first(address, x, count))
            return
        name = f"llvm.masked.store.{suffix(x)}.p0"
        self.declared[name] = f"declare void @{name}({x.type}, ptr, {mask.type})"
        self.emit(f"call void @{name}({x.type} {x.ref}, ptr align {align} {address.ref}, {mask.type} {mask.ref})")

    def _store_first(self, address: V, x: V, count: V) -> None:
        """Stores the first lanes of x in power-of-two parts, since AVX2's masked store takes a dozen cycles on some CPUs."""
        half = x.n // 2
        while half:
            given = self.compare("ne", self.op("and", count, i64(half)), i64(0))
            low = (
                self.shuffle(x, x, range(half))
                if half > 1
                else self.make(f"extractelement {x.type} {x.ref}, i64 0", x.elem, 0)
            )
            self.when(given, partial(self.store, address, low))
            if half > 1:
                x = self.select(given, self.shuffle(x, x, range(half, 2 * half)), low)
                address = self.select(given, self.gep(address, half, x.elem), address)
            half //= 2

    def gather(self, base: V, offsets: V, elem: str, mask: V | None = None) -> V:
        """Loads the elements at base + offsets (in elements, i64 lanes)."""
        n = offsets.n
        align = max(BITS[elem] // 8, 1)
        at = self.make(f"getelementptr {elem}, ptr {base.ref}, {offsets.type} {offsets.ref}", "ptr", n)
        on = mask or V("splat (i1 true)", "i1", n)
        kind = V("", elem, n)
        return self._masked("gather", kind, [V(f"align {align} {at.ref}", "ptr", n), on, V("zeroinitializer", elem, n)])

    def scatter(self, base: V, offsets: V, x: V, mask: V | None = None) -> None:
        n = offsets.n
        at = self.make(f"getelementptr {x.elem}, ptr {base.ref}, {offsets.type} {offsets.ref}", "ptr", n)
        on = mask or V("splat (i1 true)", "i1", n)
        name = f"llvm.masked.scatter.{suffix(x)}.v{n}p0"
        align = max(BITS[x.elem] // 8, 1)
        self.declared[name] = f"declare void @{name}({x.type}, <{n} x ptr>, <{n} x i1>)"
        self.emit(f"call void @{name}({x.type} {x.ref}, <{n} x ptr> align {align} {at.ref}, {on.type} {on.ref})")

    def _masked(self, what: str, kind: V, args: list[V]) -> V:
        pointer = f"v{kind.n}p0" if what == "gather" else "p0"
        name = f"llvm.masked.{what}.{suffix(kind)}.{pointer}"
        self.declared[name] = f"declare {kind.type} @{name}({', '.join(a.type for a in args)})"
        return self.make(f"call {kind.type} @{name}({', '.join(f'{a.type} {a.ref}' for a in args)})", kind.elem, kind.n)

    def stack(self, elem: str, count: int) -> V:
        """Allocates 64-byte aligned stack memory for the whole function; must be called before the first loop."""
        return self.make(f"alloca [{count} x {elem}], align 64", "ptr", 0)

    # control

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def fresh(self, word: str) -> str:
        self._next += 1
        return f"{word}{self._next}"

    def loop(
        self,
        begin: V,
        end: V,
        step: int | V,
        body: Callable[[V, list[V]], Sequence[V]],
        carried: Sequence[V] = (),
        ahead: int = 0,
    ) -> list[V]:
        """Emits ``for (i = begin; i + ahead < end; i += step)`` with loop-carried values; returns the final i and values."""
        before, head, inner, after = (self.fresh(w) for w in ("pre", "head", "body", "after"))
        self.emit(f"br label %{before}")
        self.label(before)
        self.emit(f"br label %{head}")
        self.label(head)
        i = V(self.name(), "i64", 0)
        phis = [V(self.name(), c.elem, c.n) for c in carried]
        at = len(self.lines)
        self.lines.append("")  # placeholder for the phis, written once the next iteration's values are known
        limit = self.op("add", i, i64(ahead)) if ahead else i
        going = self.compare("slt", limit, end)
        self.emit(f"br i1 {going.ref}, label %{inner}, label %{after}")
        self.label(inner)
        following = body(i, phis)
        ref = step.ref if isinstance(step, V) else str(step)
        onward = self.make(f"add nsw i64 {i.ref}, {ref}", "i64", 0)
        if len(self.lines) - at > LONG_BODY:
            onward = self.make(f'call i64 asm "", "=r,0"(i64 {onward.ref})', "i64", 0)
        latch = self.block
        self.emit(f"br label %{head}")
        rows = [f"  {i.ref} = phi i64 [{begin.ref}, %{before}], [{onward.ref}, %{latch}]"]
        for phi, first, later in zip(phis, carried, following, strict=True):
            rows.append(f"  {phi.ref} = phi {phi.type} [{first.ref}, %{before}], [{later.ref}, %{latch}]")
        self.lines[at] = "\n".join(rows)
        self.label(after)
        return [i, *phis]

    def when(self, condition: V, body: Callable[[], None]) -> None:
        """Emits `body` under a scalar condition."""
        inner, after = self.fresh("then"), self.fresh("after")
        self.emit(f"br i1 {condition.ref}, label %{inner}, label %{after}")
        self.label(inner)
        body()
        self.emit(f"br label %{after}")
        self.label(after)

    def either(self, condition: V | None, body: Callable[[], None], other: Callable[[], None]) -> None:
        """Emits if-else on a scalar condition; without a condition, only `other`."""
        if condition is None:
            other()
            return
        self.when(condition, body)
        self.when(self.op("xor", condition, V("true", "i1", 0)), other)

    def choose(self, condition: V, then: Callable[[], V], other: V) -> V:
        """Returns `then()` if the scalar condition holds, else `other`."""
        inner, after = self.fresh("then"), self.fresh("after")
        before = self.block
        self.emit(f"br i1 {condition.ref}, label %{inner}, label %{after}")
        self.label(inner)
        made = then()
        last = self.block
        self.emit(f"br label %{after}")
        self.label(after)
        return self.make(f"phi {made.type} [{made.ref}, %{last}], [{other.ref}, %{before}]", made.elem, made.n)

    def helper(self, name: str, text: str) -> None:
        """Adds an internal function that the kernel calls."""
        self.extra[name] = text

    def text(self, symbol: str) -> str:
        """Returns the function's IR, without helpers and declarations."""
        return "\n".join(
            [
                f"define void @{symbol}(ptr %buffers, ptr %args, i64 %begin, i64 %end, ptr %scratch) #0 {{",
                "entry:",
                *self.lines,
                "  ret void",
                "}",
            ]
        )


def suffix(x: V) -> str:
    """Returns the suffix of overloaded intrinsics for a type."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(x.elem, x.elem)
    return f"v{x.n}{short}" if x.n else short


def constant(value: float | int | bool, elem: str, n: int) -> V:
    """Returns a constant of the type and lanes of a value."""
    if elem == "float":
        with_single = struct.unpack("f", struct.pack("f", clamp_single(float(value))))[0]
        text = _hexadecimal(with_single)
    elif elem == "double":
        text = _hexadecimal(float(value))
    elif elem == "i1":
        text = "true" if value else "false"
    else:
        bits = BITS[elem]
        whole = int(value) & ((1 << bits) - 1)
        text = str(whole - (1 << bits) if whole >> (bits - 1) else whole)
    return V(f"splat ({elem} {text})" if n else text, elem, n)


def _hexadecimal(value: float) -> str:
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


def clamp_single(value: float) -> float:
    """Returns `value`, or an infinity if it overflows float32."""
    if value != value or abs(value) <= 3.4028235677973366e38:
        return value
    return float("inf") if value > 0 else float("-inf")
