"""Attention of few keys by warpgroups (wgmma): a block keeps all keys and values of a head in shared memory."""

from __future__ import annotations

from typing import Final

from mgx_core import No

from .attention_parts import batch_setup, copied_at_once, copy_tile, finish_kernel, heads
from .attention_pattern import Pattern
from .attention_tiles import (
    SUM_OF_WEIGHTS,
    piece_logits,
    piece_weights,
    query_fragments,
    rescale_sums,
    store_results,
    zero_sums,
)
from .extents import estimated, plain, varies
from .geometry import ceil_div
from .narrow_tiles import ALIGNED, GROUP_WAVES, JOINT
from .narrow_warpgroup import WARPGROUP_SHARED
from .pointwise import braced
from .source import DeviceTraits, KernelSource

__all__ = ["fits_warpgroups", "warpgroup_attention", "warpgroup_microseconds"]

SIZE: Final = 64  # elements of a head: rows of 128 bytes, in the layout that warpgroups multiply
ROWS: Final = 64  # queries of a tile, which a warpgroup multiplies at a time
MOST_TILES: Final = 2  # of a block, which reads the keys once for all of them
MOST_PIECES: Final = 8  # of 16 keys, whose logits a wave has at a time
# with more keys than so many pieces, tiles of more than six made the compiler spill registers: 304 keys took 49.4 us instead of
# 46.5 on an H200, 224 keys 25.4 instead of 24.5, 240 keys 30.9 instead of 31.4
WITHOUT_SPILLS: Final = 13
FEWER_PIECES: Final = 6
PITCH: Final = SIZE + 8  # elements between queries, whose rows then fall into different banks
RESIDENT: Final = 2  # blocks that a multiprocessor has room for, at least


def fits_warpgroups(p: Pattern, traits: DeviceTraits) -> bool:
    """Returns True if warpgroups can multiply the operands, and the keys and values of a head fit into shared memory."""
    if (
        traits.arch not in JOINT
        or traits.wave != 32
        or p.present
        or p.causal
        or any(varies(n) for n in (p.s, p.t))
        or p.s <= 16
        or (p.d, p.e) != (SIZE, SIZE)
    ):
        return False
    swizzled = all(copied_at_once(p, access, SIZE) * p.tensor(access).dtype.size == 16 for access in (p.k, p.v))
    return swizzled and RESIDENT * _shared_bytes(p, traits) <= traits.shared_most


def warpgroup_microseconds(p: Pattern) -> float:
    """Returns estimated microseconds; the errors of eight measurements on an H200 are 5 to 20 %."""
    return 4.0 + estimated(4 * heads(p) * ceil_div(p.s, ROWS) * ROWS * ceil_div(p.t, 16) * 16 * SIZE) / 2.8e8


def _tiles(p: Pattern, traits: DeviceTraits) -> int:
    """Returns the number of tiles of queries of a block, also for symbolic batches a constant: fewer if there are few heads."""
    tiles, filling = ceil_div(p.s, ROWS), plain(ceil_div(RESIDENT * traits.sm_count, heads(p)))
    return ceil_div(tiles, max(filling, ceil_div(tiles, MOST_TILES)))


def _shared_bytes(p: Pattern, traits: DeviceTraits) -> int:
    return 2 * (2 * ceil_div(p.t, 16) * 16 * SIZE + _tiles(p, traits) * ROWS * PITCH) + ALIGNED


