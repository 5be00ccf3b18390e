"""Recurrent layers in one launch: the weights of the states stay in registers, as operands of the matrix units."""

from __future__ import annotations

from typing import Any

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Lstm

from .elements import pointers
from .geometry import ceil_div
from .pointwise import kernel
from .recurrent import activation_functions, at, cell_code, input_products, unfit
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Tensor, finish, stored, written

__all__ = ["resident"]

REGISTERS = 65536  # of a multiprocessor
BESIDES = 72  # registers of a thread for all but the weights; twice as many sums take 40 more
LD = 24  # 16 sequences in shared memory, and what keeps the banks apart


def resident(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """rnn, gru (with linear_before_reset) and lstm in 16 bits, up to 16 sequences and a direction a block.

    A wave owns 16 hidden units, with the rows of all their gates.  States are rounded to the type of the results from step
    to step, as these are; cells and all sums are floats.
    """
    x, w, r, bias, lens, h0, c0, peephole = [*xs, *[None] * 8][:8]
    assert x is not None and w is not None and r is not None
    if x.dtype not in (dt.float16, dt.bfloat16):
        return No("matrix units take 16-bit floats")
    refused = unfit(op, x)
    if refused is not None:
        return refused
    s, b, i = x.lens
    h, directions, gates = op.hidden_size, op.directions, op.gates
    if h % 16:
        return No("the matrix units take hidden units by 16")
    if r.strides[2] != 1 or r.strides[1] % 8 or (directions > 1 and r.strides[0] % 8) or r.align < 16:
        return No("the rows of the weights do not lie in whole vectors")
    columns = 8 if directions * ceil_div(b, 8) <= traits.sm_count else 16
    threads = h // 16 * traits.wave
    weights = gates * (h // 16) * 128 // traits.wave
    if threads > 512 or threads * (weights + BESIDES + 5 * (columns - 8)) > REGISTERS:
        return No(f"the weights of {h} hidden units do not fit into registers")
    text = activation_functions(op, fast=True)
    text += kernel(NAME, *_kernel(op, [x, w, r, bias, lens, h0, c0, peephole], ys, columns), threads)
    product, before, space = input_products(op, x, w, traits)
    given = [x, w, r, bias, lens, h0, c0, peephole]
    _, buffers = pointers(given, ys)
    grid = (ceil_div(b, columns), directions, 1)
    launches = [before, KernelLaunch(NAME, grid, (threads, 1, 1), (*buffers, Buffer("scratch", 0)))]
    flops = 2 * s * directions * b * h * gates * (i + h)
    return finish(op.name, text + product, launches, given, ys, scratch=[space], flops=flops)


def _kernel(op: Any, given: list[Tensor | None], ys: list[Tensor], columns: int) -> tuple[list[str], list[str]]:
    """Returns parameters and statements."""
    x, _, r, bias, lens, h0, c0, peephole = given
    assert x is not None and r is not None
    s, b, _ = x.lens
    h, gates = op.hidden_size, op.gates
    t, y, long = stored(x.dtype), ys[0], isinstance(op, Lstm)
    used, unit = ("FRAG_LEFT", "frag_mma_left") if columns == 8 else ("FRAG_C", "frag_mma")
    place = [
        "const u32 j = wave_id() * 16u + frag_row(e), column = frag_col(e), n = first + column;",
        f"const bool inside = column < {columns}u && n < {b}u;",
    ]

    def begin(tensor: Tensor | None, n: int) -> str:
        return "0.f" if tensor is None else f"inside ? {at(tensor, n, 'd', 'n', 'j')} : 0.f"

    def place_in_time(step: str) -> str:
        return f"{'true' if op.direction == 'reverse' else 'd == 1'} ? {s - 1}u - ({step}) : {step}"

    def load(slot: str, step: str) -> list[str]:
        return [
            f"UNROLL for (int e = 0; e < {used}; ++e) {{",
            *("  " + c for c in place),
            f"  const u32 row = ({place_in_time(step)}) * {b}u + n;",
            f"  const float* const own_inputs = inputs + ((u64)d * {s * b}u + row) * {gates * h}u + j;",
            f"  UNROLL for (int g = 0; g < {gates}; ++g) given[{slot}][e][g] = inside ? own_inputs[g * {h}] : 0.f;",
            "}",
        ]

    lines = [
        f"const u32 d = blockIdx.y, first = blockIdx.x * {columns}u;",
        f"SHARED({t}, states, [2][{h * LD}]);",
        f"frag_a<{t}> weights[{gates}][{h // 16}];",
        f"UNROLL for (int g = 0; g < {gates}; ++g)",
        f"  UNROLL for (int k = 0; k < {h // 16}; ++k)",
        f"    frag_load_a(weights[g][k], p2 + (u64)d * {r.strides[0]}u + (u64)(g * {h} + wave_id() * 16u) * {r.strides[1]}u"
        f" + k * 16, {r.strides[1]});",
        f"for (u32 k = threadIdx.x; k < {2 * h * LD}u; k += blockDim.x) states[0][k] = convert<{t}>(0.f);",
    ]
    if bias is not None:
        lines += [
            f"SHARED(float, biases, [{2 * gates * h}]);",
            f"for (u32 k = threadIdx.x; k < {2 * gates * h}u; k += blockDim.x) biases[k] = {at(bias, 3, 'd', 'k')};",
        ]
    lines += ["__syncthreads();", f"float state[{used}]{', memory[' + used + ']' if long else ''};"]
    lines += [
        f"UNROLL for (int e = 0; e < {used}; ++e) {{",
        *("  " + c for c in place),
        f"  state[e] = {begin(h0, 5)};",
        *([f"  memory[e] = {begin(c0, 6)};"] if long else []),
        f"  if (column < {columns}u) states[0][j * {LD} + column] = convert<{t}>(state[e]);",
        "}",
        "__syncthreads();",
        f"float given[2][{used}][{gates}];  // of a step and, on its way, of the next one",
        *load("0", "0u"),
        f"for (u32 step = 0; step < {s}u; ++step) {{",
        f"  const u32 t = {place_in_time('step')};",
        f"  if (step + 1 < {s}u) {{",
        *("    " + c for c in load("1", "step + 1")),
        "  }",
        f"  frag_c sums[{gates}];",
        f"  UNROLL for (int g = 0; g < {gates}; ++g) frag_fill(sums[g], 0.f);",
        f"  UNROLL for (int k = 0; k < {h // 16}; ++k) {{",
        f"    frag_b<{t}> before;",
        f"    frag_load_b_shared(before, states[step % 2] + k * {16 * LD}, {LD});",
        f"    UNROLL for (int g = 0; g < {gates}; ++g) {unit}(sums[g], weights[g][k], before);",
        "  }",
        f"  UNROLL for (int e = 0; e < {used}; ++e) {{",
        *("    " + c for c in place),
        "    if (!inside) continue;",
        f"    float in[{gates}], back[{gates}];",
        f"    UNROLL for (int g = 0; g < {gates}; ++g) {{",
        "      in[g] = given[0][e][g], back[g] = sums[g].x[e];",
        "      given[0][e][g] = given[1][e][g];",
        "    }",
    ]
    if bias is not None:
        lines += [
            f"    UNROLL for (int g = 0; g < {gates}; ++g)",
            f"      in[g] += biases[g * {h} + j], back[g] += biases[({gates} + g) * {h} + j];",
        ]
    p = [at(peephole, 7, "d", f"{k * h} + j") for k in range(3)] if peephole else []
    lines += [
        "    const float own = state[e];",
        *(["    const float cell = memory[e];"] if long else []),
        *("    " + c for c in cell_code(op, p)),
    ]
    result = "now"
    if lens is not None:
        lines.append(f"    const bool live = (i64)t < (i64)p4[n * {lens.strides[0]}u];")
        lines.append(f"    if (!live) now = own{', next = cell' if long else ''};")
        result = "(live ? now : 0.f)"
    where = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("t", "d", "n", "j"), y.strides, strict=True))
    lines += [
        f"    state[e] = now{', memory[e] = next' if long else ''};",
        f"    states[(step + 1) % 2][j * {LD} + column] = convert<{t}>(now);",
        f"    q0[{where}] = {written(result, y.dtype)};",
        "  }",
        "  __syncthreads();",
        "}",
    ]
    if long:
        last = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("d", "n", "j"), ys[1].strides, strict=True))
        lines += [
            f"UNROLL for (int e = 0; e < {used}; ++e) {{",
            *("  " + c for c in place),
            f"  if (inside) q1[{last}] = {written('memory[e]', ys[1].dtype)};",
            "}",
        ]
    names, _ = pointers(given, ys)
    return [*names, "const float* inputs"], lines
