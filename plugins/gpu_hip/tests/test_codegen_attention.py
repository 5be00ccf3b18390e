"""Attention kernels, compared with the op's reference, from ops and from fused groups."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from kernel_trial import generate, run, same, tensor, traits, values

from mgx_core import Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.attention import Attention
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Add, Clip, Div, Mul, Nearbyint
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.softmax import Softmax
from mgx_core.passes.fuse_attention import FuseAttention
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.attention import attention_microseconds
from mgx_gpu_hip.codegen.attention_pattern import from_op
from mgx_gpu_hip.codegen.extents import SymbolicInt
from mgx_gpu_hip.codegen.source import DeviceTraits, KernelSource, Tensor
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.compile.source import signature

LIMITS = {"float16": 5e-3, "bfloat16": 4e-2, "float32": 2e-5}
SIZES = {
    "grouped": (1, 2, 1, 37, 70, 64, 64),
    "odd": (1, 2, 1, 20, 33, 24, 40),
    "no vectors": (1, 1, 1, 20, 33, 13, 9),
    "short vectors": (1, 2, 1, 20, 33, 36, 22),
    "wide": (1, 1, 1, 20, 70, 128, 128),
    "one query": (2, 4, 1, 1, 300, 64, 64),
    "few queries": (1, 2, 2, 3, 77, 32, 32),
    "one query of many heads": (3, 90, 1, 1, 100, 64, 64),
}


def beside(b: int, h: int, s: int, d: int) -> tuple[int, int, int, int]:
    """Returns the strides of [b, h, s, d] stored as [b, s, h, d]."""
    return s * h * d, d, h * d, 1


@pytest.mark.pairs
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.parametrize("size", SIZES)
def test_attention(size: str, of: str, wave: int) -> None:
    b, h, g, s, t, d, e = SIZES[size]
    rng = np.random.default_rng(3)
    kind = dt.of(of)
    q, k, v = (values(rng, kind, n) for n in ((b, h, s, d), (b, g, t, d), (b, g, t, e)))
    some = rng.random((s, t)) < 0.7
    some[0] = False  # a query without keys
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, None),
        (dict(causal=True, offset=t - s), values(rng, kind, (b, 1, s, t))),
        (dict(softcap=2.0, left_window_size=9), some),
    ]
    for attributes, mask in cases:
        arrays = [q, k, v, *([] if mask is None else [mask])]
        ins = [tensor(of, q.shape, beside(*q.shape)), tensor(of, k.shape), tensor(of, v.shape, beside(*v.shape))]
        ins += [] if mask is None else [tensor(mask.dtype, mask.shape)]
        outs = [tensor(of, (b, h, s, e), beside(b, h, s, e))]
        op = Attention(**attributes)
        got = run(generate(op, ins, outs, traits(wave)), arrays, ins, outs, wave)
        same(got, op.compute(*arrays), tolerance=LIMITS[of])


def declared(text: str) -> int:
    """Returns the bytes of the shared arrays of half_t that a kernel declares."""
    found = re.findall(r"SHARED\(half_t, \w+, ((?:\[\d+\])+)\)", text)
    return sum(2 * math.prod(map(int, re.findall(r"\d+", dims))) for dims in found)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("case", ["causal", "mask", "one tile", "rows apart", "more than a kernel may declare"])
def test_queries_in_memory_of_their_own(case: str, wave: int) -> None:
    b, h, s, d, e = 2, 2, 70, 64, 48
    if case == "more than a kernel may declare":
        b, d, e = 1, 96, 96
    t = 40 if case == "one tile" else 150
    rng, kind = np.random.default_rng(9), dt.of("float16")
    q, k, v = (values(rng, kind, n) for n in ((b, h, s, d), (b, h, t, d), (b, h, t, e)))
    some = rng.random((s, t)) < 0.7
    some[3] = False
    arrays = [q, k, v, *([some] if case == "mask" else [])]
    op = Attention(causal=case == "causal", offset=-2) if case == "causal" else Attention()
    ins = [tensor("float16", a.shape, beside(*a.shape) if a.ndim == 4 else None) for a in arrays[:3]]
    ins += [tensor("bool", some.shape)] if case == "mask" else []
    lens = (b, h, s, e)
    outs = [
        tensor("float16", lens, (h * s * (e + 1), s * (e + 1), e + 1, 1) if case == "rows apart" else beside(*lens))
    ]
    source = generate(op, ins, outs, traits(wave, 1)._replace(shared_most=232448))
    assert isinstance(source, KernelSource) and not re.search(r"half_t\* const queries = keys", source.text)
    assert declared(source.text) <= 49152 and (source.shared_bytes > 0) == (d == 96)
    assert ("half_t* const own" in source.text) == (case != "rows apart")
    same(run(source, arrays, ins, outs, wave), op.compute(*arrays), tolerance=LIMITS["float16"])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("case", ["causal", "mask", "rows apart", "odd heads", "more tiles than waves"])
def test_waves_that_share_the_keys_of_a_block(case: str, wave: int) -> None:
    b, h, s, t, d, e = 1, 2, 37, 150, 64, 48
    if case == "odd heads":
        d, e = 13, 9
    if case == "more tiles than waves":
        t = 600
    rng, kind = np.random.default_rng(9), dt.of("float16")
    q, k, v = (values(rng, kind, n) for n in ((b, h, s, d), (b, h, t, d), (b, h, t, e)))
    some = rng.random((s, t)) < 0.7
    some[3] = False
    some[5, :128] = False  # two waves have no unmasked keys
    arrays = [q, k, v, *([some] if case == "mask" else [])]
    op = Attention(causal=True, offset=-2) if case == "causal" else Attention()
    ins = [tensor("float16", a.shape, beside(*a.shape)) for a in arrays[:3]]
    ins += [tensor("bool", some.shape)] if case == "mask" else []
    lens = (b, h, s, e)
    apart = (h * s * (e + 1), s * (e + 1), e + 1, 1)
    outs = [tensor("float16", lens, apart if case == "rows apart" else beside(*lens))]
    room, most = (232448, 4) if wave == 32 else (65536, 3)
    source = generate(op, ins, outs, traits(wave, 100)._replace(shared_most=room))
    assert isinstance(source, KernelSource) and source.launches[0].block[0] == wave * min(most, -(-t // 64))
    same(run(source, arrays, ins, outs, wave), op.compute(*arrays), tolerance=LIMITS["float16"])


GROUPED = {
    "tiles of queries": ("float16", 2, 2, 300, 197),
    "whole tiles of keys": ("bfloat16", 2, 1, 130, 256),
    "a mask": ("float16", 2, 1, 69, 150),
    "one tile": ("bfloat16", 9, 1, 17, 16),
    "fewer tiles in the last block": ("float16", 3, 1, 150, 33),
    "tiles of fewer keys": ("float16", 2, 1, 40, 300),
}


def warpgroup_case(case: str) -> tuple[list[Any], list[Tensor], list[Tensor]]:
    """Returns operands of an `attention` op, their tensors, and the result's."""
    of, b, h, s, t = GROUPED[case]
    rng, kind = np.random.default_rng(9), dt.of(of)
    arrays: list[Any] = [values(rng, kind, (b, h, n, 64)) for n in (s, t, t)]
    ins = [tensor(of, a.shape, beside(*a.shape)) for a in arrays]
    if case == "a mask":
        some = rng.random((s, t)) < 0.7
        some[3] = False
        arrays, ins = [*arrays, some], [*ins, tensor("bool", some.shape)]
    return arrays, ins, [tensor(of, (b, h, s, 64), beside(b, h, s, 64))]


