"""Recurrent layers in one launch: the recurrent weights stay in registers, as operands of matrix units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Lstm

from .elements import pointers
from .geometry import ceil_div
from .pointwise import kernel
from .recurrent import activation_functions, at, cell_code, input_products, last_cell, unfit
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Tensor, finish, storage_type, to_storage

__all__ = ["REGISTERS", "Writer", "one_launch", "resident"]

REGISTERS = 65536  # per multiprocessor
BESIDES = 72  # registers per thread besides the weights; twice as many sums take 40 more
FEW = 4  # sequences of a block in every other column: a lane of NVIDIA's holds two elements in use instead of four
LD = 24  # 16 sequences in shared memory, padded against bank conflicts


def resident(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """rnn, gru (with linear_before_reset) and lstm in 16 bits, with up to 16 sequences and one direction per block.

    A wave owns 16 hidden units, with the weights of all their gates.  States are rounded to the result type at each step, like
    the results; cell states and sums are float32.
    """
    x, w, r, bias, lens, h0, c0, peephole = [*xs, *[None] * 8][:8]
    assert x is not None and w is not None and r is not None
    if x.dtype not in (dt.float16, dt.bfloat16):
        return No("matrix units require 16-bit floats")
    refused = unfit(op, x)
    if refused is not None:
        return refused
    b, h, directions, gates = x.lens[1], op.hidden_size, op.directions, op.gates
    if h % 16:
        return No("the number of hidden units must be a multiple of 16")
    if r.strides[2] != 1 or r.strides[1] % 8 or (directions > 1 and r.strides[0] % 8) or r.align < 16:
        return No("the rows of the weights are not whole vectors")
    few = traits.vendor == "nvidia" and directions * ceil_div(b, FEW) <= traits.sm_count
    columns = FEW if few else 8 if directions * ceil_div(b, 8) <= traits.sm_count else 16
    threads = h // 16 * traits.wave
    weights = gates * (h // 16) * 128 // traits.wave
    if threads > 512 or threads * (weights + BESIDES + 5 * max(columns - 8, 0)) > REGISTERS:
        return No(f"the weights of {h} hidden units do not fit into registers")
    given = [x, w, r, bias, lens, h0, c0, peephole]
    return one_launch(Writer(op, given, ys, columns), given, threads, traits)


def one_launch(writer: Writer, given: list[Tensor | None], threads: int, traits: DeviceTraits) -> KernelSource:
    """Returns the kernel of a writer, after the products of all inputs.  given: the eight operands."""
    op, ys, columns = writer.op, writer.ys, writer.columns
    x, w = given[:2]
    assert x is not None and w is not None
    s, b, i = x.lens
    names, buffers = pointers(given, ys)
    text = activation_functions(op, fast=True)
    cluster = writer.blocks if writer.blocks > 1 else 0
    text += kernel(NAME, [*names, "const float* inputs"], writer.lines(), threads, cluster=cluster)
    product, before, space = input_products(op, x, w, traits)
    grid = (ceil_div(b, columns) * writer.blocks, op.directions, 1)
    launches = [before, KernelLaunch(NAME, grid, (threads, 1, 1), (*buffers, Buffer("scratch", 0)))]
    flops = 2 * s * op.directions * b * op.hidden_size * op.gates * (i + op.hidden_size)
    return finish(op.name, text + product, launches, given, ys, scratch=[space], flops=flops)


class Writer:
    """Generates the source of one kernel, whose lanes own the elements of fragments of matrix units: units of sequences.

    blocks: of a cluster, which share the units of the same sequences; each holds all states.
    """

    blocks = 1

    def __init__(self, op: Any, given: Sequence[Tensor | None], ys: Sequence[Tensor], columns: int) -> None:
        x, _, r, self.bias, self.lens, self.h0, self.c0, self.peephole = given
        assert x is not None and r is not None
        self.op, self.r, self.ys, self.columns, self.apart = op, r, ys, columns, 2 if columns == FEW else 1
        self.steps, self.batch, _ = x.lens
        self.h, self.gates, self.t = op.hidden_size, op.gates, storage_type(x.dtype)
        self.long = isinstance(op, Lstm)
        self.state_count = self.h * LD
        self.used, self.multiply = ("FRAG_LEFT", "frag_mma_left") if columns <= 8 else ("FRAG_C", "frag_mma")

    def lines(self) -> list[str]:
        s, t = self.steps, self.t
        return [
            f"const u32 d = blockIdx.y, first = blockIdx.x / {self.blocks}u * {self.columns}u;",
            f"SHARED({t}, states, [2][{self.state_count}]);",
            *self.weights(),
            *self.initial_states(),
            *self.places(),
            f"float given[2][{self.used}][{self.gates}];  // of a step and of the next one",
            *self.inputs("0"),
            f"if ({s}u > 1) {{",
            *(f"  {line}" for line in self.inputs("1")),
            "}",
            f"for (u32 start = 0; start < {s}u; start += 2) {{",
            "  UNROLL for (u32 half = 0; half < 2; ++half) {",
            "    const u32 step = start + half;",
            f"    if (step >= {s}u) continue;",
            *(f"    {line}" for line in [*self.sums(), f"{storage_type(self.ys[0].dtype)} results[{self.used}];"]),
            *(
                f"    {line}"
                for line in [*self.each_element(self.cell()), *self.arrive(), *self.each_element(self.store())]
            ),
            f"    if (step + 2 < {s}u) {{",
            *(f"      {line}" for line in self.inputs("half")),
            "    }",
            *(f"    {line}" for line in self.wait()),
            "  }",
            "}",
            *self.last_cells(),
        ]

    def each_element(self, body: Sequence[str]) -> list[str]:
        """Returns a loop over a lane's elements: unit `j` of sequence `n`."""
        return [
            f"UNROLL for (int e = 0; e < {self.used}; ++e) {{",
            *(f"  {line}" for line in self.place()),
            f"  const bool inside = held && n < {self.batch}u;",
            *(f"  {line}" for line in body),
            "}",
        ]

    def place(self) -> list[str]:
        """Returns statements that declare unit `j`, the column of its state, sequence `n`, and whether the lane holds them."""
        return [
            f"const u32 j = wave_id() * 16u + frag_row(e), column = frag_col(e), n = first + column / {self.apart}u;",
            f"const bool held = column < {self.columns * self.apart}u && column % {self.apart}u == 0;",
        ]

    def state_at(self, half: str) -> str:
        return f"states[{half}][j * {LD} + column]"

    def keep(self, half: str, value: str) -> str:
        """Returns a statement that stores an element's state for the products of the next step."""
        return f"{self.state_at(half)} = convert<{self.t}>({value});"

    def arrive(self) -> list[str]:
        """Returns statements before those that need not be done when all states of a step are used."""
        return []

    def wait(self) -> list[str]:
        """Returns statements after which all states of a step may be used."""
        return ["__syncthreads();"]

    def sum_of(self, gate: str) -> str:
        return f"sums[{gate}].x[e]"

    def weights(self) -> list[str]:
        """Returns statements that load the weights to registers and the biases to shared memory."""
        h, gates, t = self.h, self.gates, self.t
        lines = [
            *self.load_weights(),
            f"for (u32 k = threadIdx.x; k < {2 * self.state_count}u; k += blockDim.x) states[0][k] = convert<{t}>(0.f);",
        ]
        if self.bias is not None:
            lines += [
                f"SHARED(float, biases, [{2 * gates * h}]);",
                f"for (u32 k = threadIdx.x; k < {2 * gates * h}u; k += blockDim.x) biases[k] = {at(self.bias, 3, 'd', 'k')};",
            ]
        return [*lines, "__syncthreads();"]

    def load_weights(self) -> list[str]:
        """Returns statements that load the weights to registers."""
        h, gates, r = self.h, self.gates, self.r
        return [
            f"frag_a<{self.t}> weights[{gates}][{h // 16}];",
            f"UNROLL for (int g = 0; g < {gates}; ++g)",
            f"  UNROLL for (int k = 0; k < {h // 16}; ++k)",
            f"    frag_load_a(weights[g][k], p2 + (u64)d * {r.strides[0]}u + (u64)(g * {h} + wave_id() * 16u) * {r.strides[1]}u"
            f" + k * 16, {r.strides[1]});",
        ]

    def initial_states(self) -> list[str]:
        def begin(tensor: Tensor | None, n: int) -> str:
            return "0.f" if tensor is None else f"inside ? {at(tensor, n, 'd', 'n', 'j')} : 0.f"

        body = [
            f"state[e] = {begin(self.h0, 5)};",
            *([f"memory[e] = {begin(self.c0, 6)};"] if self.long else []),
            f"if (held) {{ {self.keep('0', 'state[e]')} }}",
        ]
        memory = f", memory[{self.used}]" if self.long else ""
        return [f"float state[{self.used}]{memory};", *self.each_element(body), *self.arrive(), *self.wait()]

    def time(self, step: str) -> str:
        backwards = "true" if self.op.direction == "reverse" else "d == 1"
        return f"{backwards} ? {self.steps - 1}u - ({step}) : {step}"

    def places(self) -> list[str]:
        """Returns statements that find each element's products of inputs and results of the first step."""
        b, width, y = self.batch, self.gates * self.h, self.ys[0]
        where = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("t", "d", "n", "j"), y.strides, strict=True))
        body = [
            f"source[e] = inputs + ((u64)d * {self.steps * b}u + t * {b}u + n) * {width}u + j;",
            f"target[e] = q0 + ({where});",
        ]
        return [
            f"const u32 t = {self.time('0u')};",
            "const i64 forth = t ? -1 : 1;",
            f"const float* source[{self.used}];",
            f"{storage_type(y.dtype)}* target[{self.used}];",
            *self.each_element(body),
        ]

    def inputs(self, slot: str) -> list[str]:
        """Returns statements that load the products of the next step's inputs; they are read two steps later."""
        body = [
            f"UNROLL for (int g = 0; g < {self.gates}; ++g) given[{slot}][e][g] = inside ? source[e][g * {self.h}] : 0.f;",
            f"source[e] += forth * {self.batch * self.gates * self.h};",
        ]
        return self.each_element(body)

    def sums(self) -> list[str]:
        """Returns statements that multiply the states before a step."""
        h, gates = self.h, self.gates
        return [
            f"frag_c sums[{gates}];",
            f"UNROLL for (int g = 0; g < {gates}; ++g) frag_fill(sums[g], 0.f);",
            f"UNROLL for (int k = 0; k < {h // 16}; ++k) {{",
            f"  frag_b<{self.t}> before;",
            f"  frag_load_b_shared(before, states[half] + k * {16 * LD}, {LD});",
            f"  UNROLL for (int g = 0; g < {gates}; ++g) {self.multiply}(sums[g], weights[g][k], before);",
            "}",
        ]

    def cell(self) -> list[str]:
        """Returns statements that compute an element's states and result of a step."""
        h, gates, y = self.h, self.gates, self.ys[0]
        lines = [
            "if (!inside) continue;",
            f"float in[{gates}], back[{gates}];",
            f"UNROLL for (int g = 0; g < {gates}; ++g) {{",
            f"  in[g] = given[half][e][g], back[g] = {self.sum_of('g')};",
            "}",
        ]
        if self.bias is not None:
            lines += [
                f"UNROLL for (int g = 0; g < {gates}; ++g)",
                f"  in[g] += biases[g * {h} + j], back[g] += biases[({gates} + g) * {h} + j];",
            ]
        p = [at(self.peephole, 7, "d", f"{k * h} + j") for k in range(3)] if self.peephole else []
        lines += [
            "const float own = state[e];",
            *(["const float cell = memory[e];"] if self.long else []),
            *cell_code(self.op, p),
        ]
        result = "now"
        if self.lens is not None:
            lines.append(f"const bool live = (i64)({self.time('step')}) < (i64)p4[n * {self.lens.strides[0]}u];")
            lines.append(f"if (!live) now = own{', next = cell' if self.long else ''};")
            result = "(live ? now : 0.f)"
        return [
            *lines,
            f"state[e] = now{', memory[e] = next' if self.long else ''};",
            self.keep("1 - half", "now"),
            f"results[e] = {to_storage(result, y.dtype)};",
        ]

    def store(self) -> list[str]:
        """Returns statements that store an element's result of a step."""
        return ["if (!inside) continue;", "*target[e] = results[e];", f"target[e] += forth * {self.ys[0].strides[0]};"]

    def last_cells(self) -> list[str]:
        if not self.long:
            return []
        y = self.ys[1]
        where = " + ".join(f"(u64){c} * {k}u" for c, k in zip(("d", "n", "j"), y.strides, strict=True))
        return self.each_element(
            [f"if (inside) q1[{where}] = {to_storage(last_cell('memory[e]', self.lens), y.dtype)};"]
        )
