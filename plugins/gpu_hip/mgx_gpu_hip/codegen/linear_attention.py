"""Linear attention: a recurrence on a matrix state, in one launch for any number of steps.

The columns of a head's state are independent.  A few lanes share a column and hold its rows in registers; the steps' keys,
queries, decays and values are read to shared memory, several steps at once.
"""

from __future__ import annotations

import math
from typing import Final

from mgx_core import No
from mgx_core.ops.linear_attention import LinearAttention

from .elements import offset_of
from .generators import Inputs
from .geometry import ceil_div, power_of_two
from .pointwise import one_launch
from .primitives import constant
from .source import DeviceTraits, KernelSource, Tensor, finish, storage_type, to_compute, to_storage

__all__ = ["linear_attention"]

THREADS: Final = 128
HELD: Final = 16  # rows of a column per lane, if its wave has enough lanes
MOST_HELD: Final = 64  # rows of a column per lane
MAX_STEPS: Final = 16  # steps in shared memory at once
LOADS: Final = 16  # elements that a thread reads before it stores the first
SUMS: Final = 4  # sums of a product that do not wait for each other


def linear_attention(op: LinearAttention, xs: Inputs, ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """Generates one launch: a block computes up to THREADS / `lanes` columns of one head's state of one sequence."""
    query, key, value = xs[:3]
    assert query is not None and key is not None and value is not None
    if not value.lens[2]:
        return finish(op.name, "", [], xs, ys)
    if not key.lens[2]:
        return No("keys have no elements")
    k = _Kernel(op, xs, ys, traits)
    if k.held > MOST_HELD:
        return No(f"the kernel supports keys of at most {MOST_HELD * traits.wave} elements, got {k.size}")
    if not k.together:
        return No(f"a step requires {k.step_bytes} bytes of shared memory, a block has {traits.shared_bytes}")
    batch, steps = query.lens[:2]
    flops = 2 * batch * steps * k.heads * k.size * k.width * (2 + k.group)
    return one_launch(op.name, k.lines(), xs, ys, batch * k.heads * k.blocks, THREADS, flops=flops)


class _Kernel:
    """Writes the statements of a kernel.

    lanes: of a column; held: rows of a lane, `vector` adjacent ones at a time, which it reads from shared memory at once;
    rows: of a column, with those that fill the last lanes; columns: of a block; group: queries of a key; keeps: decays of a
    step; together: steps in shared memory, of `step_bytes` each.
    """

    def __init__(self, op: LinearAttention, xs: Inputs, ys: list[Tensor], traits: DeviceTraits) -> None:
        self.op, self.xs = op, xs
        self.out, self.state = ys
        query, key, value, self.past, self.decay, self.beta = [*xs, *[None] * 6][:6]
        assert query is not None and key is not None and value is not None
        self.steps = query.lens[1]
        self.heads = op.kv_num_heads
        self.group = op.q_num_heads // self.heads
        self.size, self.width = key.lens[2] // self.heads, value.lens[2] // self.heads
        self.lanes = min(power_of_two(ceil_div(self.size, HELD)), traits.wave)
        self.vector = 4 if self.size >= 4 * self.lanes else 1
        self.held = ceil_div(self.size, self.vector * self.lanes) * self.vector
        self.rows = self.held * self.lanes
        self.columns = THREADS // self.lanes
        self.blocks = ceil_div(self.width, self.columns)
        self.by_row = self.decay is not None and self.decay.lens[2] != self.heads
        self.keeps = 0 if self.decay is None else self.rows if self.by_row else 1
        self.kind, bytes_of = ("double", 8) if query.dtype.size == 8 else ("float", 4)
        self.load = "ldv" if self.vector * bytes_of <= 16 else "load_many"
        self.step_bytes = (self.rows * (1 + self.group) + self.keeps + self.columns + 1) * bytes_of
        self.together = min((traits.shared_bytes - 15 * bytes_of) // self.step_bytes, MAX_STEPS)

    def lines(self) -> list[str]:
        """Returns all statements: the state stays in registers while steps are staged and computed, `together` at a time."""
        at, v, lanes, steps, together = self.past, self.vector, self.lanes, self.steps, self.together
        row = f"(r / {v}u * {lanes}u + lane) * {v}u + r % {v}u" if v > 1 else f"r * {lanes}u + lane"
        place = ["b", "g", f"({row})", "j"]
        inside = f"{row} < {self.size}u"
        begin = "0"
        if at is not None:
            begin = f"{inside} ? ({self.kind}){to_compute(f'p3[{offset_of(at, place, True)}]', at.dtype)} : 0"
        result = to_storage("state[r]", self.state.dtype)
        return [
            f"const u32 lane = threadIdx.x % {lanes}u, column = threadIdx.x / {lanes}u;",
            f"const u32 base = blockIdx.x % {self.blocks}u * {self.columns}u, "
            f"g = blockIdx.x / {self.blocks}u % {self.heads}u;",
            f"const u32 b = blockIdx.x / {self.blocks * self.heads}u, given = base + column;",
            f"const bool live = given < {self.width}u;",
            f"const u32 j = live ? given : {self.width - 1}u;",
            *self.shared("keys", self.rows),
            *self.shared("queries", self.group * self.rows),
            *self.shared("keeps", self.keeps),
            *self.shared("values", self.columns),
            *(self.shared("rates", 1) if self.beta is not None else []),
            f"{self.kind} state[{self.held}];",
            self.every(f"state[r] = {begin};"),
            f"for (u32 first = 0; first < {steps}u; first += {together}u) {{",
            f"  const u32 now = {steps}u - first < {together}u ? {steps}u - first : {together}u;",
            "  __syncthreads();",
            *(f"  {line}" for line in self.staging()),
            "  __syncthreads();",
            "  for (u32 s = 0; s < now; ++s) {",
            *(f"    {line}" for line in self.step()),
            "  }",
            "}",
            self.every(f"if (live && {inside}) q1[{offset_of(self.state, place, True)}] = {result};"),
        ]

    def staging(self) -> list[str]:
        """Returns statements that read the operands of the next steps to shared memory."""
        group, rows, columns, size, width = self.group, self.rows, self.columns, self.size, self.width
        query = f"((g * {group}u + i / {rows}u) * {size}u + i % {rows}u)"
        lines = self.staged("keys", 1, rows, f"(g * {size}u + i)", f"i < {size}u")
        lines += self.staged("queries", 0, group * rows, query, f"i % {rows}u < {size}u")
        lines += self.staged("values", 2, columns, f"(g * {width}u + base + i)", f"base + i < {width}u")
        if self.by_row:
            lines += self.staged("keeps", 4, self.keeps, f"(g * {size}u + i)", f"i < {size}u", "m::exp({})")
        else:
            lines += self.staged("keeps", 4, self.keeps, "g", "", "m::exp({})")
        rate = "0u" if self.beta is None or self.beta.lens[2] == 1 else "g"
        return [*lines, *self.staged("rates", 5, 1, rate)]

    def staged(self, name: str, operand: int, n: int, index: str, inside: str = "", form: str = "{}") -> list[str]:
        """Returns statements that read n elements `i` of each step to shared memory, zeros where `inside` is false."""
        x = self.xs[operand] if operand < len(self.xs) else None
        if x is None or not n:
            return []
        there = f"a < now * {n}u && {inside}" if inside else f"a < now * {n}u"
        stored = form.format(f"({self.kind}){to_compute('raw[l]', x.dtype)}")
        t, loads = storage_type(x.dtype), min(ceil_div(self.together * n, THREADS), LOADS)
        return [
            f"for (u32 a0 = threadIdx.x; a0 < now * {n}u; a0 += {loads * THREADS}u) {{",
            f"  {t} raw[{loads}];",
            f"  UNROLL for (u32 l = 0; l < {loads}u; ++l) {{",
            f"    const u32 a = a0 + l * {THREADS}u;",
            f"    const u32 s = a / {n}u, i = a % {n}u;",
            f"    const {t} none = {{0}};",
            f"    raw[l] = {there} ? p{operand}[{offset_of(x, ['b', 'first + s', index], True)}] : none;",
            "  }",
            f"  UNROLL for (u32 l = 0; l < {loads}u; ++l) {{",
            f"    const u32 a = a0 + l * {THREADS}u;",
            f"    if (a < now * {n}u) {name}[a] = {stored};",
            "  }",
            "}",
        ]

    def step(self) -> list[str]:
        """Returns the statements of one step.

        The output reads the state before the step's key and value are added: both products wait for the same state only.
        """
        rows, group, width = self.rows, self.group, self.width
        lines = self.loaded("k", f"keys + s * {rows}u")
        if self.by_row:
            lines += [*self.loaded("keep", f"keeps + s * {rows}u"), self.every("state[r] *= keep[r];")]
        elif self.decay is not None:
            lines += [self.every("state[r] *= keeps[s];")]
        lines += [f"{self.kind} added = values[s * {self.columns}u + column];"]
        if self.beta is not None:
            lines += [*self.total("known", "k", "state"), "added = rates[s] * (added - known);"]
        scale = constant(self.op.scale or 1 / math.sqrt(self.size), self.kind)
        place = offset_of(self.out, ["b", "first + s", f"((g * {group}u + h) * {width}u + j)"], True)
        return [
            *lines,
            f"UNROLL for (u32 h = 0; h < {group}u; ++h) {{",
            *(f"  {line}" for line in self.loaded("q", f"queries + (s * {group}u + h) * {rows}u")),
            *(f"  {line}" for line in (*self.total("read", "q", "state"), *self.total("match", "q", "k"))),
            f"  if (live && lane == h % {self.lanes}u)",
            f"    q0[{place}] = {to_storage(f'{scale} * (read + match * added)', self.out.dtype)};",
            "}",
            self.every("state[r] += k[r] * added;"),
        ]

    def shared(self, name: str, n: int) -> list[str]:
        return [f"SHARED({self.kind}, {name}, [{ceil_div(self.together * n, 4) * 4}]);"] if n else []

    def every(self, code: str) -> str:
        return f"UNROLL for (u32 r = 0; r < {self.held}u; ++r) {code}"

    def loaded(self, name: str, source: str) -> list[str]:
        """Returns statements that read a lane's rows of a vector in shared memory."""
        v, part = self.vector, f"vec<{self.kind}, {self.vector}>"
        load = f"const {part} part = {self.load}<{self.kind}, {v}>({source} + (r * {self.lanes}u + lane) * {v}u);"
        copy = f"UNROLL for (u32 i = 0; i < {v}u; ++i) {name}[r * {v}u + i] = part.v[i];"
        return [
            f"{self.kind} {name}[{self.held}];",
            f"UNROLL for (u32 r = 0; r < {self.held // v}u; ++r) {{ {load} {copy} }}",
        ]

    def total(self, name: str, one: str, other: str) -> list[str]:
        """Returns statements that compute the product of two vectors of the lanes, in several independent sums."""
        sums = min(self.held, SUMS)
        return [
            f"{self.kind} {name}_[{sums}] = {{}}, {name} = 0;",
            self.every(f"{name}_[r % {sums}u] += {one}[r] * {other}[r];"),
            f"UNROLL for (int i = 0; i < {sums}; ++i) {name} += {name}_[i];",
            *([f"{name} = wave_reduce<Sum, {self.lanes}>({name});"] if self.lanes > 1 else []),
        ]
