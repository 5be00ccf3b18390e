"""Generated kernels of single ops, compared with their reference compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_trial import channels_last, generate, run, same, tensor, traits, values

from mgx_core import No, Operation
from mgx_core import dtype as dt
from mgx_core.ops.columns import Col2im
from mgx_core.ops.concat import Concat
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards
from mgx_core.ops.factorization import SolveTriangular
from mgx_core.ops.fill import DynamicRange, EyeLike
from mgx_core.ops.index import Gather, GatherElements, Gathernd, Onehot, Trilu
from mgx_core.ops.kv_cache import ConcatPastPresent
from mgx_core.ops.linear import Det, Dot
from mgx_core.ops.local_response import Lrn
from mgx_core.ops.movement import Contiguous, Reverse, ReverseSequence, Transpose
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.norm import InstanceNorm, LayerNorm, RmsNorm
from mgx_core.ops.packing import UnpackInt4
from mgx_core.ops.pad import FixedPad, Pad
from mgx_core.ops.pooling import MaxPoolIndices, MaxUnpool, Pooling
from mgx_core.ops.ragged import ReduceSlices
from mgx_core.ops.random import RandomNormal, RandomUniform
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.ops.reduce import Argmax, Argmin, ReduceAll, ReduceAny
from mgx_core.ops.resize import Resize
from mgx_core.ops.rotary import GqaRotaryEmbedding, RotaryEmbedding
from mgx_core.ops.scan import PrefixScanProd, PrefixScanSum
from mgx_core.ops.scatter import (
    ScatterAdd,
    ScatterMax,
    ScatterMin,
    ScatterMul,
    ScatterndAdd,
    ScatterndMax,
    ScatterndMin,
    ScatterndMul,
    ScatterndNone,
    ScatterNone,
    TensorScatter,
)
from mgx_core.ops.select import Compress, Nonzero
from mgx_core.ops.slice import ScanSlice, Slice
from mgx_core.ops.softmax import Logsoftmax, Softmax
from mgx_core.ops.topk import Topk
from mgx_gpu_hip.codegen.source import KernelSource, Tensor

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float16")
ALL = ("float32", "float16", "int8", "int64")
waves = pytest.mark.parametrize("wave", [32, 64])


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def some(of: str, *lens: int) -> Array:
    return values(rng(), dt.of(of), lens)


def check(
    op: Operation,
    arrays: Sequence[Array | None],
    wave: int = 32,
    layouts: dict[int, Any] | None = None,
    out: Any = None,
    terms: int = 64,
    tolerance: float | None = None,
) -> KernelSource:
    """Checks that the generated kernel's result equals that of `compute`."""
    layouts = layouts or {}
    ins = [None if a is None else tensor(a.dtype, a.shape, layouts.get(i)) for i, a in enumerate(arrays)]
    wanted = op.evaluate(arrays)
    results = [np.asarray(w) for w in (wanted if isinstance(wanted, tuple) else (wanted,))]
    outs = [tensor(w.dtype, w.shape, out(w.shape) if out else None) for w in results]
    source = generate(op, ins, outs, traits(wave))
    same(run(source, arrays, ins, outs, wave), results, terms, tolerance)
    assert isinstance(source, KernelSource)
    return source


def loose(of: str) -> float:
    return 1e-5 if of == "float32" else 1e-2


# movement
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ALL)
def test_copies_and_windows(of: str) -> None:
    x = some(of, 2, 40, 6, 10)
    last = channels_last(x.shape)
    check(Contiguous(), [x], out=channels_last)
    check(Contiguous(), [x], layouts={0: last})
    check(Transpose(permutation=(2, 0, 3, 1)), [x])
    check(Slice(axes=(1, 3), starts=(3, -1), ends=(30, -9999), steps=(2, -3)), [x])
    check(Slice(axes=(1,), starts=(3,), ends=(30,)), [x], layouts={0: last}, out=channels_last)
    check(Reverse(axes=(1, 3)), [x])
    check(FixedPad(output_lens=(2, 43, 6, 12)), [x])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode: str) -> None:
    x = some("float16", 2, 40, 6, 10)
    check(Pad(pads=(0, 1, 2, 3, 1, -2, 3, 4), mode=mode, value=3.0), [x])  # type: ignore[arg-type]
    check(Pad(pads=(0, 0, 2, 3, 0, 0, 0, 1), mode=mode), [x], layouts={0: channels_last(x.shape)}, out=channels_last)  # type: ignore[arg-type]


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("layout", [None, channels_last])
def test_concat_is_one_launch(axis: int, layout: Any) -> None:
    lens = [[n if i == axis else d for i, d in enumerate((2, 16, 6, 8))] for n in (16, 8, 3, 0)]
    xs = [some("float16", *n) for n in lens]
    layouts = {i: layout(x.shape) for i, x in enumerate(xs)} if layout else None
    assert len(check(Concat(axis=axis), xs, layouts=layouts, out=layout).launches) == 1