@pytest.mark.parametrize("case", GROUPED)
def test_warpgroups_that_keep_the_keys_of_a_head(case: str) -> None:
    arrays, ins, outs = warpgroup_case(case)
    units = 2 if case == "fewer tiles in the last block" else 1
    source = generate(Attention(), ins, outs, traits(32, units)._replace(shared_most=232448))
    assert isinstance(source, KernelSource) and "group_mma_rows" in source.text
    same(run(source, arrays, ins, outs), Attention().compute(*arrays), tolerance=LIMITS[GROUPED[case][0]])


def test_blocks_of_warpgroups_have_constant_sizes_where_the_batch_is_symbolic() -> None:
    """The number of tiles of a block, and with it the size of shared memory, followed the batch at run time."""
    texts = []
    for batch in (35, 70, 132, 200):
        x = tensor("float16", (SymbolicInt.symbol("b", batch), 2, 150, 64))
        source = generate(Attention(), [x, x, x], [x], traits(32, 132)._replace(shared_most=232448))
        assert isinstance(source, KernelSource) and "group_mma_rows" in source.text
        assert type(source.shared_bytes) is int
        texts.append(source.text)
    assert texts[1] == texts[2] == texts[3] and texts[0] != texts[1]  # one tile, or two


@pytest.mark.parametrize("case", ["tiles of queries", "whole tiles of keys"])
def test_warpgroups_have_code(case: str) -> None:
    try:
        compiler = compiler_for("sm_90")
    except DeviceError as why:
        pytest.skip(str(why))
    _, ins, outs = warpgroup_case(case)
    source = generate(Attention(), ins, outs, traits(32, 1)._replace(shared_most=232448))
    assert isinstance(source, KernelSource)
    assert build([source], "sm_90", compiler=compiler)[0].image[:4] == b"\x7fELF"


