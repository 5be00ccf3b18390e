"""Recurrent layers: one launch per step, one wave for each hidden unit of each sequence."""

from __future__ import annotations

from typing import Any

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.ops.activation_table import ACTIVATIONS
from mgx_core.ops.recurrent import Gru, Lstm

from .elements import pointers
from .expressions import constant
from .geometry import ceil_div
from .pointwise import kernel
from .products import product_text
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Number, Tensor, finish, read, written

__all__ = ["recurrent"]

_FORMS = {  # of x, a (alpha), b (beta)
    "relu": "m::max({x}, 0.f)",
    "tanh": "m::tanh({x})",
    "sigmoid": "1.f / (1.f + m::exp(-{x}))",
    "affine": "{x} * {a} + {b}",
    "leaky_relu": "({x} >= 0.f ? {x} : {x} * {a})",
    "thresholded_relu": "({x} >= {a} ? {x} : 0.f)",
    "scaled_tanh": "{a} * m::tanh({x} * {b})",
    "hard_sigmoid": "m::min(m::max({x} * {a} + {b}, 0.f), 1.f)",
    "elu": "({x} >= 0.f ? {x} : {a} * m::expm1({x}))",
    "softsign": "{x} / (1.f + m::abs({x}))",
    "softplus": "(m::max({x}, 0.f) + m::log1p(m::exp(-m::abs({x}))))",
}
MOST_STEPS = 2048


def _activations(op: Any, direction: int, clip: bool) -> list[str]:
    """Device functions f0.. of one direction; those of gates clip their operand first."""
    names = op.actv_func or op.functions * op.directions
    count = len(op.functions)
    out = []
    for i in range(count):
        at = direction * count + i
        known = ACTIVATIONS[names[at]]
        alpha = op.actv_alpha[at] if op.actv_alpha else known.alpha or 0.0
        beta = op.actv_beta[at] if op.actv_beta else known.beta or 0.0
        form = _FORMS[names[at]].format(x="x", a=constant(alpha, "float"), b=constant(beta, "float"))
        limit = constant(op.clip, "float")
        gate = not (isinstance(op, Lstm) and i == 2)
        clipped = f"x = m::min(m::max(x, -{limit}), {limit}); " if op.clip and gate and clip else ""
        out.append(f"DEV float {NAME}_f{direction}{i}(float x) {{ {clipped}return {form}; }}\n")
    return out


