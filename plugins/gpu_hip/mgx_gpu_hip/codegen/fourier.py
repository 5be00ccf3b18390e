"""Fourier transforms in shared memory, one or several per block, by butterflies of small factors (Stockham's order)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mgx_core import No
from mgx_core.ops.fourier import Dft

from .elements import offset_of
from .extents import plain
from .geometry import aligned, ceil_div, decompose, memory_order, power_of_two
from .pointwise import one_launch
from .primitives import constant
from .source import DeviceTraits, KernelSource, Tensor, compute_type, finish, storage_type, to_compute, to_storage

__all__ = ["SHORTEST_APART", "stages_of", "transform", "transform_length"]

SHORTEST: Final = 64  # a product computes shorter transforms of adjacent numbers in no more time
SHORTEST_APART: Final = 32  # the same for others, which a product reads from copies
RADICES: Final = (8, 4, 2, 3, 5, 7)
HELD: Final = 8  # numbers of a transform that each thread holds between the stages
THREADS: Final = 128
ADJACENT: Final = 16  # transforms per block whose numbers are adjacent in memory


class _Plan(NamedTuple):
    """Places of a transform: the numbers in shared memory, the threads of one transform, and the transforms of a block.

    total: numbers of the whole transform; points: complex numbers of the butterflies, half of `total` if reals are packed in
    pairs; kind: the C type; sign: of the exponent; across: adjacent threads belong to different transforms.
    """

    total: int
    points: int
    kind: str
    sign: int
    threads: int
    rows: int
    across: bool

    @property
    def width(self) -> int:
        """Numbers of one transform in shared memory, with one unused after every eight so that threads meet other banks."""
        return self.points if self.across else self.points + self.points // 8 + 1

    def place(self, at: str) -> str:
        return f"({at}) * {self.rows}u + row" if self.across else f"row * {self.width}u + ({at}) + ({at}) / 8u"


def transform(op: Dft, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Returns the kernel of `dft`.

    A real signal of even length, or one of which half the spectrum is given, is half as many complex numbers.
    """
    rank = len(x.lens)
    at = op.along(rank, op.axis)
    given, made, total = (plain(n) for n in (x.lens[at], y.lens[at], transform_length(op, x.lens, y.lens)))
    half, real = op.inverse and op.onesided, x.lens[-1] == 1
    if not y.elements:
        return finish("dft", "", [], [x], [y])
    packed = total % 2 == 0 and (half or real)
    points = total // 2 if packed else total
    stages = stages_of(points)
    if not stages:
        return No(f"the kernel supports lengths without prime factors above {RADICES[-1]}, got {total}")
    kind, size = compute_type(y.dtype), 2 * max(y.dtype.size, 4)
    others = [a for a in memory_order(x.strides, x.lens) if a not in (at, rank - 1)]
    dims = [y.lens[a] for a in others]
    transforms = math.prod(dims)
    across = any(0 < x.strides[a] < x.strides[at] and x.lens[a] != 1 for a in others)
    if not given or total < (SHORTEST_APART if across else SHORTEST):
        return No(f"a transform of {total} numbers is a product")
    threads = min(ceil_div(points, HELD), traits.max_threads // 2)
    rows = ADJACENT if across else max(1, THREADS // threads)
    rows = min(rows, power_of_two(plain(transforms)), power_of_two(traits.max_threads // threads + 1) // 2)
    p = _Plan(total, points, kind, 1 if op.inverse else -1, threads, rows, across)
    while p.rows > 1 and p.rows * p.width * size > traits.shared_bytes:
        p = p._replace(rows=p.rows // 2)
    if p.rows * p.width * size > traits.shared_bytes:
        return No(f"{total} numbers require {p.width * size} bytes of shared memory, a block has {traits.shared_bytes}")
    setup, names = decompose(f"(blockIdx.x * {p.rows}u + row)", dims, "c")
    where = dict(zip(others, names, strict=True))

    def offset(of: Tensor, k: str, part: str) -> str:
        return offset_of(of, [k if a == at else part if a == rank - 1 else where[a] for a in range(rank)], True)

    read = _Reader(x, at, given, offset, kind)
    write = _Writer(y, at, made, offset)
    if packed and half:
        load = read.halved(p)
    elif packed:
        load = read.pairs
    else:
        load = read.mirrored(p) if half else read.complex
    block = p.threads * p.rows
    lines = [
        f"const u32 row = threadIdx.x {'%' if across else '/'} {p.rows if across else p.threads}u;",
        f"const u32 lane = threadIdx.x {'/' if across else '%'} {p.rows if across else p.threads}u;",
        *setup,
        f"const bool live = blockIdx.x * {p.rows}u + row < {transforms}u;",
        f"typedef vec<{kind}, 2> pair;",
        f"SHARED(pair, z, [{p.rows * p.width}]);",
    ]
    unpack, scale = packed and not half, 1 / total if op.inverse else 1.0
    before = 1
    for n, radix in enumerate(stages):
        put = None if unpack or n + 1 < len(stages) else write.reals if packed else write.complex
        lines += _stage(p, radix, before, load if n == 0 else None, put, scale)
        before *= radix
    if unpack:
        lines += _unpacked(p, write, scale)
    flops = transforms * 5 * points * int(math.log2(points) + 1)
    return one_launch("dft", lines, [x], [y], ceil_div(transforms, p.rows), block, flops=flops)


def transform_length(op: Dft, given: Sequence[Any], made: Sequence[Any]) -> Any:
    """Returns the numbers of a transform, from the extents of its operand and of its result."""
    at = op.along(len(given), op.axis)
    return made[at] if op.inverse or not op.onesided else op.dft_length or given[at]


def stages_of(n: int) -> list[int]:
    """Returns the radices of the stages for n numbers, the largest first; none if n has another prime factor."""
    found: list[int] = []
    for radix in RADICES:
        while n % radix == 0 and n > 1:
            found.append(radix)
            n //= radix
    return found if n == 1 else []


def _stage(p: _Plan, radix: int, before: int, load: Any, put: Any, scale: float) -> list[str]:
    """Returns one stage: butterflies of `radix` numbers, `before` being the product of the radices of earlier stages.

    load: statements that read number k into `name`, for the first stage; put: statements that write it to memory, for the last.
    """
    apart, each = p.points // radix, ceil_div(p.points // radix, p.threads)
    body: list[str] = []
    for q in range(radix):
        at = f"j + {q * apart}u" if q else "j"
        body += [f"{p.kind} a{q}r, a{q}i;"]
        body += (
            load(at, f"a{q}") if load else [f"{{ const pair v = z[{p.place(at)}]; a{q}r = v.v[0]; a{q}i = v.v[1]; }}"]
        )
    if before > 1:
        body += _root("w1", before * radix, f"j % {before}u", p)
        body += [f"const pair w{q} = complex_product(w{q // 2}, w{q - q // 2});" for q in range(2, radix)]
        for q in range(1, radix):
            body += [
                f"{{ const {p.kind} t = a{q}r * w{q}.v[0] - a{q}i * w{q}.v[1];",
                f"  a{q}i = a{q}r * w{q}.v[1] + a{q}i * w{q}.v[0];",
                f"  a{q}r = t; }}",
            ]
    butterfly = _Butterfly(p.kind, p.sign)
    results = butterfly.of([f"a{q}" for q in range(radix)])
    body += butterfly.lines
    scaled = f" * {constant(scale, p.kind)}" if scale != 1 else ""  # of results in memory
    to = f"j / {before}u * {before * radix}u + j % {before}u" if before > 1 else f"j * {radix}u"
    live = f"j < {apart}u && live" if put or load else f"j < {apart}u"
    if put:
        for q, name in enumerate(results):
            body += put(f"j + {q * before}u" if q else "j", f"{name}r{scaled}", f"{name}i{scaled}")
        return _loop(each, p, live, body)
    body += [f"held[b * {radix} + {q}] = {{{name}r, {name}i}};" for q, name in enumerate(results)]
    store = [f"const u32 to = {to};"]
    store += [f"z[{p.place(f'to + {q * before}u' if q else 'to')}] = held[b * {radix} + {q}];" for q in range(radix)]
    return [
        "{",
        f"pair held[{each * radix}];",
        *_loop(each, p, live, body),
        *(["__syncthreads();"] if load is None else []),
        *_loop(each, p, live, store),
        "__syncthreads();",
        "}",
    ]


def _loop(each: int, p: _Plan, condition: str, body: Sequence[str]) -> list[str]:
    """Returns a loop over the butterflies of a thread."""
    return [
        f"UNROLL for (u32 b = 0; b < {each}u; ++b) {{",
        f"  const u32 j = lane + b * {p.threads}u;",
        f"  if ({condition}) {{",
        *(f"    {line}" for line in body),
        "  }",
        "}",
    ]


class _Butterfly:
    """Writes the transform of a few numbers held in registers; `lines` are its statements."""

    def __init__(self, kind: str, sign: int) -> None:
        self.kind, self.sign = kind, sign
        self.lines: list[str] = []
        self.made = 0

    def named(self, real: str, imaginary: str) -> str:
        self.made += 1
        name = f"t{self.made}"
        self.lines.append(f"const {self.kind} {name}r = {real}, {name}i = {imaginary};")
        return name

    def of(self, names: Sequence[str]) -> list[str]:
        """Returns the names of the transform's numbers."""
        n = len(names)
        if n % 2 == 0 and n > 2:
            even, odd = self.of(names[::2]), self.of(names[1::2])
            turned = [self._turned(name, k, n) for k, name in enumerate(odd)]
        elif n == 2:
            even, turned = [names[0]], [names[1]]
        else:
            return self._odd(names)
        sums = [self.named(f"{a}r + {b}r", f"{a}i + {b}i") for a, b in zip(even, turned, strict=True)]
        return sums + [self.named(f"{a}r - {b}r", f"{a}i - {b}i") for a, b in zip(even, turned, strict=True)]

    def _turned(self, name: str, k: int, n: int) -> str:
        """Returns the product with exp(sign 2 pi i k / n), k < n / 2."""
        if k == 0:
            return name
        if 4 * k == n:
            return self.named(f"-{name}i", f"{name}r") if self.sign > 0 else self.named(f"{name}i", f"-{name}r")
        angle = self.sign * 2 * math.pi * k / n
        c, s = (constant(v, self.kind) for v in (math.cos(angle), math.sin(angle)))
        return self.named(f"{name}r * {c} - {name}i * {s}", f"{name}r * {s} + {name}i * {c}")

    def _odd(self, names: Sequence[str]) -> list[str]:
        """Returns the transform of an odd number of numbers: sums and differences of those that mirror each other."""
        n, first = len(names), names[0]
        pairs = [(names[j], names[n - j]) for j in range(1, (n + 1) // 2)]
        sums = [self.named(f"{a}r + {b}r", f"{a}i + {b}i") for a, b in pairs]
        rest = [self.named(f"{a}r - {b}r", f"{a}i - {b}i") for a, b in pairs]
        out = [self.named(*(" + ".join(f"{s}{part}" for s in (first, *sums)) for part in "ri"))]
        low, high = [], []
        for k in range(1, (n + 1) // 2):
            angles = [self.sign * 2 * math.pi * (j * k % n) / n for j in range(1, (n + 1) // 2)]
            along = [
                " + ".join(
                    [f"{first}{part}"]
                    + [f"{s}{part} * {constant(math.cos(a), self.kind)}" for s, a in zip(sums, angles, strict=True)]
                )
                for part in "ri"
            ]
            across = [
                " + ".join(f"{s}{part} * {constant(math.sin(a), self.kind)}" for s, a in zip(rest, angles, strict=True))
                for part in "ri"
            ]
            u, v = self.named(*along), self.named(*across)
            low.append(self.named(f"{u}r - {v}i", f"{u}i + {v}r"))
            high.append(self.named(f"{u}r + {v}i", f"{u}i - {v}r"))
        return out + low + high[::-1]


class _Reader:
    """Statements that read numbers of the signal, zero past its end."""

    def __init__(self, x: Tensor, at: int, given: int, offset: Any, kind: str) -> None:
        self.x, self.given, self.offset, self.kind = x, given, offset, kind
        rest = [s for a, s in enumerate(x.strides) if a not in (at, len(x.strides) - 1)]
        self.real = x.lens[-1] == 1
        self.adjacent = not self.real and aligned(x, (*rest, x.strides[at], x.strides[-1]), 0, 2)
        self.paired = self.real and given % 2 == 0 and aligned(x, (*rest, x.strides[at]), 0, 2)

    def complex(self, k: str, name: str) -> list[str]:
        """Reads number k into `name`r and `name`i."""
        return self._guarded(k, name, self._number(k, name))

    def pairs(self, k: str, name: str) -> list[str]:
        """Reads two adjacent reals as one number."""
        first = f"2u * ({k})"
        if self.paired:
            return self._guarded(first, name, self._vector(first, name))
        one, other = (
            to_compute(f"p0[{self.offset(self.x, at, '0u')}]", self.x.dtype) for at in (first, f"{first} + 1u")
        )
        zero = f"({self.kind})0"
        return [
            f"{name}r = {first} < {self.given}u ? {one} : {zero};",
            f"{name}i = {first} + 1u < {self.given}u ? {other} : {zero};",
        ]

    def mirrored(self, p: _Plan) -> Any:
        """Reads number k of the spectrum of a real signal, of which the first half is given; number 0 is real."""

        def load(k: str, name: str) -> list[str]:
            return [
                f"{{ const u32 m = {k}, f = m > {p.total // 2}u ? {p.total}u - m : m;",
                *self.complex("f", name),
                f"if (m == 0) {name}i = 0;",
                f"if (f != m) {name}i = -{name}i; }}",
            ]

        return load

    def halved(self, p: _Plan) -> Any:
        """Reads number k of the transform of pairs of reals, from a spectrum of which the first half is given.

        With X the spectrum and N the pairs, it is X[k] + X*[N - k] + i exp(2 pi i k / 2 N) (X[k] - X*[N - k]).
        """

        def load(k: str, name: str) -> list[str]:
            return [
                f"{{ const u32 m = {k}, f = {p.points}u - m;",
                f"{p.kind} br, bi, cr, ci;",
                *self.complex("m", "b"),
                *self.complex("f", "c"),
                "if (m == 0) bi = ci = 0;",
                f"const pair w = root_of_unity<{p.kind}, {p.total}>(m);",
                f"const {p.kind} dr = br - cr, di = bi + ci;",
                f"{name}r = br + cr - (dr * w.v[1] + di * w.v[0]);",
                f"{name}i = bi - ci + (dr * w.v[0] - di * w.v[1]); }}",
            ]

        return load

    def _number(self, k: str, name: str) -> list[str]:
        if self.adjacent:
            return self._vector(k, name)
        one, other = (to_compute(f"p0[{self.offset(self.x, k, part)}]", self.x.dtype) for part in ("0u", "1u"))
        return [f"{name}r = {one};", f"{name}i = {f'({self.kind})0' if self.real else other};"]

    def _vector(self, k: str, name: str) -> list[str]:
        load = f"ldv<{storage_type(self.x.dtype)}, 2>(p0 + ({self.offset(self.x, k, '0u')}))"
        one, other = (to_compute(f"v.v[{n}]", self.x.dtype) for n in (0, 1))
        return [f"{{ const auto v = {load}; {name}r = {one}; {name}i = {other}; }}"]

    def _guarded(self, k: str, name: str, lines: Sequence[str]) -> list[str]:
        return [f"{name}r = {name}i = 0;", f"if ({k} < {self.given}u) {{", *(f"  {line}" for line in lines), "}"]


class _Writer:
    """Statements that write numbers of the result."""

    def __init__(self, y: Tensor, at: int, made: int, offset: Any) -> None:
        self.y, self.made, self.offset = y, made, offset
        rest = [s for a, s in enumerate(y.strides) if a not in (at, len(y.strides) - 1)]
        self.real = y.lens[-1] == 1
        self.adjacent = not self.real and aligned(y, (*rest, y.strides[at], y.strides[-1]), 0, 2)
        self.paired = self.real and aligned(y, (*rest, y.strides[at]), 0, 2)

    def complex(self, k: str, real: str, imaginary: str) -> list[str]:
        """Writes number k, or its real part, if the result includes it."""
        place = self.offset(self.y, k, "0u")
        if self.real:
            return self._guarded(k, self._stored(place, real))
        if self.adjacent:
            return self._guarded(k, self._vector(place, real, imaginary))
        return self._guarded(k, [*self._stored(place, real), *self._stored(self.offset(self.y, k, "1u"), imaginary)])

    def reals(self, k: str, one: str, other: str) -> list[str]:
        """Writes two adjacent reals; a result of an even number of them holds both or neither."""
        first = f"2u * ({k})"
        place = self.offset(self.y, first, "0u")
        if self.paired:
            return self._vector(place, one, other)
        return [*self._stored(place, one), *self._stored(self.offset(self.y, f"{first} + 1u", "0u"), other)]

    def _stored(self, place: str, value: str) -> list[str]:
        return [f"q0[{place}] = {to_storage(value, self.y.dtype)};"]

    def _vector(self, place: str, one: str, other: str) -> list[str]:
        stored = storage_type(self.y.dtype)
        both = ", ".join(to_storage(v, self.y.dtype) for v in (one, other))
        return [f"stv<{stored}, 2>(q0 + ({place}), vec<{stored}, 2>{{{both}}});"]

    def _guarded(self, k: str, lines: Sequence[str]) -> list[str]:
        return [f"if ({k} < {self.made}u) {{", *(f"  {line}" for line in lines), "}"]


def _unpacked(p: _Plan, write: _Writer, scale: float) -> list[str]:
    """Returns the loop that writes the spectrum X of reals from the transform Z of their pairs.

    With N pairs, 2 X[k] = Z[k] + Z*[N - k] - i exp(sign 2 pi i k / 2 N) (Z[k] - Z*[N - k]).
    """
    scaled = constant(scale / 2, p.kind)
    outputs = min(write.made, p.points + 1)
    body = [
        f"const pair a = z[{p.place(f'j == {p.points}u ? 0u : j')}], b = z[{p.place(f'j == 0 ? 0u : {p.points}u - j')}];",
        *_root("w", p.total, "j", p),
        f"const {p.kind} dr = a.v[0] - b.v[0], di = a.v[1] + b.v[1];",
        f"const {p.kind} xr = (a.v[0] + b.v[0] + dr * w.v[1] + di * w.v[0]) * {scaled};",
        f"const {p.kind} xi = (a.v[1] - b.v[1] - dr * w.v[0] + di * w.v[1]) * {scaled};",
        *write.complex("j", "xr", "xi"),
    ]
    if write.made > outputs:
        body += [
            f"if (j > 0 && j < {p.points}u) {{",
            *(f"  {line}" for line in write.complex(f"{p.total}u - j", "xr", "-xi")),
            "}",
        ]
    return [
        f"for (u32 j = lane; j < {outputs}u && live; j += {p.threads}u) {{",
        *(f"  {line}" for line in body),
        "}",
    ]


def _root(name: str, n: int, k: str, p: _Plan) -> list[str]:
    """Returns statements that define exp(sign 2 pi i k / n)."""
    value = f"root_of_unity<{p.kind}, {n}>({k})"
    if p.sign > 0:
        return [f"const pair {name} = {value};"]
    return [f"pair {name} = {value};", f"{name}.v[1] = -{name}.v[1];"]