@pytest.mark.parametrize("of", ["float16", "int64"])
def test_gathers(of: str) -> None:
    x = some(of, 5, 12, 16)
    r = rng()
    for axis, n in enumerate(x.shape):
        check(Gather(axis=axis), [x, r.integers(-n, n, (3, 4))])
        check(GatherElements(axis=axis), [x, r.integers(-n, n, (4, 4, 4)).astype(np.int32)])
    for b, k in ((0, 1), (0, 3), (1, 2)):
        at = np.stack([r.integers(-x.shape[b + j], x.shape[b + j], (5, 3)) for j in range(k)], -1)
        check(Gathernd(batch_dims=b), [x, at])
    check(Onehot(axis=1, depth=7), [r.integers(-7, 7, (4, 5)), None, some(of, 2)])
    check(ReverseSequence(batch_axis=1, time_axis=0), [x, r.integers(0, 6, 12)])
    check(ScanSlice(axis=1, direction=1), [x, np.array([3])])
    check(Trilu(k=1), [x])
    check(Trilu(upper=False), [x, np.array(-1)])


def test_indices_out_of_range_do_not_leave_the_tensor() -> None:
    x, at = some("float32", 5, 8), np.array([4, 99, -99])
    ins, outs = [tensor("float32", x.shape), tensor("int64", (3,))], [tensor("float32", (3, 8))]
    got = run(generate(Gather(axis=0), ins, outs, traits()), [x, at], ins, outs)
    assert np.isin(got[0], x).all()  # the emulated device would have rejected an address outside


def test_indices_above_all_of_int64_are_not_counted_from_the_end() -> None:
    x, at = some("float32", 5, 8), np.array([4, (1 << 64) - 2, 1 << 63], np.uint64)
    ins, outs = [tensor("float32", x.shape), tensor("uint64", (3,))], [tensor("float32", (3, 8))]
    (got,) = run(generate(Gather(axis=0), ins, outs, traits()), [x, at], ins, outs)
    np.testing.assert_array_equal(got, x[[4, 4, 4]])
    updates = some("float32", 3, 8)
    for skip in (False, True):
        op = ScatterNone(axis=0, skip_out_of_bounds=skip)
        ins = [tensor("float32", x.shape), tensor("uint64", (3, 8)), tensor("float32", (3, 8))]
        places = np.broadcast_to(at[:, None], (3, 8)).copy()
        outs = [tensor("float32", x.shape)]
        (got,) = run(generate(op, ins, outs, traits()), [x, places, updates], ins, outs)
        np.testing.assert_array_equal(got[:4], x[:4])


@pytest.mark.parametrize("of", FLOATS)
@waves
def test_col2im(of: str, wave: int) -> None:
    x = some(of, 2, 3 * 9, 25)
    check(Col2im(image_shape=(9, 9), block_shape=(3, 3), padding=(1, 1, 1, 1), stride=(2, 2)), [x], wave)
    dilated = Col2im(image_shape=(7, 8), block_shape=(2, 3), padding=(0, 1, 2, 0), dilation=(2, 1))
    n = int(np.prod(dilated.counts((7, 8), (2, 3))))
    check(dilated, [some(of, 1, 4 * 6, n)], wave)
    check(Col2im(image_shape=(11,), block_shape=(4,), padding=(1, 2), stride=(3,)), [some(of, 2, 8, 4)], wave)


@pytest.mark.parametrize("of", FLOATS)
def test_scatters(of: str) -> None:
    r, data = rng(), some(of, 5, 6, 7)
    at = np.stack([r.permutation(6)[:3] for _ in range(4)])[:, :, None] + np.zeros((1, 1, 7), int)
    for op in (ScatterNone, ScatterAdd, ScatterMul, ScatterMin, ScatterMax):
        check(op(axis=1), [data, at - 6 * (at % 2), some(of, 4, 3, 7)])
    rows = np.stack([r.permutation(5)[:4], r.permutation(5)[:4]], -1)
    for nd in (ScatterndNone, ScatterndAdd, ScatterndMax):
        check(nd(), [data, rows, some(of, 4, 7)])
    check(ScatterNone(axis=0, skip_out_of_bounds=True), [some(of, 5, 3), np.array([[7, 1, 2]]), some(of, 1, 3)])
    check(TensorScatter(axis=-2), [some(of, 2, 3, 12, 8), some(of, 2, 3, 4, 8), np.array([3, 0])])
    check(ConcatPastPresent(), [some(of, 2, 3, 4, 8), np.array([9, 2], np.int32), some(of, 2, 3, 12, 8)])


@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "float64", "int32"])
def test_scattered_rows_move_in_vectors(of: str) -> None:
    """Several rows per position: narrow floats are combined in float32 and rounded once."""
    r, data, rows = rng(), some(of, 11, 32), some(of, 520, 32)
    ones = np.ones((520, 32)).astype(dt.of(of).numpy)
    at = r.integers(0, 11, (520, 1))
    wide = {"float32": 4, "float64": 2, "int32": 4}
    for op in (ScatterndAdd, ScatterndMul, ScatterndMax, ScatterndMin):
        given = ones if op is ScatterndMul else rows
        narrow = 8 if op in (ScatterndMax, ScatterndMin) else 4
        source = check(op(), [data, at, given], terms=100)
        widths = [int(n) for n in re.findall(r", (\d+)> a = ldv", source.text)]
        assert max(widths) == wide.get(of, narrow)
    check(ScatterndAdd(), [some(of, 11, 31), at, some(of, 520, 31)], terms=100)  # rows of an odd length
    index = np.broadcast_to(at, (520, 32))
    for each in (ScatterAdd, ScatterMax):
        check(each(axis=0), [data, index, rows], layouts={1: (1, 0)}, terms=100)
        check(each(axis=0), [data, np.ascontiguousarray(index), rows], terms=100)


