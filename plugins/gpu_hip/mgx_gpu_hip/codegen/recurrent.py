"""Recurrent layers: one launch per step, one wave per hidden unit of one or several sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Gru, Lstm
from mgx_core.types.traced_int import TracedInt

from .elements import pointers
from .geometry import aligned, ceil_div
from .pointwise import kernel
from .primitives import constant
from .products import product_text
from .source import (
    NAME,
    Buffer,
    DeviceTraits,
    KernelLaunch,
    KernelSource,
    Number,
    Tensor,
    finish,
    storage_type,
    to_compute,
    to_storage,
)

__all__ = [
    "activation_functions",
    "at",
    "cell_code",
    "evenly_spaced",
    "input_products",
    "last_cell",
    "recurrent",
    "unfit",
]

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
_FAST = {  # errors of 1e-7 without division or branches
    "tanh": "fast::tanh({x})",
    "sigmoid": "fast::sigmoid({x})",
}
MAX_STEPS = 2048
WAVES = 7  # per multiprocessor, to hide the latency of reading weights
HELD = 256  # bytes of weights per thread


def activation_functions(op: Any, fast: bool = False) -> str:
    """Returns the device functions of all directions, as `cell_code` calls them."""
    return "".join("".join(_activations(op, d, _FORMS | _FAST if fast else _FORMS)) for d in range(op.directions))


def _activations(op: Any, direction: int, forms: Mapping[str, str]) -> list[str]:
    """Returns device functions f0.. of one direction; those of gates clip their operand first."""
    out = []
    for i, (name, alpha, beta) in enumerate(op.functions_of(direction)):
        form = forms[name].format(x="x", a=constant(alpha, "float"), b=constant(beta, "float"))
        limit = constant(op.clip, "float")
        gate = not (isinstance(op, Lstm) and i == 2)
        clipped = f"x = m::min(m::max(x, -{limit}), {limit}); " if op.clip and gate else ""
        out.append(f"DEV float {NAME}_f{direction}{i}(float x) {{ {clipped}return {form}; }}\n")
    return out


def cell_code(op: Any, peephole: list[str]) -> list[str]:
    """Returns statements that declare `now`, the hidden unit's next state, and for an LSTM `next`, its cell state.

    They read in[] and back[], by gate: the products with the step's input and with the state; own: the state; cell: the cell
    state, for an LSTM; d: the direction.  peephole: expressions of its three weights, or none.
    """

    def call(n: int, code: str) -> str:
        one = f"{NAME}_f0{n}({code})"
        return one if op.directions == 1 else f"(d ? {NAME}_f1{n}({code}) : {one})"

    if isinstance(op, Lstm):
        p = peephole or ["0.f"] * 3
        keep = "1.f - gi" if op.input_forget else call(0, f"in[2] + back[2] + {p[2]} * cell")
        return [
            f"const float gi = {call(0, f'in[0] + back[0] + {p[0]} * cell')};",
            f"const float gf = {keep};",
            f"float next = gf * cell + gi * {call(1, 'in[3] + back[3]')};",
            f"const float go = {call(0, f'in[1] + back[1] + {p[1]} * next')};",
            f"float now = go * {call(2, 'next')};",
        ]
    if isinstance(op, Gru):
        return [
            f"const float gz = {call(0, 'in[0] + back[0]')}, gr = {call(0, 'in[1] + back[1]')};",
            f"float now = (1.f - gz) * {call(1, 'in[2] + gr * back[2]')} + gz * own;",
        ]
    return [f"float now = {call(0, 'in[0] + back[0]')};"]


def last_cell(code: str, lens: Tensor | None) -> str:
    """Returns the last cell state of sequence `n`: zero for a sequence without steps.  lens: operand 4."""
    return code if lens is None else f"(p4[n * {lens.strides[0]}u] > 0 ? {code} : 0.f)"


def evenly_spaced(lens: Sequence[int], strides: Sequence[int]) -> bool:
    """Returns True if the steps of all sequences are rows of one matrix."""
    return lens[1] == 1 or lens[0] == 1 or strides[0] == lens[1] * strides[1]


def unfit(op: Any, x: Tensor) -> No | None:
    """Declines layers that no kernel supports."""
    if isinstance(op, Gru) and not op.linear_before_reset:
        return No("gru with the reset gate before the product requires two launches per step")
    if not (x.lens[0] and x.lens[1]):
        return No("the layer has no steps")
    return None if evenly_spaced(x.lens, x.strides) else No("the steps and sequences of x do not have a uniform stride")


def at(t: Tensor, n: int, *coordinates: str) -> str:
    """Returns code that reads an element of operand `n`."""
    terms = [f"(u64)({c}) * {k}u" for c, k in zip(coordinates, t.strides, strict=True)]
    return to_compute(f"p{n}[{' + '.join(terms)}]", t.dtype)


def input_products(op: Any, x: Tensor, w: Tensor, traits: DeviceTraits) -> tuple[str, KernelLaunch, int]:
    """Returns the products of all steps with w in one launch: its source, the launch to scratch buffer 0, and its bytes."""
    s, b, i = x.lens
    directions, wide = op.directions, op.gates * op.hidden_size
    rows = Tensor(x.dtype, (directions, s * b, i), (0, x.strides[1 if b > 1 else 0], x.strides[2]), x.align)
    turned = Tensor(w.dtype, (directions, i, wide), (w.strides[0], w.strides[2], w.strides[1]), w.align)
    gathered = Tensor(dt.float32, (directions, s * b, wide), (s * b * wide, wide, 1))
    text, blocks, workers = product_text(f"{NAME}_inputs", rows, turned, gathered, traits)
    operands = (Buffer("input", 0), Buffer("input", 1), Buffer("scratch", 0))
    return (
        text,
        KernelLaunch(f"{NAME}_inputs", (blocks, 1, 1), (workers, 1, 1), operands),
        4 * directions * s * b * wide,
    )


class _State:
    """The products of a state with a unit's rows of the recurrent weights: as vectors, kept in registers if they fit."""

    def __init__(self, r: Tensor, gates: int, hidden: int, wave: int) -> None:
        self.r, self.gates, self.hidden = r, gates, hidden
        widths = [v for v in (8, 4, 2) if v * r.dtype.size <= 16 and hidden % v == 0 and 2 * hidden >= v * wave]
        wide = (v for v in widths if aligned(r, r.strides, 0, v))
        self.width = next(wide, 1)
        self.parts = ceil_div(hidden, self.width * wave)

    def row(self, k: str) -> str:
        a, b, c = self.r.strides
        return f"(u64)d * {a}u + (u64)(g * {self.hidden} + j) * {b}u + (u64)({k}) * {c}u"

    def inside(self, part: int) -> list[str]:
        """Returns statements that locate a thread's position in a part, and open a block for the statements inside."""
        return [f"{{ const u32 k = (lane + {part} * WAVE) * {self.width}u;", f"if (k < {self.hidden}u) {{"]

    @property
    def held(self) -> bool:
        return self.parts * self.width * self.gates * self.r.dtype.size <= HELD

    def weights(self) -> list[str]:
        """Returns statements that load a thread's weights to registers, if they fit."""
        if not self.held:
            return []
        t, v = storage_type(self.r.dtype), self.width
        lines = [f"vec<{t}, {v}> held[{self.parts}][{self.gates}];"]
        for part in range(self.parts):
            load = f"held[{part}][g] = ldv<{t}, {v}>(p2 + {self.row('k')});"
            lines += [*self.inside(part), f"UNROLL for (int g = 0; g < {self.gates}; ++g) {load}", "} }"]
        return lines

    def products(self, begin: str, together: int, sequences: int) -> list[str]:
        """Returns statements that accumulate sums[], by sequence and gate; begin: address of element k of sequence m's state."""
        every = f"UNROLL for (int g = 0; g < {self.gates}; ++g)"
        t, v = storage_type(self.r.dtype), self.width
        row = f"before + m * {self.hidden}u + k"
        loaded = f"load_many<float, {v}>({row})" if v > 4 else f"ldv<float, {v}>({row})"
        state = [
            f"vec<float, {v}> s[{together}];",
            f"UNROLL for (u32 q = 0; q < {together}u; ++q) {{",
            f"  const u32 m = n0 + q < {sequences}u ? n0 + q : {sequences - 1}u;",
            f"  if (step) s[q] = {loaded};",
            f"  else UNROLL for (int i = 0; i < {v}; ++i) s[q].v[i] = {begin.replace('(k)', '(k + i)')};",
            "}",
        ]
        each = (
            f"UNROLL for (u32 q = 0; q < {together}u; ++q) UNROLL for (int i = 0; i < {v}; ++i) sums[q][g] += s[q].v[i]"
        )
        if not self.held:
            weights = f"const vec<{t}, {v}> w = ldv<{t}, {v}>(p2 + {self.row('k')});"
            return [
                f"for (u32 k = lane * {v}u; k < {self.hidden}u; k += WAVE * {v}u) {{",
                *(f"  {line}" for line in state),
                f"  {every} {{ {weights} {each} * {to_compute('w.v[i]', self.r.dtype)}; }}",
                "}",
            ]
        lines: list[str] = []
        for part in range(self.parts):
            weight = to_compute(f"held[{part}][g].v[i]", self.r.dtype)
            lines += [*self.inside(part), *state, f"{every} {each} * {weight};", "} }"]
        return lines