def recurrent(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """rnn, gru (with linear_before_reset) and lstm.  States pass from launch to launch in scratch memory, as floats."""
    x, w, r, bias, lens, h0, c0, peephole = [*xs, *[None] * 8][:8]
    assert x is not None and w is not None and r is not None
    if x.dtype.bits > 32:
        return No("recurrent layers in float64")
    if isinstance(op, Gru) and not op.linear_before_reset:
        return No("gru with the reset before the product needs two launches a step")
    s, b, i = x.lens
    h, directions, gates = op.hidden_size, op.directions, op.gates
    if not (s and b):
        return No("a recurrent layer without steps")
    if b > 1 and x.strides[0] != b * x.strides[1]:
        return No("steps and sequences of x are not evenly spaced in memory")
    if s > MOST_STEPS:
        return No(f"more than {MOST_STEPS} steps")
    given = [x, w, r, bias, lens, h0, c0, peephole]
    y = ys[0]
    kind = x.dtype
    functions = "".join("".join(_activations(op, d, True)) for d in range(directions))

    def at(t: Tensor, n: int, *coordinates: str) -> str:
        terms = [f"(u64)({c}) * {k}u" for c, k in zip(coordinates, t.strides, strict=True)]
        return read(f"p{n}[{' + '.join(terms)}]", t.dtype)

    def call(d: str, n: int, code: str) -> str:
        one = f"{NAME}_f0{n}({code})"
        return one if directions == 1 else f"({d} ? {NAME}_f1{n}({code}) : {one})"

    lines = [
        "const u32 lane = lane_id(), unit = blockIdx.x * (blockDim.x / WAVE) + wave_id();",
        f"if (unit >= {directions * b * h}u) return;",
        f"const u32 j = unit % {h}u, n = unit / {h}u % {b}u, d = unit / {b * h}u;",
    ]
    backward = "true" if op.direction == "reverse" else "d == 1"
    lines.append(f"const u32 t = {backward} ? {s - 1}u - step : step;")
    lines += [
        f"const float* const before = states + (u64)(step % 2) * {directions * b * h}u + (u64)(d * {b}u + n) * {h}u;",
        f"float* const after = states + (u64)((step + 1) % 2) * {directions * b * h}u + (u64)(d * {b}u + n) * {h}u;",
        f"float in[{gates}], back[{gates}] = {{}};",
        f"const float* const own_inputs = inputs + ((u64)d * {s * b}u + t * {b}u + n) * {gates * h}u + j;",
        f"UNROLL for (int g = 0; g < {gates}; ++g) in[g] = own_inputs[g * {h}];",
        f"for (u32 k = lane; k < {h}u; k += WAVE) {{",
        f"  const float v = step ? before[k] : {at(h0, 5, 'd', 'n', 'k') if h0 else '0.f'};",
        f"  UNROLL for (int g = 0; g < {gates}; ++g) back[g] += v * {at(r, 2, 'd', f'g * {h} + j', 'k')};",
        "}",
        f"UNROLL for (int g = 0; g < {gates}; ++g) back[g] = wave_reduce<Sum>(back[g]);",
    ]
    if bias is not None:
        lines += [
            f"UNROLL for (int g = 0; g < {gates}; ++g) {{",
            f"  in[g] += {at(bias, 3, 'd', f'g * {h} + j')};",
            f"  back[g] += {at(bias, 3, 'd', f'({gates} + g) * {h} + j')};",
            "}",
        ]
    lines.append(f"const float own = step ? before[j] : {at(h0, 5, 'd', 'n', 'j') if h0 else '0.f'};")
    if isinstance(op, Lstm):
        cell = at(c0, 6, "d", "n", "j") if c0 else "0.f"
        p = [at(peephole, 7, "d", f"{k * h} + j") if peephole else "0.f" for k in range(3)]
        keep = "1.f - gi" if op.input_forget else call("d", 0, f"in[2] + back[2] + {p[2]} * cell")
        lines += [
            f"float* const cells = states + {2 * directions * b * h}ull + (u64)(d * {b}u + n) * {h}u;",
            f"const float cell = step ? cells[j] : {cell};",
            f"const float gi = {call('d', 0, f'in[0] + back[0] + {p[0]} * cell')};",
            f"const float gf = {keep};",
            f"float next = gf * cell + gi * {call('d', 1, 'in[3] + back[3]')};",
            f"const float go = {call('d', 0, f'in[1] + back[1] + {p[1]} * next')};",
            f"float now = go * {call('d', 2, 'next')};",
        ]
    elif isinstance(op, Gru):
        lines += [
            f"const float gz = {call('d', 0, 'in[0] + back[0]')}, gr = {call('d', 0, 'in[1] + back[1]')};",
            f"float now = (1.f - gz) * {call('d', 1, 'in[2] + gr * back[2]')} + gz * own;",
        ]
    else:
        lines.append(f"float now = {call('d', 0, 'in[0] + back[0]')};")
    live = "true"
    if lens is not None:
        live = "live"
        lines.append(f"const bool live = (i64)t < (i64)p4[n * {lens.strides[0]}u];")
        lines.append("if (!live) now = own;")
        if isinstance(op, Lstm):
            lines.append("if (!live) next = cell;")
    place = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("t", "d", "n", "j"), y.strides, strict=True))
    lines += ["if (lane == 0) {", "  after[j] = now;", f"  q0[{place}] = {written(f'({live} ? now : 0.f)', kind)};"]
    if isinstance(op, Lstm):
        last = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("d", "n", "j"), ys[1].strides, strict=True))
        lines += ["  cells[j] = next;", f"  q1[{last}] = {written('next', kind)};"]
    lines.append("}")
    names, buffers = pointers(given, ys)
    threads = 256
    text = functions + kernel(NAME, [*names, "float* states", "const float* inputs", "u32 step"], lines, threads)
    grid = ceil_div(directions * b * h, threads // traits.wave)
    # the products of all steps with w come first, in one launch
    rows = Tensor(x.dtype, (directions, s * b, i), (0, x.strides[1 if b > 1 else 0], x.strides[2]), x.align)
    turned = Tensor(w.dtype, (directions, i, gates * h), (w.strides[0], w.strides[2], w.strides[1]), w.align)
    gathered = Tensor(dt.float32, (directions, s * b, gates * h), (s * b * gates * h, gates * h, 1))
    product, tiles, workers = product_text(f"{NAME}_inputs", rows, turned, gathered, traits)
    text += product
    first = (Buffer("input", 0), Buffer("input", 1), Buffer("scratch", 1))
    launches = [KernelLaunch(f"{NAME}_inputs", tiles, (workers, 1, 1), first)]
    state = (Buffer("scratch", 0), Buffer("scratch", 1))
    launches += [
        KernelLaunch(NAME, (grid, 1, 1), (threads, 1, 1), (*buffers, *state, Number("u32", step))) for step in range(s)
    ]
    flops = 2 * s * directions * b * h * gates * (i + h)
    return finish(
        op.name,
        text,
        launches,
        given,
        ys,
        scratch=[4 * 3 * directions * b * h, 4 * directions * s * b * gates * h],
        flops=flops,
    )