@pytest.mark.parametrize("of", ["float16", "float32"])
def test_zeros_to_scatter_into_are_written_in_vectors(of: str) -> None:
    """They were written one by one, since they are one element, repeated: 22 us for 512 x 8,192."""
    zeros, at = np.zeros((16, 512), dt.of(of).numpy), np.stack([rng().permutation(512)[:8] for _ in range(16)])
    for op in (ScatterNone, ScatterAdd):
        source = check(op(axis=1), [zeros, at, some(of, 16, 8)], layouts={0: (0, 0)})
        assert max(int(n) for n in re.findall(r", (\d+)> b;", source.text)) > 1


@pytest.mark.parametrize("of", ["float16", "bfloat16"])
def test_sums_of_many_updates_go_on_above_the_unit_of_narrow_floats(of: str) -> None:
    narrow = dt.of(of).numpy
    data, at, ones = np.zeros((2, 8), narrow), np.ones((6000, 1), int), np.ones((6000, 8), narrow)
    check(ScatterndAdd(), [data, at, ones], tolerance=0.0)
    check(ScatterAdd(axis=0), [data, np.broadcast_to(at, (6000, 8)).copy(), ones], tolerance=0.0)


def test_scattered_extremes_keep_nan() -> None:
    for of in FLOATS:
        data, rows = some(of, 3, 32), some(of, 300, 32)
        data[0, 3], rows[7, 9], rows[8, 9] = np.nan, np.nan, -np.inf
        at = np.array([[0], [1], [2]] * 100)
        for op in (ScatterndMax, ScatterndMin):
            check(op(), [data, at, rows])


# windows -----------------------------------------------------------------------------------------------------------------

POOLS = [
    dict(lengths=(3, 3), stride=(2, 2), padding=(1, 1)),
    dict(lengths=(3, 2), stride=(2, 2), padding=(0, 1, 1, 0), ceil_mode=True, dilations=(1, 2), lp_order=3),
    dict(lengths=(2, 2), stride=(2, 2), padding_mode="same_upper"),
    dict(lengths=(13, 15)),
    dict(dyn_global=True),
    dict(lengths=(3, 3), stride=(3, 3), ceil_mode=True, padding=(1, 1), count_include_pad=True),
]


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("mode", ["max", "average", "lpnorm"])
def test_pooling(of: str, mode: str) -> None:
    x = some(of, 2, 24, 13, 15)
    for attributes in POOLS:
        op = Pooling(mode=mode, **attributes)  # type: ignore[arg-type]
        check(op, [x], terms=256, tolerance=None if of == "float32" else 5e-3)
        check(op, [x], 64, {0: channels_last(x.shape)}, channels_last, 256, None if of == "float32" else 5e-3)
    for order in (0, 1):
        check(MaxPoolIndices(lengths=(3, 3), stride=(2, 2), padding=(1, 1), storage_order=order), [x])  # type: ignore[arg-type]


@pytest.mark.parametrize("of", ["int8", "uint8"])
def test_maxima_of_bytes_are_compared_in_pairs(of: str) -> None:
    """One by one, bytes took as long as the float16 of twice their size: 19 us for 32 x 64 x 112 x 112 on an H200."""
    t = dt.of(of)
    x = np.random.default_rng(1).integers(int(t.lowest), int(t.highest) + 1, (2, 48, 11, 13)).astype(t.numpy)
    op = Pooling(mode="max", lengths=(3, 3), stride=(2, 2), padding=(1, 1))
    ins = [tensor(of, x.shape, channels_last(x.shape))]
    y = op.compute(x)
    outs = [tensor(of, y.shape, channels_last(y.shape))]
    for sm, packed in ((1, True), (400, False)):  # with few threads each takes two channels
        source = generate(op, ins, outs, traits(sm_count=sm))
        assert isinstance(source, KernelSource) and ("max_pairs" in source.text) is packed
        same(run(source, [x], ins, outs), y)


def test_maxima_of_8_bit_floats_are_compared_in_pairs() -> None:
    """All numbers with all others: signs, zeros, subnormal numbers, and NaN of both signs, which is greater than all."""
    every = np.arange(256, dtype=np.uint8)
    pairs = np.stack(np.meshgrid(every, every, indexing="ij"), -1).reshape(1, 64, 32, 64)
    x = pairs.view(dt.float8_e4m3fn.numpy)
    op = Pooling(mode="max", lengths=(1, 2), stride=(1, 2))
    ins, y = [tensor("float8_e4m3fn", x.shape, channels_last(x.shape))], op.compute(x)
    outs = [tensor("float8_e4m3fn", y.shape, channels_last(y.shape))]
    source = generate(op, ins, outs, traits(sm_count=1))
    assert isinstance(source, KernelSource) and "max_pairs" in source.text
    (got,) = run(source, [x], ins, outs)
    np.testing.assert_array_equal(got.astype(np.float32), y.astype(np.float32))