def sequences_together(units: int, sequences: int, traits: DeviceTraits) -> int:
    """Returns the number of sequences per wave, which share reads of a unit's weights; units: of all directions.

    Limited so that enough waves remain: 1024 units in float16, four sequences, took 9 us per step on an H200, mostly for
    reading the weights four times.
    """
    fitting = [n for n in (4, 2) if n <= sequences and units * ceil_div(sequences, n) >= WAVES * traits.sm_count]
    return fitting[0] if fitting else 1


def recurrent(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """rnn, gru (with linear_before_reset) and lstm.  States pass between launches in scratch buffers, as float32."""
    given = [*xs, *[None] * 8][:8]
    x, w, r = given[:3]
    assert x is not None and w is not None and r is not None
    if x.dtype.bits > 32:
        return No("recurrent layers in float64 are not supported")
    refused = unfit(op, x)
    if refused is not None:
        return refused
    s, b, i = x.lens
    h, directions = op.hidden_size, op.directions
    if s > MAX_STEPS:
        return No(f"the layer has more than {MAX_STEPS} steps")
    writer = _Writer(op, given, ys, sequences_together(directions * h, b, traits), traits.wave)
    names, buffers = pointers(given, ys)
    threads = 256
    parameters = [*names, "float* states", "const float* inputs", "u32 step"]
    text = activation_functions(op) + kernel(NAME, parameters, writer.lines(), threads, ahead=writer.ahead())
    grid = ceil_div(writer.units, threads // traits.wave)
    product, before, space = input_products(op, x, w, traits)
    text += product
    state = (Buffer("scratch", 1), Buffer("scratch", 0))
    launches = [before] + [
        KernelLaunch(NAME, (grid, 1, 1), (threads, 1, 1), (*buffers, *state, Number("u32", step)))
        for step in range(_most_steps(s))
    ]
    flops = 2 * s * directions * b * h * op.gates * (i + h)
    scratch = [space, 4 * 3 * directions * b * h]
    return finish(op.name, text, launches, given, ys, scratch=scratch, flops=flops)


def _most_steps(s: int) -> int:
    """Returns the number of launches for so many steps: if these may change, up to twice as many, some of which do nothing."""
    if type(s) is not TracedInt:
        return s
    most = 1
    while s > most:
        most *= 2
    return most


class _Writer:
    """Writes the source of one step.

    together: sequences per wave; units: hidden units of all directions, once for each group of such sequences.
    """

    def __init__(self, op: Any, given: Sequence[Tensor | None], ys: Sequence[Tensor], together: int, wave: int) -> None:
        x, _, r, self.bias, self.lens, self.h0, self.c0, self.peephole = given
        assert x is not None and r is not None
        self.op, self.r, self.ys, self.together = op, r, ys, together
        self.steps, self.batch, _ = x.lens
        self.dtype, self.h, self.gates = x.dtype, op.hidden_size, op.gates
        self.groups = ceil_div(self.batch, together)
        self.units = op.directions * self.groups * self.h
        self.long = isinstance(op, Lstm)
        self.state = _State(r, op.gates, op.hidden_size, wave)

    def ahead(self) -> list[str]:
        """Returns statements that read constant memory only: those that locate a lane's unit and sequence, and its weights."""
        b, h, together = self.batch, self.h, self.together
        return [
            "const u32 lane = lane_id(), given_unit = blockIdx.x * (blockDim.x / WAVE) + wave_id();",
            f"const u32 unit = given_unit < {self.units}u ? given_unit : {self.units - 1}u;",
            f"const u32 j = unit % {h}u, n0 = unit / {h}u % {self.groups}u * {together}u, d = unit / {self.groups * h}u;",
            f"const u32 own_place = lane < {together}u ? lane : {together - 1}u;",
            f"const u32 n = n0 + own_place < {b}u ? n0 + own_place : {b - 1}u;",
            *(self.state.weights() if self.r.constant else []),
        ]

    def lines(self) -> list[str]:
        weights = [] if self.r.constant else self.state.weights()
        past = type(self.steps) is TracedInt  # some launches may be beyond the last step
        return [
            f"if (given_unit >= {self.units}u{f' || step >= {self.steps}u' if past else ''}) return;",
            *weights,
            *self.sums(),
            *self.cell(),
            *self.stores(),
        ]

    def begin(self, tensor: Tensor | None, n: int, *coordinates: str) -> str:
        """Returns code that reads an initial state, operand `n`."""
        return at(tensor, n, *coordinates) if tensor else "0.f"

    def sums(self) -> list[str]:
        """Returns statements that compute in[] and back[], by gate, of a lane's sequence."""
        s, b, h, gates, together = self.steps, self.batch, self.h, self.gates, self.together
        states = self.op.directions * b * h
        backward = "true" if self.op.direction == "reverse" else "d == 1"
        lines = [
            f"const u32 t = {backward} ? {s - 1}u - step : step;",
            f"const float* const before = states + (u64)(step % 2) * {states}u + (u64)(d * {b}u) * {h}u;",
            f"float* const after = states + (u64)((step + 1) % 2) * {states}u + (u64)(d * {b}u + n) * {h}u;",
            f"float in[{gates}], sums[{together}][{gates}] = {{}};",
            f"const float* const own_inputs = inputs + ((u64)d * {s * b}u + t * {b}u + n) * {gates * h}u + j;",
            f"UNROLL for (int g = 0; g < {gates}; ++g) in[g] = own_inputs[g * {h}];",
            *self.state.products(self.begin(self.h0, 5, "d", "m", "k"), together, b),
            f"UNROLL for (int q = 0; q < {together}; ++q)",
            f"  UNROLL for (int g = 0; g < {gates}; ++g) sums[q][g] = wave_reduce<Sum>(sums[q][g]);",
            f"float back[{gates}];",
            f"UNROLL for (int g = 0; g < {gates}; ++g) back[g] = sums[0][g];",
            f"UNROLL for (u32 q = 1; q < {together}u; ++q)",
            f"  if (q == own_place) UNROLL for (int g = 0; g < {gates}; ++g) back[g] = sums[q][g];",
        ]
        if self.bias is not None:
            lines += [
                f"UNROLL for (int g = 0; g < {gates}; ++g) {{",
                f"  in[g] += {at(self.bias, 3, 'd', f'g * {h} + j')};",
                f"  back[g] += {at(self.bias, 3, 'd', f'({gates} + g) * {h} + j')};",
                "}",
            ]
        return lines

    def cell(self) -> list[str]:
        """Returns statements that compute the states after the step: `now` and, for an LSTM, `next`."""
        b, h = self.batch, self.h
        lines = [f"const float own = step ? before[n * {h}u + j] : {self.begin(self.h0, 5, 'd', 'n', 'j')};"]
        if self.long:
            lines += [
                f"float* const cells = states + {2 * self.op.directions * b * h}ull + (u64)(d * {b}u + n) * {h}u;",
                f"const float cell = step ? cells[j] : {self.begin(self.c0, 6, 'd', 'n', 'j')};",
            ]
        peephole = self.peephole
        lines += cell_code(self.op, [at(peephole, 7, "d", f"{k * h} + j") for k in range(3)] if peephole else [])
        if self.lens is not None:
            lines.append(f"const bool live = (i64)t < (i64)p4[n * {self.lens.strides[0]}u];")
            lines.append("if (!live) now = own;")
            if self.long:
                lines.append("if (!live) next = cell;")
        return lines

    def stores(self) -> list[str]:
        """Returns statements that store the states and the results."""
        live = "true" if self.lens is None else "live"
        place = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("t", "d", "n", "j"), self.ys[0].strides, strict=True))
        lines = [
            f"if (lane < {self.together}u && n0 + lane < {self.batch}u) {{",
            "  after[j] = now;",
            f"  q0[{place}] = {to_storage(f'({live} ? now : 0.f)', self.dtype)};",
        ]
        if self.long:
            last = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("d", "n", "j"), self.ys[1].strides, strict=True))
            stored = to_storage(last_cell("next", self.lens), self.dtype)
            lines += ["  cells[j] = next;", f"  q1[{last}] = {stored};"]
        return [*lines, "}"]
