"""Cases of narrow types: quantization, products of narrow operands, packing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mgx_core import dtype
from mgx_core.ops import STANDARD

from .case import FLOATS, FP8, LAYOUTS, NARROW, Case, Family, data, given

__all__ = ["family"]

family = Family("quantization")
make = STANDARD.make
F = dtype.float32


@family.cases("quantizelinear")
def quantize(name: str) -> Iterable[Case]:
    for n, to in enumerate((dtype.int8, dtype.uint8, dtype.int16, dtype.uint16, *NARROW[:4])):
        zero = given(1 if to.bits > 2 else 0, to)
        yield Case(make(name), (data(F, 3, 5, low=-4, high=4), given(0.05, F), zero), f"tensor-{to}",
                   LAYOUTS if n == 0 else LAYOUTS[:1])  # fmt: skip
    scale = given([0.1, 0.02, 0.5], F)
    zeros = given([1, -2, 0], dtype.int8)
    yield Case(make(name, axis=1), (data(F, 2, 3, 5, low=-4, high=4), scale, zeros), "channel", LAYOUTS[:4])
    yield Case(make(name, axis=0), (data(F, 3, 4, low=-4, high=4), scale), "axis0")
    blocks = given(np.linspace(0.05, 0.3, 8).reshape(2, 4), F)
    yield Case(make(name, axis=1, block_size=2), (data(F, 2, 8, low=-4, high=4), blocks), "blocks")
    ties = given(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300], np.float32))
    yield Case(make(name), (ties, given(1.0, F), given(0, dtype.int8)), "ties")
    for to in (*FP8, *NARROW[4:]):
        for saturate in (True, False):
            op = make(name, saturate=saturate)
            label = f"{to}{'' if saturate else '-unsaturated'}"
            yield Case(op, (data(F, 3, 5, low=-9, high=9), given(0.5, F), given(0, to)), label)
    half = FLOATS[1]
    yield Case(make(name), (data(half, 3, 5, low=-4, high=4), given(0.0625, half), given(0, dtype.int8)), "half")
    yield Case(make(name, out_type=dtype.int8), (data(F, 3, 5, low=-4, high=4), given(0.05, F)), "out-type")


@family.cases("dequantizelinear")
def dequantize(name: str) -> Iterable[Case]:
    for n, source in enumerate((dtype.int8, dtype.uint8, dtype.int16, dtype.uint16, dtype.int32, *NARROW[:4])):
        low, high = max(source.lowest, -100), min(source.highest, 100)
        x = data(source, 3, 5, low=low, high=high)
        zero = given(0 if source is dtype.int32 or source.bits < 4 else 3, source)
        yield Case(make(name), (x, given(0.05, F), zero), "tensor", LAYOUTS if n == 0 else LAYOUTS[:1])
    scale = given([0.1, 0.02, 0.5], F)
    x = data(dtype.int8, 2, 3, 5, low=-100, high=100)
    yield Case(make(name, axis=1), (x, scale, given([1, -2, 0], dtype.int8)), "channel", LAYOUTS[:4])
    blocks = given(np.linspace(0.05, 0.3, 8).reshape(2, 4), F)
    yield Case(make(name, axis=1, block_size=2), (data(dtype.int8, 2, 8, low=-9, high=9), blocks), "blocks")
    for source in (*FP8, *NARROW[4:]):
        yield Case(make(name), (data(source, 3, 5, low=-4, high=4), given(0.5, F)), "plain")
    yield Case(make(name), (data(dtype.int8, 3, 5, low=-9, high=9), given(0.0625, FLOATS[1])), "half")


@family.cases("byte_map")
def byte_map(name: str) -> Iterable[Case]:
    for kind, to in ((dtype.uint8, dtype.int8), (dtype.int8, dtype.uint8)):
        x = data(kind, 2, 5, 7, low=kind.lowest, high=kind.highest)
        table = data(to, 256, low=to.lowest, high=to.highest)
        fixed = given(np.arange(256).astype(np.uint8)[::-1].astype(to.numpy))
        yield Case(make(name), (x, table), f"{kind}-open", LAYOUTS[:1])
        yield Case(make(name), (x, fixed), f"{kind}", LAYOUTS)
    yield Case(make(name), (data(dtype.uint8, 3, 200, low=0, high=255), fixed), "long")


@family.cases("dequant_dot")
def dequant_dot(name: str) -> Iterable[Case]:
    u8 = dtype.uint8

    def scale(*dims: int) -> object:
        return data(F, *dims, low=0.01, high=0.1)

    for rows in (1, 3, 20):
        operands = (data(F, rows, 64), data(u8, 6, 32), scale(6, 2), data(u8, 6, 2, low=0, high=15))
        yield Case(make(name, bits=4, block_size=32), operands, f"nibbles-{rows}")
    yield Case(make(name, bits=4, block_size=32), (data(F, 2, 1, 40), data(u8, 5, 32), scale(5, 2)), "nibbles-padded")
    yield Case(make(name, bits=4, block_size=16), (data(F, 2, 16), data(u8, 3, 8), scale(3, 1)), "nibbles-small")
    yield Case(
        make(name, bits=8, block_size=37), (data(F, 2, 37), data(u8, 5, 37), scale(5, 1), data(u8, 5, 1)), "bytes"
    )
    yield Case(make(name, bits=8, block_size=32), (data(F, 1, 64), data(u8, 4, 64), scale(4, 2)), "bytes-blocks")


@family.cases("quant_dot")
def quant_dot(name: str) -> Iterable[Case]:
    for a in (dtype.int8, dtype.uint8):
        for b in (dtype.int8, dtype.uint8):
            low = -9 if a.kind == "i" else 0
            x, y = data(a, 4, 7, low=low, high=9), data(b, 7, 5, low=-9 if b.kind == "i" else 0, high=9)
            layouts = LAYOUTS if a is b else LAYOUTS[:1]
            yield Case(make(name), (x, y), f"by-{b}", layouts)
            yield Case(make(name), (x, y, given(2, a), given(3, b)), f"by-{b}-zero-points")
    wide = (data(dtype.int8, 17, 129, low=-128, high=127), data(dtype.int8, 129, 33, low=-128, high=127))
    yield Case(make(name), wide, "full-range")
    yield Case(
        make(name), (data(dtype.int8, 2, 3, 4, low=-9, high=9), data(dtype.int8, 2, 4, 5, low=-9, high=9)), "batched"
    )
    for kind in FP8:
        yield Case(make(name), (data(kind, 4, 7), data(kind, 7, 5)), "fp8")
    for kind in FLOATS[1:3]:
        yield Case(make(name), (data(kind, 17, 40), data(kind, 40, 33)), "half", LAYOUTS)
        yield Case(make(name), (data(kind, 1, 4, 7), data(kind, 3, 7, 5)), "half-batched")
        yield Case(make(name), (data(kind, 4, 7), data(kind, 2, 3, 7, 5)), "half-of-fewer-axes")


@family.cases("quant_convolution")
def quant_convolution(name: str) -> Iterable[Case]:
    for a, b in ((dtype.int8, dtype.int8), (dtype.uint8, dtype.int8), (dtype.uint8, dtype.uint8)):
        x = data(a, 1, 3, 6, 5, low=-99 if a.kind == "i" else 0, high=99)
        w = data(b, 4, 3, 3, 3, low=-99 if b.kind == "i" else 0, high=99)
        yield Case(make(name, padding=(1, 1)), (x, w), f"by-{b}", LAYOUTS if a is b else LAYOUTS[:1])
        yield Case(make(name, padding=(1, 1), stride=(2, 2)), (x, w, given(3, a)), f"by-{b}-zero-point")


@family.cases("pack_int4")
def pack_int4(name: str) -> Iterable[Case]:
    for kind in (dtype.int4, dtype.uint4, dtype.int8, dtype.uint8):
        x = data(kind, 3, 6, low=-8 if kind.kind == "i" else 0, high=7)
        yield Case(make(name), (x,), "last", LAYOUTS[:3])
        yield Case(make(name, axis=0), (data(kind, 4, 3, low=0, high=7),), "first")


@family.cases("unpack_int4")
def unpack_int4(name: str) -> Iterable[Case]:
    for kind in (dtype.int8, dtype.uint8):
        low, high = (-128, 127) if kind.kind == "i" else (0, 255)
        yield Case(make(name), (data(kind, 3, 5, low=low, high=high),), "last", LAYOUTS[:3])
        yield Case(make(name, axis=0), (data(kind, 3, 5, low=low, high=high),), "first")


@family.cases("pack_fp4")
def pack_fp4(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(F, 3, 6, low=-7, high=7),), "", LAYOUTS[:3])


@family.cases("unpack_fp4")
def unpack_fp4(name: str) -> Iterable[Case]:
    for to in (dtype.float8_e4m3fn, F, FLOATS[1]):
        yield Case(make(name, out_type=to), (data(dtype.uint8, 3, 5, low=0, high=255),), f"to-{to}")


@family.cases("unpack_bits")
def unpack_bits(name: str) -> Iterable[Case]:
    for bits in (1, 2, 4, 8):
        yield Case(make(name, bits=bits), (data(dtype.uint8, 3, 5, low=0, high=255),), f"bits{bits}")


@family.cases("capture")
def capture(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(F, 3, 4),), "")