@pytest.mark.parametrize("of", [*ALL, "bfloat16", "float64"])
@waves
def test_max_unpool(of: str, wave: int) -> None:
    """Positions from pooling are restored, for separate and overlapping windows, on every axis and into larger results."""
    for lens, more in (
        ((2, 3, 8, 6), dict(lengths=(2, 2), stride=(2, 2))),
        ((2, 3, 9, 7), dict(lengths=(3, 3), stride=(2, 2), padding=(1, 1))),
        ((1, 5, 12), dict(lengths=(4,), stride=(4,))),
        ((1, 2, 4, 6, 4), dict(lengths=(2, 3, 2), stride=(2, 3, 2))),
    ):
        found, places = MaxPoolIndices(**more).compute(some(of, *lens))  # type: ignore[arg-type]
        larger = (lens[0] + 1, *(n + a for a, n in enumerate(lens[1:])))
        for shape in ((), lens, larger):
            op = MaxUnpool(output_shape=shape, **more)  # type: ignore[arg-type]
            assert len(check(op, [found, places], wave).launches) == 2
            check(op, [found, places], wave, {0: channels_last(found.shape)}, channels_last)
    check(MaxUnpool(lengths=(2, 2)), [some(of, 0, 3, 2, 2), np.zeros((0, 3, 2, 2), np.int64)])