@pytest.mark.parametrize(("arch", "launches"), [("sm_90", 1), ("sm_80", 2)])
def test_blocks_of_a_cluster_merge_their_sums(arch: str, launches: int) -> None:
    ins = [tensor("float16", (1, 32, n, 64)) for n in (1, 1025, 1025)]
    source = generate(Attention(), ins, [tensor("float16", (1, 32, 1, 64))], DeviceTraits(arch=arch))
    assert isinstance(source, KernelSource) and len(source.launches) == launches
    assert ("CLUSTER(8)" in source.text) == (launches == 1)
    if launches == 1:
        q, k, v = (values(np.random.default_rng(3), dt.float16, x.lens) for x in ins)
        got = run(source, [q, k, v], ins, [tensor("float16", (1, 32, 1, 64))], order="shuffled")
        same(got, Attention().compute(q, k, v), tolerance=LIMITS["float16"])
    assert signature(source.text, source.launches[0].entry)[0].name == "p0"
    try:
        compiler = compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    assert build([source], arch, compiler=compiler)[0].image[:4] == b"\x7fELF"


@pytest.mark.parametrize("why", ["architecture", "shared memory", "heads of 32", "keys by columns", "causal"])
def test_warpgroups_decline(why: str) -> None:
    d = 32 if why == "heads of 32" else 64
    lens = (4, 2, 150, d)
    ins = [tensor("float16", lens)] * 3
    if why == "keys by columns":
        ins[1] = tensor("float16", lens, (2 * 152 * d, 152 * d, 1, 152))
    device = traits(32, 1)._replace(shared_most=65536 if why == "shared memory" else 232448)
    device = device._replace(arch="sm_80") if why == "architecture" else device
    op, out = Attention(causal=why == "causal"), tensor("float16", lens)
    source = generate(op, ins, [out], device)
    assert isinstance(source, KernelSource) and "group_mma" not in source.text
    pattern = from_op(op, ins, out)
    assert not isinstance(pattern, No) and attention_microseconds(pattern, device) == 5.5 + source.flops / 9e7