def warpgroup_attention(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    """Generates a kernel whose blocks, of one warpgroup, multiply tiles of queries by all keys.

    The values arrive while the first weights are computed.
    """
    t, pieces = p.word, ceil_div(p.t, 16)
    queries, keys, threads = _tiles(p, traits) * ROWS, 16 * pieces, GROUP_WAVES * traits.wave
    most = MOST_PIECES if pieces <= WITHOUT_SPILLS else FEWER_PIECES
    each = ceil_div(pieces, ceil_div(pieces, most))  # pieces of a tile of keys
    full = p.t // 16 // each * each  # pieces of tiles that have all keys
    copies = [
        copy_tile(
            p, access, target, source, keys, SIZE, "0u", f"{p.t}u", SIZE, SIZE, threads, place="(c / 8u ^ r % 8u) * 8u"
        )
        for access, target, source in ((p.k, "keys", "k"), (p.v, "values", "v"))
    ]
    tile = ["const u32 first = block + at;", f"{t}* const queries = all + at * {PITCH}u;", *zero_sums(p)]
    if full:
        tile += braced(f"for (u32 key = 0; key < {16 * full}u; key += {16 * each}u)", _keys(p, each, each))
    if full < pieces:
        rest = [f"const u32 key = {16 * full};", *_keys(p, pieces - full, p.t // 16 - full)]
        tile += ["{", *(f"  {line}" for line in rest), "}"]
    lines = [
        f"const u32 block = blockIdx.x * {queries}u, wave = threadIdx.x / WAVE;  // 16 queries a wave",
        *batch_setup(p, "blockIdx.y"),
        *WARPGROUP_SHARED,
        f"{t}* const keys = ({t}*)room;",
        f"{t}* const values = keys + {keys * SIZE};",
        f"{t}* const all = values + {keys * SIZE};",
        *copy_tile(p, p.q, "all", "q", queries, SIZE, "block", f"{p.s}u", SIZE, PITCH, threads),
        *copies[0],
        "async_commit();",
        *copies[1],
        "async_commit();",
        "async_wait<1>();",
        "group_shared();",
        "__syncthreads();",
        *braced(
            f"for (u32 at = 0; at < {queries}u && block + at < {p.s}u; at += {ROWS}u)",
            [*tile, *store_results(p, PITCH)],
        ),
    ]
    return finish_kernel(p, lines, (ceil_div(p.s, queries), heads(p), 1), threads, 4, _shared_bytes(p, traits))


def _keys(p: Pattern, pieces: int, whole: int) -> list[str]:
    """Returns statements for the pieces of 16 keys from `key` on, of which the first `whole` are known to have all keys.

    Waves without queries compute no weights.  Queries are loaded again for each tile of keys: ptxas of CUDA 13.0 overwrites
    registers of a left operand in a loop although the next iteration multiplies them again.
    """
    scale = p.scale or 1.0
    products = [
        f"group_mma_rows<{min(4, pieces - n)}>(sf + {n}, qf[i], keys + (key + {16 * n}) * {SIZE}, i * 16, i > 0);"
        for n in range(0, pieces, 4)
    ]
    weights: list[str] = []
    for begin, end, tile in ((0, whole, 1), (whole, pieces, 0)):
        if begin < end:
            logits = piece_logits(p, "first + wave * 16", 0, tile, raw=p.scale is not None)
            weights += braced(f"UNROLL for (int n = {begin}; n < {end}; ++n)", logits)
    weights += rescale_sums(p, pieces, scale)
    weights += braced(f"UNROLL for (int n = 0; n < {pieces}; ++n)", piece_weights(scale))
    return [
        *query_fragments(p, f"queries + wave * 16 * {PITCH}", PITCH),
        f"frag_c sf[{pieces}];",
        "group_begin();",
        *braced(f"UNROLL for (u32 i = 0; i < {SIZE // 16}; ++i)", products),
        "group_commit();",
        "group_wait<0>();",
        f"group_hold(sf, {pieces});",
        *braced(f"if (first + wave * 16 < {p.s}u)", [*weights, SUM_OF_WEIGHTS]),
        f"frag_a<{p.word}> pf[{pieces}];",
        f"UNROLL for (int n = 0; n < {pieces}; ++n) frag_c_to_a(pf[n], sf[n], queries);",
        *braced("if (at + key == 0)", ["async_wait<0>();", "group_shared();", "__syncthreads();"]),
        "group_begin();",
        f"UNROLL for (u32 n = 0; n < {pieces}; ++n) group_mma_columns(of, pf[n], values + (key + n * 16) * {SIZE});",
        "group_commit();",
        "group_wait<0>();",
        f"group_hold(of, {SIZE // 16});",
    ]