def test_places_out_of_range_are_held_inside_the_result() -> None:
    x, at = some("float32", 1, 1, 2, 2), np.array([[[[1 << 40, 3], [-99, 5]]]])
    ins, outs = [tensor("float32", x.shape), tensor("int64", at.shape)], [tensor("float32", (1, 1, 5, 5))]
    op = MaxUnpool(lengths=(2, 2), stride=(2, 2), output_shape=(1, 1, 5, 5))
    (got,) = run(generate(op, ins, outs, traits()), [x, at], ins, outs)
    wanted = op.compute(x, np.array([[[[15, 3], [0, 5]]]]))
    np.testing.assert_array_equal(got, wanted)
    smaller = generate(
        MaxUnpool(lengths=(2, 2), stride=(2, 2), output_shape=(1, 1, 3, 5)),
        ins,
        [tensor("float32", (1, 1, 3, 5))],
        traits(),
    )
    assert isinstance(smaller, No) and "for a result of [1, 1, 3, 5]" in smaller.why


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("group", [1, 2, 8])
def test_convolutions(of: str, group: int) -> None:
    x, w = some(of, 2, 8, 6, 7), some(of, 8, 8 // group, 3, 3)
    op = Convolution(group=group, padding=(1, 1), stride=(2, 1), dilation=(1, 2))
    check(op, [x, w], tolerance=loose(of))
    check(op, [x, w], 64, {0: channels_last(x.shape)}, channels_last, tolerance=loose(of))
    back = ConvolutionBackwards(group=group, padding=(1, 1), stride=(2, 1), output_padding=(1, 0))
    check(back, [x, some(of, 8, 3, 3, 3)], tolerance=loose(of))


def test_depthwise_reads_vectors() -> None:
    x, w = some("float16", 2, 16, 9, 9), some("float16", 16, 1, 3, 3)
    op = Convolution(group=16, padding=(1, 1))
    ins = [tensor("float16", x.shape, channels_last(x.shape)), tensor("float16", w.shape, (1, 1, 48, 16))]
    outs = [tensor("float16", x.shape, channels_last(x.shape))]
    source = generate(op, ins, outs, traits(sm_count=1))
    same(run(source, [x, w], ins, outs), op.compute(x, w), tolerance=1e-2)
    assert isinstance(source, KernelSource) and "ldv<half_t, 2>(p1" in source.text


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_resize(mode: str, where: str) -> None:
    attributes: Any = dict(mode=mode, coordinate_transformation_mode=where)
    for of in FLOATS:
        x = some(of, 2, 8, 6, 7)
        check(Resize(sizes=(2, 8, 9, 15), **attributes), [x], 64)
        check(Resize(scales=(1.0, 1.0, 2.0, 0.6), **attributes), [x], 32, {0: channels_last(x.shape)}, channels_last)
        check(Resize(sizes=(2, 8, 3, 4), antialias=mode != "nearest", **attributes), [x])


# orders, scans, selection
# -----------------------------------------------------------------------------------------------


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "int8"])
def test_extremes_and_orders(of: str, wave: int) -> None:
    x = some(of, 3, 200, 5)
    if of != "int8":
        x[0, 3, 0] = np.nan
    for op in (Argmax, Argmin):
        for axis in range(3):
            check(op(axis=axis, select_last_index=axis == 1), [x], wave)
        check(op(axis=1), [some(of, 2, 3000)], wave)
        (launch,) = check(op(axis=1), [some(of, 2, 17001)], wave).launches  # 26 us with 256 threads for lines of 32,000
        assert launch.block[0] == 1024
    for largest in (True, False):
        check(Topk(k=3, axis=1, largest=largest), [x], wave)
        check(Topk(k=5, largest=largest), [some(of, 2, 2000)], wave)
        check(Topk(k=70, largest=largest), [some(of, 2, 300)], wave)


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "int64"])
def test_scans(of: str, wave: int) -> None:
    x, ones = some(of, 3, 700, 2), np.ones((3, 70, 2)).astype(dt.of(of).numpy)
    for exclusive in (False, True):
        for reverse in (False, True):
            attributes = dict(exclusive=exclusive, reverse=reverse)
            for axis in (0, 1):
                check(PrefixScanSum(axis=axis, **attributes), [x], wave)
                check(PrefixScanProd(axis=axis, **attributes), [ones * 1], wave)
            check(PrefixScanSum(axis=1, **attributes), [np.ascontiguousarray(x[:, :, 0])], wave)


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "float64", "uint8", "int64"])
def test_long_scans_are_split(of: str, wave: int) -> None:
    def launches(of_sum: bool, *lens: int, axis: int, **attributes: bool) -> int:
        x = some(of, *lens) if of_sum else np.ones(lens).astype(dt.of(of).numpy)
        op = PrefixScanSum if of_sum else PrefixScanProd
        rounded = 1e-12 if of == "float64" else None  # that of another order of 20488 sums
        return len(check(op(axis=axis, **attributes), [x], wave, terms=1000, tolerance=rounded).launches)

    for exclusive in (False, True):
        for reverse in (False, True):
            attributes = dict(exclusive=exclusive, reverse=reverse)
            assert launches(True, 2, 16385, axis=1, **attributes) == 2  # adjacent in a line, odd
            assert launches(True, 1, 20488, axis=1, **attributes) == 2  # in groups, with a shorter last part
            assert launches(True, 17000, 3, axis=0, **attributes) == 2  # a few adjacent lines
            assert launches(True, 701, 37, axis=0, **attributes) == 3  # many
            assert launches(True, 9, 1200, axis=1, **attributes) == 1  # enough lines
            assert launches(False, 1, 16387, axis=1, **attributes) == (1 if dt.of(of).is_float else 2)


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "int64"])
def test_many_lines_are_scanned_by_waves(of: str, wave: int) -> None:
    """A block of 256 threads scanned each line of 128 elements."""
    for n, attributes in ((65, {}), (128, {"reverse": True}), (300, {"exclusive": True}), (702, {})):
        source = check(PrefixScanSum(axis=1, **attributes), [some(of, 17, n)], wave, terms=n)
        assert source.launches[0].grid[0] == -(-17 * wave // 256) and "__syncthreads" not in source.text


@waves
def test_lines_that_are_adjacent_in_memory_are_scanned_by_adjacent_threads(wave: int) -> None:
    """Running sums of states that a product wrote with its rows innermost took 36 us instead of 4."""
    states, turned = some("float32", 3, 5, 7, 64), (5 * 64 * 7, 64 * 7, 1, 7)
    source = check(PrefixScanSum(axis=1), [states], wave, layouts={0: turned}, out=lambda lens: turned)
    assert "row % 7u" in source.text
    assert "row % 64u" in check(PrefixScanSum(axis=1), [states], wave).text


def test_split_scans_keep_infinities_after_their_position() -> None:
    x = some("float32", 1, 18000)
    x[0, 9500], x[0, 14000] = np.inf, -np.inf
    assert len(check(PrefixScanSum(axis=1), [x], terms=1000).launches) == 2
    zero = np.full((1, 18000), 2, np.float32)
    zero[0, 1000] = 0  # later values remain 0, whatever their product alone would be
    check(PrefixScanProd(axis=1), [zero])


@waves
def test_results_of_unknown_extent(wave: int) -> None:
    x = some("float32", 30, 40)
    x[rng().random(x.shape) < 0.6] = 0
    ins, outs = [tensor("float32", x.shape)], [tensor("int64", (2, 1200)), tensor("int64", (1,))]
    source = generate(Nonzero(), ins, outs, traits(wave))
    found, count = run(source, [x], ins, outs, wave)
    assert isinstance(source, KernelSource) and source.extents == ((0, 1, 1),)
    np.testing.assert_array_equal(found[:, : count[0]], Nonzero().compute(x))
    for axis, m in ((None, 1100), (0, 30), (1, 40)):
        condition = rng().random(m) < 0.3
        op = Compress(axis=axis)
        wanted = op.compute(x, condition)
        ins = [tensor("float32", x.shape), tensor("bool", (m,))]
        outs = [tensor("float32", (m,) if axis is None else (30, 40)), tensor("int64", (1,))]
        got, count = run(generate(op, ins, outs, traits(wave)), [x, condition], ins, outs, wave)
        assert count[0] == condition.sum()
        np.testing.assert_array_equal(np.take(got, range(count[0]), axis or 0), wanted)


@waves
@pytest.mark.parametrize("center", [False, True])
def test_box_choice(center: bool, wave: int) -> None:
    r = rng()
    boxes, scores = r.random((2, 50, 4)).astype(np.float32), r.random((2, 3, 50)).astype(np.float32)
    arrays = [boxes, scores, np.array(7), np.array(0.4, np.float32), np.array(0.2, np.float32)]
    op = Nonmaxsuppression(center_point_box=center)
    wanted = op.compute(*arrays)
    ins = [tensor(a.dtype, a.shape) for a in arrays]
    outs = [tensor("int64", (300, 3)), tensor("int64", (1,))]
    got, count = run(generate(op, ins, outs, traits(wave)), arrays, ins, outs, wave)
    assert count[0] == len(wanted)
    np.testing.assert_array_equal(got[: len(wanted)], wanted)


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("least", [None, 0.3])
def test_choice_among_many_boxes(least: float | None, of: str, wave: int) -> None:
    """More boxes than a block has threads, equal scores, NaN, boxes without area; some selections end early, some are cut off."""
    r = rng()
    corner = r.random((2, 1100, 2))
    boxes = np.concatenate([corner, corner + r.random((2, 1100, 2)) * 0.6], -1).astype(dt.of(of).numpy)
    boxes[0, 5, 2:] = boxes[0, 5, :2]
    scores = (r.integers(0, 40, (2, 2, 1100)) / 40).astype(dt.of(of).numpy)
    scores[1, 1, :1095] = 0
    scores[0, 1, 70], scores[1, 1, 1099] = np.nan, np.nan
    narrow = np.float32
    for most in (0, 9, 1100):
        arrays = [boxes, scores, np.array(most), np.array(0.25, narrow)]
        arrays += [] if least is None else [np.array(least, narrow)]
        op = Nonmaxsuppression()
        wanted = op.compute(*arrays)
        ins = [tensor(a.dtype, a.shape) for a in arrays]
        outs = [tensor("int64", (2 * 2 * 1100, 3)), tensor("int64", (1,))]
        got, count = run(generate(op, ins, outs, traits(wave)), arrays, ins, outs, wave, order="shuffled")
        assert count[0] == len(wanted)
        np.testing.assert_array_equal(got[: len(wanted)], wanted)


# products, layers ------------------------------------------------------------------------------------------------------------


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "int32"])
def test_products(of: str, wave: int) -> None:
    limit = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}.get(of)
    check(Dot(), [some(of, 2, 70, 50), some(of, 2, 50, 90)], wave, tolerance=limit)
    check(Dot(), [some(of, 65, 64), some(of, 64, 72)], wave, {1: (1, 64)}, tolerance=limit)
    check(Dot(), [some(of, 30, 40), some(of, 40, 70)], wave, {1: (1, 41)}, tolerance=limit)
    check(Dot(), [some(of, 3, 64), some(of, 64, 128)], wave, tolerance=limit)


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize(
    ("a", "b", "strides"),
    [
        ((40, 8, 8), (40, 8, 8), {}),
        ((40, 8, 8), (40, 8, 8), {0: (64, 1, 8)}),
        ((40, 8, 8), (40, 8, 8), {1: (64, 1, 8)}),
        ((6, 5, 1, 16), (6, 5, 16, 64), {0: (80, 16, 16, 1)}),
        ((500, 3), (3, 3), {}),
        ((7, 4, 32), (7, 32, 9), {1: (289, 9, 1)}),
    ],
)
def test_products_of_small_matrices(
    a: tuple[int, ...], b: tuple[int, ...], strides: dict[int, tuple[int, ...]], of: str, wave: int
) -> None:
    limit = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}.get(of)
    check(Dot(), [some(of, *a), some(of, *b)], wave, strides, tolerance=limit)