@pytest.mark.parametrize(
    ("images", "tokens", "measured"), [(32, 197, 21.8), (32, 128, 9.5), (8, 128, 4.9), (64, 197, 40.7)]
)
def test_the_estimate_is_close_to_measurements_on_an_h200(images: int, tokens: int, measured: float) -> None:
    x = tensor("float16", (images, 12, tokens, 64))
    pattern = from_op(Attention(), [x, x, x], x)
    assert not isinstance(pattern, No)
    estimated = attention_microseconds(pattern, traits(32, 132)._replace(shared_most=232448))
    assert estimated == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("keys", [77, 300])
def test_an_infinite_value_of_the_last_key_stays_infinite(keys: int) -> None:
    """Also if the number of keys is not a multiple of those loaded at once."""
    rng = np.random.default_rng(3)
    q, k, v = (values(rng, dt.float32, n) for n in ((1, 2, 1, 64), (1, 1, keys, 64), (1, 1, keys, 64)))
    v[0, 0, -1, 5] = np.inf
    ins, outs = [tensor("float32", x.shape) for x in (q, k, v)], [tensor("float32", q.shape)]
    got = run(generate(Attention(), ins, outs, traits(32)), [q, k, v], ins, outs, 32)
    same(got, Attention().compute(q, k, v), tolerance=LIMITS["float32"])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(("queries", "block"), [(8, 16), (20, 32), (40, 64), (70, 64)])
