"""Attention of one new token that also rotates it and appends its key and value to their caches: see `JoinCaches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from mgx_core import No

from .attention_decode import CLUSTER, TOGETHER, can_vectorize, cluster_merge, merging_launch, part_stores
from .attention_parts import flops, logit, merged, other_types, out_setup, result
from .attention_pattern import Pattern
from .elements import pointers
from .geometry import ceil_div, decompose
from .pointwise import kernel, one_launch
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Tensor, finish, to_compute, to_storage

__all__ = ["NewToken", "cached_attention"]

THREADS: Final = 256
MAX_ROWS: Final = 4  # queries of a block, each with its sums in registers


@dataclass(frozen=True)
class NewToken:
    """Indices of the kernel's operands besides those of its attention.

    key, value: the new rows of the caches; query_angles, key_angles: cosines and sines of the rotations of the queries and of the
    new keys, None without.
    """

    key: int
    value: int
    query_angles: tuple[int, int] | None
    key_angles: tuple[int, int] | None


@dataclass(frozen=True)
class _Split:
    """A block takes a share of the keys, for `rows` of the `sharing` queries that have the same keys.

    heads: of the caches; splits: blocks that share the keys; cluster: whether they are a cluster.
    """

    heads: int
    sharing: int
    rows: int
    splits: int
    cluster: bool

    @property
    def groups(self) -> int:
        """Blocks that have the same keys, for different queries."""
        return self.sharing // self.rows

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.splits, self.heads * self.groups, 1


def cached_attention(
    p: Pattern, token: NewToken, xs: Sequence[Tensor | None], ys: Sequence[Tensor], traits: DeviceTraits
) -> KernelSource | No:
    """Generates the kernel.

    p: the attention on the caches with the new token, in which queries are rotated; xs: its operands, with the old caches in the
    place of keys and values and the queries before the rotation, then those of `token`; ys: the result, then the new caches of
    keys and values.  Caches are [batch, heads, keys, d]; they and all operands of `token` are row-major.
    """
    known = xs[p.k.index]
    assert known is not None
    other = other_types(p)
    if other is not None:
        return other
    sharing = _sharing(p)
    if isinstance(sharing, No):
        return sharing
    if p.s != 1 or known.lens[2] + 1 != p.t or p.t < 2:
        return No("there is not one new token after at least one known one")
    if 0 in p.batch:
        return No("the result is empty")
    if p.causal or p.present or p.lines or p.keep:
        return No("attention with lengths, windows or offsets has a kernel of its own")
    if not can_vectorize(p, traits) or prod(p.batch) > 65535:
        return No("the rows of keys and values are not whole vectors, one per lane of a part of a wave")
    turned = (p.q.index, *token.query_angles) if token.query_angles else ()
    given = (p.k.index, p.v.index, token.key, token.value, *turned, *(token.key_angles or ()))
    if any((x := xs[n]) is None or not x.shape.standard() or x.align < 16 for n in given):
        return No("an operand is not row-major and aligned to vectors")
    angles = [xs[n] for n in (*(token.query_angles or ()), *(token.key_angles or ()))]
    half, step = p.d // 2, 16 // p.dtype.size
    if any(x is None or x.lens[0] not in (1, known.lens[0]) or x.lens[1:] != (1, half) for x in angles):
        return No("the rotation does not turn both halves of every head of a batch by the same angles")
    if angles and half % step:
        return No("half of a head is not a whole number of vectors")
    return _Writer(p, token, xs, ys, traits, _split(p, sharing, known.lens[2], traits)).source()


def _sharing(p: Pattern) -> int | No:
    """Returns the number of queries per head of the caches: the extent of the last batch axis if it shares keys and values."""
    lead, dims = p.k.strides[:-2], p.batch
    shared = bool(dims) and dims[-1] > 1 and lead[-1] == 0
    if shared:
        lead, dims = lead[:-1], dims[:-1]
    expected = p.t * p.d
    for n, stride in zip(reversed(dims), reversed(lead), strict=True):
        if n != 1 and stride != expected:
            return No("the caches' heads are not in the order of the queries'")
        expected *= n
    if p.k.strides[-2:] != (p.d, 1) or p.v.strides != p.k.strides or p.k.offset or p.v.offset:
        return No("keys and values are not whole caches of the same layout")
    return p.batch[-1] if shared else 1


def _split(p: Pattern, sharing: int, known: int, traits: DeviceTraits) -> _Split:
    """Returns the distribution over blocks: enough to keep the device busy, with as many queries per block as that allows.

    On an H200, 128 blocks of two queries were faster than 256 of one and 64 of four.
    """
    heads, teams = prod(p.batch) // sharing, THREADS * 16 // (p.d * p.dtype.size)
    most = ceil_div(known, TOGETHER * teams)
    cluster = traits.clusters and known >= CLUSTER * teams
    parts = THREADS // traits.wave + (CLUSTER if cluster else 0)  # of a query, in shared memory
    fitting = max(1, traits.shared_bytes // (4 * parts * (p.d + 2)))
    choices = [n for n in range(MAX_ROWS, 0, -1) if sharing % n == 0 and n <= fitting]
    for rows in choices:
        blocks = heads * (sharing // rows)
        if blocks * min(most, CLUSTER) * 4 >= 3 * traits.sm_count:
            break
    if blocks * CLUSTER * 2 < traits.sm_count and most > 2 * CLUSTER:
        cluster = False  # more blocks than a cluster has share the keys
    splits = CLUSTER if cluster else max(1, min(most, ceil_div(2 * traits.sm_count, blocks)))
    return _Split(heads, sharing, rows, splits, cluster)


@dataclass(frozen=True)
class _Writer:
    """Generates the statements of the kernel."""

    p: Pattern
    token: NewToken
    xs: Sequence[Tensor | None]
    ys: Sequence[Tensor]
    traits: DeviceTraits
    split: _Split

    @property
    def step(self) -> int:
        """Adjacent elements of a key that a lane reads."""
        return 16 // self.p.dtype.size

    @property
    def lanes(self) -> int:
        return self.p.d // self.step

    @property
    def teams(self) -> int:
        return THREADS // self.lanes

    @property
    def known(self) -> int:
        """Keys in the old caches."""
        return self.p.t - 1

    def source(self) -> KernelSource:
        p, split, wide = self.p, self.split, self.p.d + 2
        waves = THREADS // self.traits.wave
        merging = merged("parts_of_waves[0][r]", waves, split.rows * wide, p.d)
        lines = [
            *(["cluster_arrive();"] if split.cluster else []),
            *self._share(),
            *self._read("low"),
            *self._token(),
            f"float top[{split.rows}], sum[{split.rows}], acc[{split.rows}][{self.step}];",
            *self._first_keys(),
            *self._other_keys(),
            *self._merge_teams(),
            f"SHARED(float, parts_of_waves, [{waves}][{split.rows}][{wide}]);",
            f"if (lane_id() < {self.lanes}u) UNROLL for (u32 r = 0; r < {split.rows}u; ++r) {{",
            "  float* const mine = parts_of_waves[threadIdx.x / WAVE][r];",
            f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) mine[lane * {self.step}u + i] = acc[r][i];",
            f"  if (lane == 0) {{ mine[{p.d}] = top[r]; mine[{p.d + 1}] = sum[r]; }}",
            "}",
            "__syncthreads();",
        ]
        each = [
            f"for (u32 e = threadIdx.x; e < {split.rows * p.d}u; e += {THREADS}u) {{",
            f"  const u32 r = e / {p.d}u, c = e % {p.d}u;",
        ]
        if split.cluster:
            lines += cluster_merge(p, split.rows, THREADS, merging)
            lines += [f"if (blockIdx.x == 0) {each[0]}", each[1]]
            lines += [
                f"  {x}" for x in [*merged(f"(parts + r * {wide}u)", CLUSTER, split.rows * wide, p.d), *self._store()]
            ]
            return self._one_launch([*lines, "}"])
        if split.splits == 1:
            return self._one_launch([*lines, *each, *(f"  {x}" for x in [*merging, *self._store()]), "}"])
        lines += [
            *each,
            *(f"  {line}" for line in merging),
            f"  const u32 query = head * {split.sharing}u + first + r;",
            f"  float* const mine = parts + (u64)(query * {split.splits}u + blockIdx.x) * {wide}u;",
            *(f"  {line}" for line in part_stores("mine[{}] = {};", p.d)),
            "}",
        ]
        parameters, buffers = pointers(self.xs, self.ys)
        text = kernel(f"{NAME}_parts", [*parameters, "float* parts"], lines, THREADS)
        merging_text, last, space = merging_launch(p, split.splits)
        launches = [
            KernelLaunch(f"{NAME}_parts", split.grid, (THREADS, 1, 1), (*buffers, Buffer("scratch", 0))),
            last,
        ]
        return finish(
            "cached_attention", text + merging_text, launches, self.xs, self.ys, scratch=[space], flops=flops(p)
        )

    def _one_launch(self, lines: list[str]) -> KernelSource:
        return one_launch(
            "cached_attention", lines, self.xs, self.ys, self.split.grid, THREADS, before=self.p.finishing(),
            cluster=CLUSTER if self.split.cluster else 0, flops=flops(self.p),
        )  # fmt: skip

    def _share(self) -> list[str]:
        """Returns statements that find a block's share of the keys, and a lane's place in the old and new caches."""
        p, split = self.p, self.split
        share, lane = ceil_div(self.known, split.splits), f"lane * {self.step}u"
        caches = [(f"p{p.k.index}", "q1", "keys"), (f"p{p.v.index}", "q2", "values")]
        return [
            f"const u32 team = threadIdx.x / {self.lanes}u, lane = threadIdx.x % {self.lanes}u;",
            f"const u32 head = blockIdx.y / {split.groups}u, group = blockIdx.y % {split.groups}u;",
            f"const u32 first = group * {split.rows}u;",
            *(
                f"const {p.word}* const old_{name} = {old} + (u64)head * {self.known * p.d}u + {lane};"
                for old, _, name in caches
            ),
            *(f"{p.word}* const {name} = {new} + (u64)head * {p.t * p.d}u + {lane};" for _, new, name in caches),
            f"const u32 low = blockIdx.x * {share}u, high = low + {share}u < {self.known}u ? low + {share}u : {self.known}u;",
            f"{self.vectors} kv[{TOGETHER + 1}], vv[{TOGETHER + 1}];",
        ]

    @property
    def vectors(self) -> str:
        """The type of a lane's part of a key."""
        return f"vec<{self.p.word}, {self.step}>"

    def _read(self, at: str) -> list[str]:
        """Returns statements that read the keys and values of a team, from key `at` of the block on; zeros beyond its share."""
        load = f"ldv<{self.p.word}, {self.step}>"
        return [
            f"UNROLL for (u32 u = 0; u < {TOGETHER}; ++u) {{",
            f"  const u32 col = {at} + u * {self.teams}u + team;",
            "  kv[u] = {};",
            "  vv[u] = {};",
            "  if (col < high) {",
            f"    kv[u] = {load}(old_keys + (u64)col * {self.p.d}u);",
            f"    vv[u] = {load}(old_values + (u64)col * {self.p.d}u);",
            "  }",
            "}",
        ]

    def _token(self) -> list[str]:
        """Returns statements that read and rotate the queries, `x`, and the new key, and read its value."""
        p, split, token = self.p, self.split, self.token
        lines = [f"float x[{split.rows}][{self.step}];"]
        if token.query_angles or token.key_angles:
            lines += [
                f"const u32 across = (lane ^ {self.lanes // 2}u) * {self.step}u;  // the other half of a head",
                f"const bool second = lane >= {self.lanes // 2}u;",
            ]
        queries = []
        for r in range(split.rows):
            queries += [
                "{",
                *(f"  {line}" for line in self._row(r)),
                *(f"  {x}" for x in self._turned("query", f"p{p.q.index} + ({p.base(p.q)})", token.query_angles)),
                f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) x[{r}][i] = {to_compute('query.v[i]', p.dtype)};",
                "}",
            ]
        return [
            *lines,
            *queries,
            *self._turned("new_key", f"p{token.key} + (u64)head * {p.d}u", token.key_angles),
            f"const {self.vectors} new_value = "
            f"ldv<{p.word}, {self.step}>(p{token.value} + (u64)head * {p.d}u + lane * {self.step}u);",
        ]

    def _row(self, r: int) -> list[str]:
        """Returns statements that find the coordinates of query `r` of the block."""
        return decompose(f"(head * {self.split.sharing}u + first + {r}u)", self.p.batch, "h")[0]

    def _turned(self, name: str, source: str, angles: tuple[int, int] | None) -> list[str]:
        """Returns statements that read a lane's part of a head, rotated by the angles of its batch."""
        of, load = self.p.dtype, f"ldv<{self.p.word}, {self.step}>"
        lines = [f"{self.vectors} {name} = {load}({source} + lane * {self.step}u);"]
        if angles is None:
            return lines
        cache, cosines = self.xs[self.p.k.index], self.xs[angles[0]]
        assert cache is not None and cosines is not None
        apart = 0 if cosines.lens[0] == 1 else cosines.lens[-1]
        place = f"(u64)(head / {cache.lens[1]}u) * {apart}u + lane % {self.lanes // 2}u * {self.step}u"
        own, other, c, z = (to_compute(f"{part}.v[i]", of) for part in (name, "other_half", "cosines", "sines"))
        return [
            *lines,
            "{",
            f"  const {self.vectors} other_half = {load}({source} + across);",
            f"  const {self.vectors} cosines = {load}(p{angles[0]} + {place});",
            f"  const {self.vectors} sines = {load}(p{angles[1]} + {place});",
            f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) {{",
            f"    const float o = {other}, v = {own}, c = {c}, z = {z};",
            f"    {name}.v[i] = {to_storage('second ? z * o + c * v : c * v - z * o', of)};",
            "  }",
            "}",
        ]

    def _copied(self, at: str) -> list[str]:
        """Returns statements that copy the keys of a team to the new caches, together with the blocks that have the same ones."""
        return [
            f"UNROLL for (u32 u = 0; u < {TOGETHER}; ++u) {{",
            f"  const u32 col = {at} + u * {self.teams}u + team;",
            f"  if (col < high && u % {self.split.groups}u == group) {{",
            f"    stv(keys + (u64)col * {self.p.d}u, kv[u]);",
            f"    stv(values + (u64)col * {self.p.d}u, vv[u]);",
            "  }",
            "}",
        ]

    def _first_keys(self) -> list[str]:
        """Returns statements that start the sums with a team's first keys; the first team of the last block adds the new one."""
        new, place = TOGETHER, f"{self.known}u * {self.p.d}u"
        return [
            f"const bool newest = blockIdx.x == {self.split.splits - 1}u && team == 0;",
            f"kv[{new}] = new_key;",
            f"vv[{new}] = {{}};",
            f"if (newest) vv[{new}] = new_value;",
            *self._copied("low"),
            "if (newest && group == 0) {",
            f"  stv(keys + (u64){place}, new_key);",
            f"  stv(values + (u64){place}, new_value);",
            "}",
            *self._added("low", True),
        ]

    def _other_keys(self) -> list[str]:
        """Returns statements that add a block's other keys; none if a team has no more than the first ones."""
        once = self.teams * TOGETHER
        if ceil_div(self.known, self.split.splits) <= once:
            return []
        body = [*self._read("at"), *self._copied("at"), *self._added("at", False)]
        return [f"for (u32 at = low + {once}u; at < high; at += {once}u) {{", *(f"  {line}" for line in body), "}"]

    def _added(self, at: str, start: bool) -> list[str]:
        """Returns statements that add the keys in registers, from key `at` of the block on, to the sums of all rows.

        start: they are the first ones, with the new key after them.  Keys beyond the share have weight 0, and values 0.
        """
        p, count = self.p, TOGETHER + start
        place = f"{at} + u * {self.teams}u + team"
        if start:
            place = f"u < {TOGETHER}u ? {place} : {self.known}u"
            inside = f"u < {TOGETHER}u ? col < high : newest"
        else:
            inside = "col < high"
        lines = []
        for r in range(self.split.rows):
            rescaled = [
                f"  const float less = m::exp(top[{r}] - base);",
                f"  sum[{r}] *= less;",
                f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) acc[{r}][i] *= less;",
            ]
            cleared = [f"  sum[{r}] = 0.f;", f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) acc[{r}][i] = 0.f;"]
            lines += [
                "{",
                *(f"  {line}" for line in self._row(r)),
                "  const u32 row = 0;",
                f"  float dots[{count}], now = {'(float)-m::inf()' if start else f'top[{r}]'};",
                f"  UNROLL for (u32 u = 0; u < {count}; ++u) {{",
                f"    const u32 col = {place};",
                "    float dot = 0.f;",
                f"    UNROLL for (u32 i = 0; i < {self.step}u; ++i) dot += x[{r}][i] * {to_compute('kv[u].v[i]', p.dtype)};",
                f"    dot = wave_reduce<Sum, {self.lanes}>(dot);",
                *(f"    {line}" for line in logit(p, "dot")),
                f"    dots[u] = ({inside}) ? dot : (float)-m::inf();",
                "    now = m::max(now, dots[u]);",
                "  }",
                "  const float base = now == (float)-m::inf() ? 0.f : now;",
                *(cleared if start else rescaled),
                f"  top[{r}] = now;",
                f"  UNROLL for (u32 u = 0; u < {count}; ++u) {{",
                "    const float w = m::exp(dots[u] - base);",
                f"    sum[{r}] += w;",
                f"    UNROLL for (u32 i = 0; i < {self.step}u; ++i) acc[{r}][i] += w * {to_compute('vv[u].v[i]', p.dtype)};",
                "  }",
                "}",
            ]
        return lines

    def _merge_teams(self) -> list[str]:
        """Returns statements after which every team of a wave has the sums of all of them."""
        lines = [
            f"UNROLL for (u32 r = 0; r < {self.split.rows}u; ++r) {{",
            "  float now = top[r];",
        ]
        masks = []
        mask = self.lanes
        while mask < self.traits.wave:
            masks.append(mask)
            mask *= 2
        lines += [f"  now = m::max(now, wave_xor(now, {n}u));" for n in masks]
        lines += [
            "  const float less = m::exp(top[r] - (now == (float)-m::inf() ? 0.f : now));",
            "  top[r] = now; sum[r] *= less;",
            f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) acc[r][i] *= less;",
        ]
        for n in masks:
            lines += [
                f"  sum[r] += wave_xor(sum[r], {n}u);",
                f"  UNROLL for (u32 i = 0; i < {self.step}u; ++i) acc[r][i] += wave_xor(acc[r][i], {n}u);",
            ]
        return [*lines, "}"]

    def _store(self) -> list[str]:
        """Returns statements that store column `c` of row `r` of the result."""
        p = self.p
        return [
            *decompose(f"(head * {self.split.sharing}u + first + r)", p.batch, "h")[0],
            *out_setup(p),
            result(p, "value / weight", "weight", f"o[(u64)c * {p.o[-1]}u]", "c"),
        ]