@waves
@pytest.mark.parametrize(("direction", "h"), [("forward", 6), ("reverse", 6), ("bidirectional", 6), ("forward", 520)])
def test_recurrent_layers(direction: Any, h: int, wave: int) -> None:
    """The weights of few units stay in registers, those of more are read at each step."""
    n, s, b, i = 1 + (direction == "bidirectional"), 5, 3, 4
    lens = np.array([5, 2, 3], np.int32)
    for of in FLOATS if h == 6 else ["float32"]:
        limit = loose(of)

        def part(*dims: int, of: str = of) -> Array:
            return (some(of, *dims) * dt.of(of).numpy.type(0.5 if h == 6 else 0.06)).astype(dt.of(of).numpy)

        w, r = part(n, 4 * h, i), part(n, 4 * h, h)
        full = [part(s, b, i), w, r, part(n, 8 * h), lens, part(n, b, h), part(n, b, h), part(n, 3 * h)]
        source = check(Lstm(hidden_size=h, direction=direction), full, wave, tolerance=limit)
        assert len(source.launches) == (2 if h == 6 else s + 1)  # the inputs of all steps first
        check(Lstm(hidden_size=h, direction=direction, input_forget=True, clip=0.5), full[:3], wave, tolerance=limit)
        gru = [part(s, b, i), part(n, 3 * h, i), part(n, 3 * h, h), part(n, 6 * h), None, part(n, b, h)]
        check(Gru(hidden_size=h, direction=direction, linear_before_reset=True), gru, wave, tolerance=limit)
        rnn = [part(s, b, i), part(n, h, i), part(n, h, h), part(n, 2 * h), lens]
        check(Rnn(hidden_size=h, direction=direction), rnn, wave, tolerance=limit)


