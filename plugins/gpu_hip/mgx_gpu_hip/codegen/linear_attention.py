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
    query, key, value, past, decay, beta = [*xs, *[None] * 6][:6]
    assert query is not None and key is not None and value is not None
    out, state = ys
    heads = op.kv_num_heads
    group = op.q_num_heads // heads
    size, width = key.lens[2] // heads, value.lens[2] // heads
    batch, steps = query.lens[:2]
    if not width:
        return finish(op.name, "", [], xs, ys)
    if not size:
        return No("keys have no elements")
    lanes = min(power_of_two(ceil_div(size, HELD)), traits.wave)
    vector = 4 if size >= 4 * lanes else 1  # adjacent rows of a lane, read from shared memory at once
    held = ceil_div(size, vector * lanes) * vector
    if held > MOST_HELD:
        return No(f"the kernel supports keys of at most {MOST_HELD * traits.wave} elements, got {size}")
    columns = THREADS // lanes
    blocks = ceil_div(width, columns)
    rows = held * lanes
    by_row = decay is not None and decay.lens[2] != heads
    kind = "double" if query.dtype.size == 8 else "float"
    keeps = 0 if decay is None else rows if by_row else 1
    each = rows * (1 + group) + keeps + columns + 1
    bytes_of = 8 if kind == "double" else 4
    wide = "ldv" if vector * bytes_of <= 16 else "load_many"
    bytes_each = each * bytes_of
    together = min((traits.shared_bytes - 15 * bytes_of) // bytes_each, MAX_STEPS)
    if not together:
        return No(f"a step requires {bytes_each} bytes of shared memory, a block has {traits.shared_bytes}")

    def staged(name: str, operand: int, n: int, index: str, inside: str = "", form: str = "{}") -> list[str]:
        """Returns statements that read n elements `i` of each step to shared memory, zeros where `inside` is false."""
        x = xs[operand] if operand < len(xs) else None
        if x is None or not n:
            return []
        at = f"const u32 s = a / {n}u, i = a % {n}u;"
        there = f"a < now * {n}u && {inside}" if inside else f"a < now * {n}u"
        stored = form.format(f"({kind}){to_compute('raw[l]', x.dtype)}")
        t, loads = storage_type(x.dtype), min(ceil_div(together * n, THREADS), LOADS)
        return [
            f"for (u32 a0 = threadIdx.x; a0 < now * {n}u; a0 += {loads * THREADS}u) {{",
            f"  {t} raw[{loads}];",
            f"  UNROLL for (u32 l = 0; l < {loads}u; ++l) {{",
            f"    const u32 a = a0 + l * {THREADS}u;",
            f"    {at}",
            f"    const {t} none = {{0}};",
            f"    raw[l] = {there} ? p{operand}[{offset_of(x, ['b', 'first + s', index], True)}] : none;",
            "  }",
            f"  UNROLL for (u32 l = 0; l < {loads}u; ++l) {{",
            f"    const u32 a = a0 + l * {THREADS}u;",
            f"    if (a < now * {n}u) {name}[a] = {stored};",
            "  }",
            "}",
        ]

    def shared(name: str, n: int) -> list[str]:
        return [f"SHARED({kind}, {name}, [{ceil_div(together * n, 4) * 4}]);"] if n else []

    def every(code: str) -> str:
        return f"UNROLL for (u32 r = 0; r < {held}u; ++r) {code}"

    def loaded(name: str, source: str) -> list[str]:
        """Returns statements that read a lane's rows of a vector in shared memory."""
        load = f"const vec<{kind}, {vector}> part = {wide}<{kind}, {vector}>({source} + (r * {lanes}u + lane) * {vector}u);"
        copy = f"UNROLL for (u32 i = 0; i < {vector}u; ++i) {name}[r * {vector}u + i] = part.v[i];"
        return [f"{kind} {name}[{held}];", f"UNROLL for (u32 r = 0; r < {held // vector}u; ++r) {{ {load} {copy} }}"]

    def total(name: str, one: str, other: str) -> list[str]:
        """Returns statements that compute the product of two vectors of the lanes, in several independent sums."""
        sums = min(held, SUMS)
        return [
            f"{kind} {name}_[{sums}] = {{}}, {name} = 0;",
            every(f"{name}_[r % {sums}u] += {one}[r] * {other}[r];"),
            f"UNROLL for (int i = 0; i < {sums}; ++i) {name} += {name}_[i];",
            *([f"{name} = wave_reduce<Sum, {lanes}>({name});"] if lanes > 1 else []),
        ]

    row = f"(r / {vector}u * {lanes}u + lane) * {vector}u + r % {vector}u" if vector > 1 else f"r * {lanes}u + lane"
    place = ["b", "g", f"({row})", "j"]
    inside = f"{row} < {size}u"
    begin = (
        "0"
        if past is None
        else f"{inside} ? ({kind}){to_compute(f'p3[{offset_of(past, place, True)}]', past.dtype)} : 0"
    )
    delta, gated = beta is not None, decay is not None
    scale = constant(op.scale or 1 / math.sqrt(size), kind)
    # the output reads the state before the step's key and value are added: both products wait for the same state only
    one = loaded("k", f"keys + s * {rows}u")
    if by_row:
        one += [*loaded("keep", f"keeps + s * {rows}u"), every("state[r] *= keep[r];")]
    elif gated:
        one += [every("state[r] *= keeps[s];")]
    one += [f"{kind} added = values[s * {columns}u + column];"]
    one += [*total("known", "k", "state"), "added = rates[s] * (added - known);"] if delta else []
    one += [
        f"UNROLL for (u32 h = 0; h < {group}u; ++h) {{",
        *(f"  {line}" for line in loaded("q", f"queries + (s * {group}u + h) * {rows}u")),
        *(f"  {line}" for line in (*total("read", "q", "state"), *total("match", "q", "k"))),
        f"  if (live && lane == h % {lanes}u)",
        f"    q0[{offset_of(out, ['b', 'first + s', f'((g * {group}u + h) * {width}u + j)'], True)}] = "
        f"{to_storage(f'{scale} * (read + match * added)', out.dtype)};",
        "}",
        every("state[r] += k[r] * added;"),
    ]
    parts = (
        staged("keys", 1, rows, f"(g * {size}u + i)", f"i < {size}u"),
        staged(
            "queries",
            0,
            group * rows,
            f"((g * {group}u + i / {rows}u) * {size}u + i % {rows}u)",
            f"i % {rows}u < {size}u",
        ),
        staged("values", 2, columns, f"(g * {width}u + base + i)", f"base + i < {width}u"),
        staged("keeps", 4, keeps, f"(g * {size}u + i)", f"i < {size}u", "m::exp({})")
        if by_row
        else staged("keeps", 4, keeps, "g", "", "m::exp({})"),
        staged("rates", 5, 1, "0u" if beta is None or beta.lens[2] == 1 else "g"),
    )
    lines = [
        f"const u32 lane = threadIdx.x % {lanes}u, column = threadIdx.x / {lanes}u;",
        f"const u32 base = blockIdx.x % {blocks}u * {columns}u, g = blockIdx.x / {blocks}u % {heads}u;",
        f"const u32 b = blockIdx.x / {blocks * heads}u, given = base + column;",
        f"const bool live = given < {width}u;",
        f"const u32 j = live ? given : {width - 1}u;",
        *shared("keys", rows),
        *shared("queries", group * rows),
        *shared("keeps", keeps),
        *shared("values", columns),
        *(shared("rates", 1) if delta else []),
        f"{kind} state[{held}];",
        every(f"state[r] = {begin};"),
        f"for (u32 first = 0; first < {steps}u; first += {together}u) {{",
        f"  const u32 now = {steps}u - first < {together}u ? {steps}u - first : {together}u;",
        "  __syncthreads();",
        *(f"  {line}" for part in parts for line in part),
        "  __syncthreads();",
        "  for (u32 s = 0; s < now; ++s) {",
        *(f"    {line}" for line in one),
        "  }",
        "}",
        every(f"if (live && {inside}) q1[{offset_of(state, place, True)}] = {to_storage('state[r]', state.dtype)};"),
    ]
    flops = 2 * batch * steps * heads * size * width * (2 + group)
    return one_launch(op.name, lines, xs, ys, batch * heads * blocks, THREADS, flops=flops)