def test_blocks_of_float32_hold_about_as_many_queries_as_there_are(queries: int, block: int, wave: int) -> None:
    rng = np.random.default_rng(4)
    q, k, v = (values(rng, dt.float32, (2, 1, n, 64)) for n in (queries, 50, 50))
    ins, outs = [tensor("float32", x.shape) for x in (q, k, v)], [tensor("float32", q.shape)]
    source = generate(Attention(), ins, outs, traits(wave))
    assert isinstance(source, KernelSource) and source.launches[0].grid == (-(-queries // block), 2, 1)
    assert f"first = blockIdx.x * {block}u" in source.text
    same(run(source, [q, k, v], ins, outs, wave), Attention().compute(q, k, v), tolerance=LIMITS["float32"])


FEW_TO_TILES = {
    "few": (1, 4, 2, 1, 300, 64, 64),
    "tiles": (1, 4, 2, 20, 90, 64, 64),
    "no vectors": (1, 4, 2, 20, 33, 13, 9),
}


@pytest.mark.parametrize("mask", ["none", "closed", "added"])
@pytest.mark.parametrize("of", ["float16", "float32"])
@pytest.mark.parametrize("size", FEW_TO_TILES)
def test_scores_that_are_nan_make_their_row_nan(size: str, of: str, mask: str) -> None:
    """And rows without keys remain zero, whatever their scores."""
    b, h, g, s, t, d, e = FEW_TO_TILES[size]
    rng = np.random.default_rng(3)
    kind = dt.of(of)
    q, k, v = (values(rng, kind, n) for n in ((b, h, s, d), (b, g, t, d), (b, g, t, e)))
    k[0, 0, 5] = np.nan  # read by the first two heads
    k[0, 1, 7] = np.inf  # scores of both signs
    arrays = [q, k, v]
    if mask != "none":
        some = rng.random((1, h, s, t)) < 0.6
        some[0, 0, :, 5], some[0, 1, :, 5], some[0, 3, 0] = False, True, False
        added = np.where(some, 0, -np.inf).astype(kind.numpy)
        arrays.append(some if mask == "closed" else added)
    ins, outs = [tensor(x.dtype, x.shape) for x in arrays], [tensor(of, (b, h, s, e))]
    with np.errstate(invalid="ignore"):
        wanted = Attention().compute(*arrays)
    assert np.isnan(wanted).any() and (mask == "none" or not wanted[0, 3, 0].any())
    same(run(generate(Attention(), ins, outs, traits(32)), arrays, ins, outs, 32), wanted, tolerance=LIMITS[of])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("units", [1, 132], ids=["tiles", "split"])
@pytest.mark.parametrize("size", FEW_TO_TILES)
def test_masks_may_add_the_lowest_number(size: str, units: int, wave: int) -> None:
    """Times log2(e) it is infinite: tiles of keys that are all masked for a query gave NaN or infinity."""
    b, h, g, s, t, d, e = FEW_TO_TILES[size]
    rng, kind = np.random.default_rng(3), dt.bfloat16
    q, k, v = (values(rng, kind, n) for n in ((b, h, s, d), (b, g, t, d), (b, g, t, e)))
    added = np.zeros((1, h, s, t), np.float32)
    added[0, 0, :, :-1] = added[0, 1, :, 1:] = added[0, 2, 0] = kind.lowest
    arrays = [q, k, v, added.astype(kind.numpy)]
    ins, outs = [tensor(dt.of(x.dtype), x.shape) for x in arrays], [tensor(kind, (b, h, s, e))]
    wanted = Attention().compute(*arrays)
    got = run(generate(Attention(), ins, outs, traits(wave, units)), arrays, ins, outs, wave)
    same(got, wanted, tolerance=LIMITS["bfloat16"])


@pytest.mark.parametrize("of", ["float16", "float32"])
@pytest.mark.parametrize("size", FEW_TO_TILES)
def test_keys_after_a_length_are_not_read(size: str, of: str) -> None:
    """A cache's unwritten entries may have any value."""
    h, g, s, t, d, e = FEW_TO_TILES[size][1:]
    rng = np.random.default_rng(3)
    kind = dt.of(of)
    q, k, v = (values(rng, kind, n) for n in ((3, h, s, d), (3, g, t, d), (3, g, t, e)))
    lengths = np.asarray([t, 21, 0], np.int32)
    for i, n in enumerate(lengths):
        k[i, :, n:], v[i, :, n:] = np.nan, np.inf
    arrays: list[Any] = [q, k, v, None, lengths]
    ins = [None if x is None else tensor(x.dtype, x.shape) for x in arrays]
    outs = [tensor(of, (3, h, s, e))]
    for op in (Attention(), Attention(causal=True, offset=3), Attention(causal=True, left_window_size=6)):
        with np.errstate(invalid="ignore"):
            wanted = op.compute(*arrays)
        assert np.isfinite(wanted).all() and not wanted[2].any()
        same(run(generate(op, ins, outs, traits(32)), arrays, ins, outs, 32), wanted, tolerance=LIMITS[of])


@pytest.mark.pairs
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [(40, 32), (150, 64)])
@pytest.mark.parametrize("of", ["float16", "float32"])
def test_fused_group(of: str, size: tuple[int, int], masked: bool) -> None:
    b, h, (s, d) = 2, 3, size
    kind = dt.of(of)
    module = Module("main")
    q, k, v = (module.add_parameter(n, Shape.of(kind, (b, s, h * d))) for n in "qkv")
    mask = module.add_parameter("mask", Shape.of(kind, (b, 1, 1, s)))

    def heads(x: Any, order: tuple[int, ...]) -> Any:
        return module.add(Transpose(permutation=order), module.add(Reshape(dims=(b, s, h, d)), x))

    wide = Multibroadcast(out_lens=(b, h, s, s))
    scores = module.add(Dot(), heads(q, (0, 2, 1, 3)), heads(k, (0, 2, 3, 1)))
    scale = module.add(wide, module.add_literal(np.asarray(0.177, kind.numpy)))
    scores = module.add(Mul(), scores, scale)
    scores = module.add(Add(), scores, module.add(wide, mask)) if masked else scores
    out = module.add(Dot(), module.add(Softmax(axis=-1), scores), heads(v, (0, 2, 1, 3)))
    module.add_return([module.add(Reshape(dims=(b, s, h * d)), module.add(Transpose(permutation=(0, 2, 1, 3)), out))])
    rng = np.random.default_rng(5)
    arrays = [values(rng, kind, (b, s, h * d)) for _ in range(3)] + [values(rng, kind, (b, 1, 1, s))]
    wanted = Interpreter().run(module, arrays)
    assert FuseAttention().apply(module)
    group = next(i for i in module if i.op.name == "group")
    known = dict(zip(module.parameters.values(), arrays, strict=True))
    Interpreter(lambda ins, value: known.__setitem__(ins, value)).run(module, arrays)
    packed = row_major((b, s, h, d))
    ins = []
    for i in group.inputs:
        order = getattr(i.op, "permutation", ())
        ins.append(tensor(of, i.shape.lens(), [packed[a] for a in order] if order else None))
    outs = [tensor(of, (b, s, h * d))]
    source = generate(group.op, ins, outs, traits()._replace(shared_most=232448), group.modules)
    assert isinstance(source, KernelSource) and len(source.launches) == 1
    assert ("group_mma_rows" in source.text) == (of == "float16" and d == 64)
    same(run(source, [known[i] for i in group.inputs], ins, outs), wanted, tolerance=LIMITS[of])


ROUNDED = {
    "tiles": (2, 70, 32, 100),
    "warpgroups": (2, 70, 64, 1),
    "vectors": (2, 70, 48, 1),
    "shared keys": (1, 37, 64, 100),
    "odd heads": (1, 37, 9, 100),
    "few queries": (2, 3, 64, 1),
    "parts of keys": (1, 1, 64, 100),
}


WAYS = {
    "numbers first": (0.0, dt.int8),
    "a row of channels behind": (3.0, dt.uint8),
    "8-bit floats": (0.0, dt.float8_e4m3fn),
}


def steps_apart(got: Any, wanted: Any) -> Any:
    """Returns differences between bytes; of 8-bit floats, in units of their spacing, or that of 1 near 0."""
    x, y = got.astype(np.float64), wanted.astype(np.float64)
    return np.abs(x - y) / (1.0 if wanted.dtype.kind in "iu" else np.maximum(np.abs(y), 1) / 8)


@pytest.mark.pairs
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of", ["float16", "float32"])
@pytest.mark.parametrize("size", ROUNDED)
def test_bytes_made_of_the_result(size: str, of: str, way: str, wave: int) -> None:
    """Conversions of a result to bytes run in its kernel, before a transpose or, with a row of channels, after it."""
    b, s, d, units = ROUNDED[size]
    h, t, kind = 3, 150, dt.of(of)
    zero, to = WAYS[way]
    module = Module("main")
    q, k, v = (module.add_parameter(n, Shape.of(kind, (b, x, h * d))) for n, x in (("q", s), ("k", t), ("v", t)))
    row = module.add_parameter("row", Shape.of(kind, (h * d,)))

    def heads(x: Any, rows: int, order: tuple[int, ...]) -> Any:
        return module.add(Transpose(permutation=order), module.add(Reshape(dims=(b, rows, h, d)), x))

    def number(x: float, like: Any) -> Any:
        wide = Multibroadcast(out_lens=like.shape.dims)
        return module.add(wide, module.add_literal(np.asarray(x, like.shape.dtype.numpy)))

    def bytes_of(x: Any) -> Any:
        x = module.add(Convert(target_type=dt.float32), x)
        x = module.add(Div(), x, number(0.01, x))
        x = module.add(Add(), module.add(Nearbyint(), x), number(zero, x)) if to.is_integer else x
        return module.add(Convert(target_type=to), module.add(Clip(), x, number(to.lowest, x), number(to.highest, x)))

    def together(x: Any) -> Any:
        return module.add(Reshape(dims=(b, s, h * d)), module.add(Transpose(permutation=(0, 2, 1, 3)), x))

    scores = module.add(Dot(), heads(q, s, (0, 2, 1, 3)), heads(k, t, (0, 2, 3, 1)))
    out = module.add(Dot(), module.add(Softmax(axis=-1), scores), heads(v, t, (0, 2, 1, 3)))
    if way != "a row of channels behind":
        made = together(bytes_of(out))
    else:
        made = together(out)
        made = bytes_of(module.add(Mul(), made, module.add(Multibroadcast(out_lens=made.shape.dims), row)))
    module.add_return([made])
    rng = np.random.default_rng(5)
    arrays = [values(rng, kind, p.shape.lens()) for p in (q, k, v, row)]
    arrays[0] = (arrays[0].astype(np.float32) / 4).astype(kind.numpy)  # scores of similar size
    (wanted,) = Interpreter().run(module, arrays)
    assert FuseAttention(rounds=True).apply(module)
    group = next(i for i in module if i.op.name == "group")
    assert group.shape.dtype is to and module.outputs[0] is group
    known = dict(zip(module.parameters.values(), arrays, strict=True))
    Interpreter(lambda ins, value: known.__setitem__(ins, value)).run(module, arrays)
    ins = []
    for i in group.inputs:
        order = getattr(i.op, "permutation", ())
        packed = row_major(i.inputs[0].shape.lens()) if order else ()
        ins.append(tensor(of, i.shape.lens(), [packed[a] for a in order] if order else None))
    outs = [tensor(to.name, (b, s, h * d))]
    device = traits(wave, units)._replace(shared_most=232448 if wave == 32 else 65536)
    source = generate(group.op, ins, outs, device, group.modules)
    assert isinstance(source, KernelSource), source
    (got,) = run(source, [known[i] for i in group.inputs], ins, outs, wave)
    apart = steps_apart(np.asarray(got), wanted)
    assert (
        len(np.unique(wanted)) > 20 and apart.max() <= 1 and (apart > 0.5).mean() < (0.1 if of == "float16" else 0.002)
    )


def test_refusals_give_reasons() -> None:
    x = tensor("float64", (1, 1, 4, 8))
    assert "float64" in str(generate(Attention(), [x, x, x], [x], traits()))
    y = tensor("float32", (1, 1, 4, 8))
    sink = [y, y, y, None, None, None, tensor("float32", (1,))]
    assert isinstance(generate(Attention(), sink, [y], traits()), No)


@pytest.mark.parametrize("most", [49152, 65536, 232448])
@pytest.mark.parametrize("heads", [(160, 160), (192, 64), (256, 256), (256, 64)])
def test_large_heads_do_not_exceed_shared_memory(heads: tuple[int, int], most: int) -> None:
    """The emulated device rejects kernels that declare more than CUDA or AMD's devices allow."""
    (d, e), wave = heads, 64 if most == 65536 else 32
    rng = np.random.default_rng(4)
    arrays = [values(rng, dt.float16, (1, 2, n, size)) for n, size in ((66, d), (35, d), (35, e))]
    ins, outs = [tensor("float16", x.shape) for x in arrays], [tensor("float16", (1, 2, 66, e))]
    device = traits(wave)._replace(shared_bytes=min(most, 65536 if wave == 64 else 49152), shared_most=most)
    source = generate(Attention(), ins, outs, device)
    assert isinstance(source, KernelSource) and source.shared_bytes <= most
    same(run(source, arrays, ins, outs, wave), Attention().evaluate(arrays), tolerance=LIMITS["float16"])


def test_sizes_of_asked_memory_are_numbers_where_heads_are_symbolic() -> None:
    """NVIDIA's and AMD's compilers reject arrays whose size is an argument; the host's accepts them."""
    lens = (1, 2, 66, SymbolicInt.symbol("d", 256))
    x = Tensor(dt.float16, lens, tuple(row_major(lens)))
    source = generate(Attention(), [x, x, x], [x], traits()._replace(shared_most=232448))
    assert isinstance(source, KernelSource) and source.shared_bytes > 49152
    found = re.findall(r"\(\*const keys\)\[(\w+)\]", source.text)
    assert len(found) == 1 and found[0].isdigit()