@waves
@pytest.mark.parametrize("of", ["float16", "bfloat16"])
@pytest.mark.parametrize("sequences", [3, 9])
def test_recurrent_layers_whose_weights_stay_in_registers(of: str, sequences: int, wave: int) -> None:
    s, b, i, h = 4, sequences, 16, 32
    lens = np.resize(np.array([4, 0, 3], np.int32), b)

    def part(*dims: int) -> Array:
        return (some(of, *dims) * dt.of(of).numpy.type(0.25)).astype(dt.of(of).numpy)

    limit = 0.01 if of == "float16" else 0.06
    full = [part(s, b, i), part(2, 4 * h, i), part(2, 4 * h, h), part(2, 8 * h), lens]
    full += [part(2, b, h), part(2, b, h), part(2, 3 * h)]
    gru = [full[0], part(1, 3 * h, i), part(1, 3 * h, h), part(1, 6 * h), None, part(1, b, h)]
    for op, given in (
        (Lstm(hidden_size=h, direction="bidirectional"), full),
        (Gru(hidden_size=h, direction="reverse", linear_before_reset=True), gru),
        (Rnn(hidden_size=h, direction="forward"), [full[0], part(1, h, i), part(1, h, h)]),
    ):
        assert len(check(op, given, wave, tolerance=limit).launches) == 2  # the inputs of all steps first


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "float64", "int32", "int64"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min"])
def test_slices_of_different_lengths(of: str, reduction: str, wave: int) -> None:
    op, kind = ReduceSlices(reduction=reduction), np.int32 if of == "int32" else np.int64
    starts = np.array([0, -60, 4, 9, 7, -3, 2, 0], kind)
    ends = np.array([50, -41, 4, 5, 300, -1, 3, 1], kind)
    if reduction == "mean" and of.startswith("int"):
        ins = [tensor(of, (50, 3)), tensor("int64", (8,)), tensor("int64", (8,))]
        assert "empty" in generate(op, ins, [tensor(of, (8, 3))], traits(wave)).why
        return
    check(op, [some(of, 50, 3), starts, ends], wave)
    check(op, [some(of, 50), starts, ends], wave)
    check(op, [some(of, 50, 2, 5), starts, ends], wave, layouts={0: (1, 250, 50)})
    check(op, [some(of, 0, 3), starts, ends], wave)
    check(op, [some(of, 50, 3), starts[:0], ends[:0]], wave)


@waves
def test_sums_of_long_slices_keep_their_precision(wave: int) -> None:
    x = np.full((1 << 16, 1), np.float32(0.1))
    check(ReduceSlices(), [x, np.array([0]), np.array([1 << 16])], wave, tolerance=2e-6)


@waves
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "float64"])
def test_determinants(of: str, wave: int) -> None:
    check(Det(), [some(of, 2, 3, 4, 4)], wave)
    check(Det(), [some(of, 3, 9, 9)[:, ::-1].copy()], wave, layouts={0: (100, 1, 9)})
    check(Det(), [some(of, 1, 1)], wave)
    check(Det(), [some(of, 3, 0, 0)], wave)
    check(Det(), [some(of, 0, 2, 2)], wave)
    swapped = np.eye(33)[::-1].copy()
    swapped[5, 6] = 2
    singular = np.arange(33.0 * 33).reshape(33, 33) * 0
    check(Det(), [np.stack([swapped, singular]).astype(dt.of(of).numpy)], wave)
    nan = np.zeros((2, 3, 3), dt.of(of).numpy)
    nan[0, 2, 0] = nan[1, 1, 2] = np.nan
    nan[1, [0, 1, 2], [0, 1, 2]] = 1
    with np.errstate(invalid="ignore"):
        check(Det(), [nan], wave)  # 0 if a column has no pivot, otherwise NaN


def test_determinants_of_large_matrices_stay_on_the_host() -> None:
    found = generate(Det(), [tensor("float32", (65, 65))], [tensor("float32", ())], traits())
    assert isinstance(found, No) and "at most 64 rows, got 65" in found.why


def triangles(of: str, *dims: int) -> Array:
    """Returns matrices whose triangular systems have solutions of moderate size, NaN nowhere."""
    n = dims[-1]
    return np.asarray((some("float32", *dims) / (4 * n) + np.eye(n) * 2).astype(dt.of(of).numpy))


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "float64"])
def test_triangular_systems(of: str, upper: bool, unit: bool, wave: int) -> None:
    op = SolveTriangular(upper=upper, unit=unit)
    check(op, [triangles(of, 2, 3, 5, 5), some(of, 2, 3, 5, 3)], wave)
    check(op, [triangles(of, 65, 65), some(of, 65, 37)], wave)
    check(op, [triangles(of, 2, 9, 9), some(of, 2, 9, 1)], wave, layouts={0: (81, 1, 9), 1: (9, 1, 9)})
    check(op, [triangles(of, 1, 1), some(of, 1, 40)], wave)
    check(op, [triangles(of, 3, 0, 0), some(of, 3, 0, 2)], wave)
    check(op, [triangles(of, 2, 2), some(of, 2, 0)], wave)


@waves
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems_read_one_triangle(upper: bool, wave: int) -> None:
    """The other triangle, and a unit diagonal, may hold anything; a zero on the diagonal gives infinity."""
    a = triangles("float32", 12, 12)
    a[np.tril_indices(12) if upper else np.triu_indices(12)] = np.nan
    check(SolveTriangular(upper=upper, unit=True), [a, some("float32", 12, 5)], wave)
    a[np.arange(12), np.arange(12)] = 2
    a[3, 3] = 0
    b = np.ones((12, 5), np.float32)
    check(SolveTriangular(upper=upper), [np.where(np.eye(12) > 0, a, np.where(np.isnan(a), a, 0)), b], wave)


