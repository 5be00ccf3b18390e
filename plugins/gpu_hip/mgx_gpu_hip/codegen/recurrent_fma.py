"""Recurrent layers in one launch without matrix units: adjacent lanes hold the recurrent weights of a unit in registers.

Layers of more units than one block holds are divided among the blocks of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mgx_core import No

from .geometry import ceil_div
from .narrow_tiles import CLUSTERED
from .recurrent import at, unfit
from .recurrent_resident import REGISTERS, Writer, one_launch
from .source import DeviceTraits, KernelSource, Tensor

__all__ = ["resident_fma"]

MOST_REGISTERS = 255  # per thread
BESIDES = 44  # registers per thread besides the weights, and those of each sequence whose state it owns
OWNED = 12
MOST_OWNED = 4
VECTOR = 4  # neighboring terms of a lane
CLUSTER = 8  # blocks that share the units of a layer whose weights do not fit into the registers of one


def resident_fma(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """rnn, gru (with linear_before_reset) and lstm in up to 32 bits, with several sequences and one direction per block.

    States are float32.
    """
    given = [*xs, *[None] * 8][:8]
    x = given[0]
    assert x is not None
    if x.dtype.bits > 32:
        return No("the kernel adds in float32")
    refused = unfit(op, x)
    if refused is not None:
        return refused
    s, b, _ = x.lens
    h, directions = op.hidden_size, op.directions
    if s == 1:
        return No("one step uses the weights once, which more blocks read faster")
    for cluster, lanes in ((1, 4), (1, 2), *([(CLUSTER, 8), (CLUSTER, 4)] if traits.clusters else [])):
        threads = ceil_div(ceil_div(h, cluster) * lanes, traits.wave) * traits.wave
        units = int(traits.sm_count * CLUSTERED[cluster]) // cluster
        together = next(n for n in (1, 2, 4) if n >= min(lanes, 4) or directions * ceil_div(b, n) <= units)
        weights = op.gates * ceil_div(h, VECTOR * lanes) * VECTOR
        spare = min(REGISTERS // threads, MOST_REGISTERS) - weights - BESIDES - together * op.gates
        if threads <= 512 and spare >= OWNED:
            beside = REGISTERS // (threads * (weights + BESIDES + together * op.gates + OWNED))  # blocks hide latencies
            most, blocks = min(MOST_OWNED, spare // OWNED), units * beside
            owned = next((n for n in range(1, most) if directions * b <= blocks * together * n), most)
            writer = _Writer(op, given, ys, lanes, together, owned, cluster)
            if writer.shared <= traits.shared_bytes:
                return one_launch(writer, given, threads, traits)
    return No(f"the weights of {h} hidden units do not fit into registers")


class _Writer(Writer):
    """Generates the source of one kernel, in which `lanes` adjacent lanes add every so many terms of all gates of a unit.

    together: sequences whose terms are added together, and then divided among these lanes; owned: such sequences of a lane;
    cluster: blocks that share the units, each of which stores the states of its own in the memory of all.
    """

    def __init__(
        self,
        op: Any,
        given: Sequence[Tensor | None],
        ys: Sequence[Tensor],
        lanes: int,
        together: int,
        owned: int,
        cluster: int,
    ) -> None:
        super().__init__(op, given, ys, together * owned)
        self.lanes, self.together, self.owned, self.used, self.t = lanes, together, owned, str(owned), "float"
        self.parts = ceil_div(self.h, VECTOR * lanes)
        self.row = self.parts * VECTOR * lanes + 8  # against bank conflicts
        self.state_count = self.columns * self.row
        self.blocks, self.own = cluster, ceil_div(self.h, cluster)

    @property
    def shared(self) -> int:
        """The bytes of shared memory."""
        biases = 0 if self.bias is None else 2 * self.gates * self.h
        return 4 * int(2 * self.state_count + biases)

    def unit(self) -> str:
        """Returns code of the unit of a thread, which may be past the block's last one."""
        local = f"threadIdx.x / {self.lanes}u"
        return local if self.blocks == 1 else f"blockIdx.x % {self.blocks}u * {self.own}u + {local}"

    def place(self) -> list[str]:
        return [
            f"const u32 j = {self.unit()}, part = threadIdx.x % {self.lanes}u;",
            f"const u32 column = e * {self.together}u + part % {self.together}u, n = first + column;",
            f"const bool held = part < {self.together}u && j < {self.h}u{self.mine()};",
        ]

    def mine(self) -> str:
        """Returns the condition that a thread's unit is one of its block's."""
        return "" if self.blocks == 1 else f" && threadIdx.x / {self.lanes}u < {self.own}u"

    def state_at(self, half: str) -> str:
        return f"states[{half}][column * {self.row} + j]"

    def keep(self, half: str, value: str) -> str:
        if self.blocks == 1:
            return super().keep(half, value)
        return f"UNROLL for (u32 rank = 0; rank < {self.blocks}u; ++rank) cluster_store(&{self.state_at(half)}, rank, {value});"

    def arrive(self) -> list[str]:
        return [] if self.blocks == 1 else ["cluster_arrive();"]

    def wait(self) -> list[str]:
        return super().wait() if self.blocks == 1 else ["cluster_wait();"]

    def weights(self) -> list[str]:
        # no block stores in the memory of another before all have cleared their own
        return [*super().weights(), *([] if self.blocks == 1 else ["cluster_arrive();", "cluster_wait();"])]

    def sum_of(self, gate: str) -> str:
        return f"sums[e][{gate}]"

    def load_weights(self) -> list[str]:
        h, lanes = self.h, self.lanes
        return [
            f"const u32 lane = threadIdx.x % {lanes}u, unit = m::min({self.unit()}, {h - 1}u);",
            f"float weights[{self.gates}][{self.parts}][{VECTOR}];",
            f"UNROLL for (u32 g = 0; g < {self.gates}; ++g)",
            f"  UNROLL for (u32 part = 0; part < {self.parts}; ++part)",
            f"    UNROLL for (u32 i = 0; i < {VECTOR}; ++i) {{",
            f"      const u32 k = (part * {lanes}u + lane) * {VECTOR}u + i;",
            f"      weights[g][part][i] = k < {h}u ? {at(self.r, 2, 'd', f'g * {h} + unit', 'k')} : 0.f;",
            "    }",
        ]

    def sums(self) -> list[str]:
        return [
            f"float sums[{self.owned}][{self.gates}];",
            f"UNROLL for (u32 e = 0; e < {self.owned}; ++e) {{",
            f"  float terms[{self.together}][{self.gates}] = {{}};",
            f"  UNROLL for (u32 part = 0; part < {self.parts}; ++part)",
            f"    UNROLL for (u32 q = 0; q < {self.together}; ++q) {{",
            f"      const vec<float, {VECTOR}> s = ldv<float, {VECTOR}>(states[half] + (e * {self.together}u + q) * {self.row}u"
            f" + (part * {self.lanes}u + lane) * {VECTOR}u);",
            f"      UNROLL for (int i = 0; i < {VECTOR}; ++i)",
            f"        UNROLL for (int g = 0; g < {self.gates}; ++g) terms[q][g] += s.v[i] * weights[g][part][i];",
            "    }",
            *(f"  UNROLL for (int g = 0; g < {self.gates}; ++g) {line}" for line in self.exchange()),
            f"  UNROLL for (int g = 0; g < {self.gates}; ++g) sums[e][g] = terms[0][g];",
            "}",
        ]

    def exchange(self) -> Iterator[str]:
        """Yields statements that add the terms of the lanes, after which each has the sums of one sequence in terms[0]."""
        mask = self.lanes // 2
        while mask:
            for q in range(mask if mask < self.together else self.together):
                if mask >= self.together:
                    yield f"terms[{q}][g] += wave_xor(terms[{q}][g], {mask}u);"
                else:
                    upper = f"(lane & {mask}u)"
                    kept, sent = f"terms[{q}][g]", f"terms[{q + mask}][g]"
                    yield f"{kept} = ({upper} ? {sent} : {kept}) + wave_xor({upper} ? {kept} : {sent}, {mask}u);"
            mask //= 2