@waves
def test_triangular_systems_of_the_most_rows(wave: int) -> None:
    check(SolveTriangular(), [triangles("float32", 128, 128), some("float32", 128, 20)], wave, terms=128)
    wide = generate(
        SolveTriangular(),
        [tensor("float32", (129, 129)), tensor("float32", (129, 1))],
        [tensor("float32", (129, 1))],
        traits(),
    )
    assert isinstance(wide, No) and "at most 128 rows, got 129" in wide.why
    double = [tensor("float64", (128, n)) for n in (128, 1, 1)]
    large = generate(SolveTriangular(), double[:2], double[2:], traits())
    assert isinstance(large, No) and "bytes of shared memory" in large.why


@waves
@pytest.mark.parametrize("of", FLOATS)
def test_composites_become_one_kernel(of: str, wave: int) -> None:
    x = some(of, 4, 33, 8)
    for op in (Softmax(axis=1), Softmax(axis=-1), Logsoftmax(axis=1)):
        assert len(check(op, [x], wave).launches) == 1
    check(LayerNorm(), [x, some(of, 8), some(of, 8)], wave)
    check(RmsNorm(), [x, some(of, 8)], wave)
    check(InstanceNorm(), [x, some(of, 33), some(of, 33)], wave)
    check(Lrn(size=3), [x], wave)
    for any_all in (ReduceAny, ReduceAll):
        check(any_all(axes=(1,)), [x > 0], wave)


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("of", ["float32", "float16", "bool", "int64", "uint8"])
@pytest.mark.parametrize("op", [ReduceAny, ReduceAll])
def test_logical_reductions(op: Any, of: str, wave: int) -> None:
    zeros, ones = (np.full((2, 20000), n).astype(dt.of(of).numpy) for n in (0, 1))
    zeros[1, 17777], ones[1, 17777] = 1, 0
    for x in (zeros, ones):
        source = check(op(axes=(1,)), [x], wave)
        assert len(source.launches) == 2  # long rows are split
        check(op(axes=(0, 1)), [x], wave)
    check(op(axes=(0,)), [zeros.reshape(2500, 16)], wave)
    check(op(axes=(1,)), [zeros[:, 17770:17779]], wave)
    check(op(axes=(0, 2)), [zeros[:, 17700:17820].reshape(4, 5, 12)], wave)
    check(op(axes=(1,)), [zeros[:, :0]], wave)
    if dt.of(of).is_float:
        nan = np.zeros((2, 300), dt.of(of).numpy)
        nan[0, 7], nan[1, 8] = np.nan, -0.0
        check(op(axes=(1,)), [nan], wave)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotations(interleaved: bool) -> None:
    for of in FLOATS:
        x, cos, sin = some(of, 2, 3, 5, 12), some(of, 20, 4), some(of, 20, 4)[::-1].copy()
        op = RotaryEmbedding(interleaved=interleaved)
        check(op, [x, cos, sin, rng().integers(0, 20, (2, 5))])
        check(op, [x, cos, sin, np.array([3])])
        check(op, [x, some(of, 2, 5, 6), some(of, 2, 5, 6)])
        check(GqaRotaryEmbedding(interleaved=interleaved), [x, np.array([9, 3], np.int32), cos, sin])


@pytest.mark.parametrize("of", ["int8", "uint8"])
def test_unpacked_codes(of: str) -> None:
    x = rng().integers(0, 256, (3, 40, 16)).astype(np.uint8).view(of)
    for axis in (0, 1, -1):
        check(UnpackInt4(axis=axis), [x])
    check(UnpackInt4(axis=1), [x[0]], layouts={0: [1, 40]})
    check(UnpackInt4(), [np.tile(x, (1, 32, 64))])


def test_constants() -> None:
    check(DynamicRange(length=9), [np.array(2), np.array(20), np.array(2)])
    check(EyeLike(k=1), [some("float32", 4, 6)])


def test_random_numbers_have_their_distribution() -> None:
    y = tensor("float32", (40, 100))
    for op, mean, deviation in ((RandomUniform(), 0.5, 12**-0.5), (RandomNormal(), 0.0, 1.0)):
        ins: list[Tensor | None] = [tensor("int64", (1,)), y]
        arrays = [np.array([5]), np.zeros((40, 100), np.float32)]
        first = run(generate(op, ins, [y], traits()), arrays, ins, [y])[0]
        assert abs(first.mean() - mean) < 0.06 and abs(first.std() - deviation) < 0.05
        other = run(generate(op, ins, [y], traits()), [np.array([6]), arrays[1]], ins, [y])[0]
        assert (first != other).mean() > 0.99
        np.testing.assert_array_equal(first, run(generate(op, ins, [y], traits()), arrays, ins, [y])[0])


def test_ops_without_kernel_report_the_reasons() -> None:
    x = Tensor(dt.complex64, (4, 4), (4, 1))
    found = generate(Softmax(), [x], [x], traits())
    assert isinstance(found, No) and "complex numbers" in found.why
    topk = generate(
        Topk(),
        [tensor("float32", (4,)), tensor("int64", (1,))],
        [tensor("float32", (1,)), tensor("int64", (1,))],
        traits(),
    )
    assert isinstance(topk, No) and "run time" in topk.why
