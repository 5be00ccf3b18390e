"""Strings, audio, tables and tensors that are corrupt or too large; results compared with those of TensorFlow 2.21."""

from __future__ import annotations

import gzip
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import DeviceError, Module, ShapeError
from mgx_core import dtype as dt
from mgx_core.types.memory_limit import limited
from mgx_core.types.shape import Shape
from mgx_tf.flex import _context
from mgx_tf.ops.audio import DecodeWav, Mfcc
from mgx_tf.ops.csv_decoding import DecodeCsv
from mgx_tf.ops.encoding import EncodeWav
from mgx_tf.ops.matrix import Matrix
from mgx_tf.ops.raw_bytes import Decompress
from mgx_tf.ops.sparse_arithmetic import SparsePair
from mgx_tf.ops.sparse_sets import EditDistance
from mgx_tf.ops.string_format import StringFormat


def texts(*words: bytes) -> np.ndarray:
    out = np.empty(len(words), object)
    out[:] = [w.decode("utf-8", "surrogateescape") for w in words]
    return out


@pytest.mark.parametrize(("how", "pack"), [("ZLIB", zlib.compress), ("GZIP", gzip.compress)])
def test_compressed_strings_have_a_limit(how: Any, pack: Any):
    with limited(1 << 20):
        assert Decompress(how=how).compute(texts(pack(b"abc"), pack(b""))).tolist() == ["abc", ""]
        for words in ([pack(bytes(1 << 26))], [pack(bytes(600 << 10))] * 2):
            with pytest.raises(DeviceError, match="limit_bytes"):
                Decompress(how=how).compute(texts(*words))
    for broken in (pack(b"abc")[:-6], b"", b"\xff" + pack(b"abc")):
        with pytest.raises(ShapeError, match=r"compressed string"):
            Decompress(how=how).compute(texts(broken))


def test_members_of_a_file_follow_each_other():
    found = Decompress(how="GZIP").compute(texts(gzip.compress(b"abc") + gzip.compress(b"de")))
    assert found.tolist() == ["abcde"]
    assert Decompress(how="ZLIB").compute(texts(zlib.compress(b"abc") + b"zz")).tolist() == ["abc"]


def wav(channels: int = 1, rate: int = 8000) -> np.ndarray:
    body = (
        b"fmt "
        + struct.pack("<IHHIIHH", 16, 1, channels, rate, 0, 0, 16)
        + b"data"
        + struct.pack("<Ihh", 4, 1 << 14, -1)
    )
    return texts(b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body)


def test_channels_beyond_the_room_are_refused():
    samples, rate = DecodeWav(channels=3).compute(wav())
    assert samples.tolist() == [[0.5] * 3, [-1 / 32768] * 3] and int(rate) == 8000
    for wanted in ({"channels": (1 << 31) - 1}, {"channels": 1 << 20, "samples": 1 << 20}):
        with limited(1 << 20), pytest.raises(DeviceError, match="limit_bytes"):
            DecodeWav(**wanted).compute(wav())


def test_samples_that_are_not_finite():
    samples = np.array([[np.inf], [-np.inf], [np.nan], [3e38]], np.float32)
    found, _ = DecodeWav().compute(EncodeWav().compute(samples, np.array(8000)))
    assert found.tolist() == [[32767 / 32768], [-1], [0], [32767 / 32768]]


def test_sounds_that_do_not_fit_are_errors_of_ours():
    with pytest.raises(ShapeError, match="WAV file"):
        DecodeWav().compute(wav(rate=(1 << 32) - 1))
    for width in (0, 1):
        with pytest.raises(ShapeError, match="at least 2"):
            Mfcc(rate=8000, low=20.0, high=4000.0, bands=4, count=2).compute(np.ones((1, 1, width), np.float32))
    with pytest.raises(ShapeError, match="spectrogram"):
        Mfcc(rate=8000, low=20.0, high=float("inf"), bands=4, count=2).compute(np.ones((1, 1, 9), np.float32))
    with limited(1 << 20), pytest.raises(DeviceError, match="limit_bytes"):
        Mfcc(rate=8000, low=20.0, high=4000.0, bands=1 << 30, count=1 << 30).compute(np.ones((1, 1, 9), np.float32))


def test_tables_that_are_damaged():
    numbers = np.array([0], np.int32), np.array([0], np.int32)
    assert [c.tolist() for c in DecodeCsv().compute(texts(b"1,2", b"3,"), *numbers)] == [[1, 3], [2, 0]]
    cases: list[tuple[bytes, dict[str, Any]]] = [
        (b"1,99999999999", {}), (b"1," + b"9" * 200000, {}), (b"1,2", {"delimiter": ""}), (b"1,2", {"delimiter": "ab"}),
        (b"1,2\n3,4\r5,6", {}),
    ]  # fmt: skip
    for line, options in cases:
        with pytest.raises(ShapeError):
            DecodeCsv(**options).compute(texts(line), *numbers)


@pytest.mark.parametrize("columns", [(-1,), (0, 0), (1, 0), (0, 1)])
def test_columns_rise_from_zero(columns: tuple[int, ...]):
    x, kind = Shape.of(dt.string, (1,)), Shape.of(dt.int32, (1,))
    count = 1 if columns == (0, 1) else len(columns)
    with pytest.raises(ShapeError, match="ascending nonnegative columns"):
        DecodeCsv(columns=columns).infer(x, *[kind] * count)


@pytest.mark.parametrize(
    ("most", "dims", "wanted"),
    [(0, (5,), "[ ...]"), (0, (4, 4, 4), "[\n\n ...]"), (1, (5,), "[0 ... 4]"), (2, (5,), "[0 1 ... 3 4]"), (-5, (2, 2), "[[0 1]\n [2 3]]"),
     (1, (4, 4, 4), "[[[0 ... 3]\n  ...\n  [12 ... 15]]\n\n ...\n\n [[48 ... 51]\n  ...\n  [60 ... 63]]]"),
     (3, (2, 2, 2), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"), (0, (0, 3), "[]")],
)  # fmt: skip
def test_long_tensors_in_texts(most: int, dims: tuple[int, ...], wanted: str):
    x = np.arange(np.prod(dims)).reshape(dims)
    assert str(StringFormat(template="%s", placeholder="%s", most=most).compute(x)) == wanted


def test_equations_with_few_diagonals_need_no_dense_matrix():
    random = np.random.default_rng(0)
    three, right = random.normal(size=(3, 5000)), random.normal(size=(5000, 2))
    with limited(1 << 20):
        found = Matrix(function="TridiagonalSolve").compute(three, right)
        made = three[1, :, None] * found
        made[:-1] += three[0, :-1, None] * found[1:]
        made[1:] += three[2, 1:, None] * found[:-1]
        np.testing.assert_allclose(made, right, atol=1e-8)
    with pytest.raises(ShapeError, match="three diagonals"):
        Matrix(function="TridiagonalSolve").infer(Shape.of(dt.float64, (2, 5)), Shape.of(dt.float64, (5, 1)))
    with pytest.raises(ShapeError, match="3 diagonals"):
        Matrix(function="TridiagonalSolve").compute(three[:2], right)
    with pytest.raises(ShapeError, match="invertible"):
        Matrix(function="TridiagonalSolve").compute(np.zeros((3, 4)), np.ones((4, 1)))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_triangular_matrices_of_bands(lower: bool, adjoint: bool):
    random = np.random.default_rng(1)
    bands, right = random.normal(size=(2, 3, 7)), random.normal(size=(2, 7, 2))
    dense = np.zeros((2, 7, 7))
    for away, row in np.ndindex(3, 7):
        column = row - away if lower else row + away
        if 0 <= column < 7:
            dense[:, row, column] = bands[:, away if lower else 2 - away, row]
    wanted = np.linalg.solve(dense.swapaxes(1, 2) if adjoint else dense, right)
    flags = tuple(name for name, on in (("lower", lower), ("adjoint", adjoint)) if on)
    np.testing.assert_allclose(
        Matrix(function="BandedTriangularSolve", flags=flags).compute(bands, right), wanted, rtol=1e-9
    )


def test_distances_are_found_where_there_are_sequences(monkeypatch: pytest.MonkeyPatch):
    none, dims = (np.zeros((0, 3), np.int64), np.zeros(0, np.int64)), np.array([1 << 14, 1 << 10, 4])
    one = np.array([[5, 7, 0]]), np.array([3])
    calls: list[Any] = []

    plain = EditDistance._distance

    def counted(self: EditDistance, a: list[Any], b: list[Any]) -> float:
        calls.append((a, b))
        return plain(self, a, b)

    monkeypatch.setattr(EditDistance, "_distance", counted)
    found = EditDistance(normalize=True).compute(*one, dims, *none, dims)
    assert found.shape == (1 << 14, 1 << 10) and found[5, 7] == np.inf and len(calls) == 1
    found[5, 7] = 0
    assert not found.any()


@pytest.mark.parametrize(("least", "kept"), [(0.5, [0, 3, 4]), (0.0, [0, 1, 3, 4]), (np.nan, [0, 3, 4])])
def test_a_least_size_holds_for_sums_only(least: float, kept: list[int]):
    f, dims = np.float32, np.array([5])
    a = np.array([[0], [1], [2]]), f([0.1, 0.1, np.nan]), dims
    b = np.array([[1], [2], [3], [4]]), f([0.2, 1, 0.05, np.nan]), dims
    places, values, _ = SparsePair(how="add").compute(*a, *b, f(least))
    sums = dict(enumerate(f([0.1, 0.3, np.nan, 0.05, np.nan])))
    assert places.tolist() == [[k] for k in kept]
    np.testing.assert_allclose(values, [sums[k] for k in kept], rtol=1e-6)


@pytest.mark.parametrize("op", ["RandomUniformInt", "StatelessRandomUniformFullIntV2"])
def test_all_bits_of_random_integers_are_random(op: str, new_graph: Any):
    g = new_graph()
    g.const("shape", [4096], np.int32)
    kind = np.dtype(np.int64)
    if op == "RandomUniformInt":
        g.const("low", -(1 << 62), np.int64)
        g.const("high", 1 << 62, np.int64)
        g.node(op, "y", "shape", "low", "high", Tout=kind, T=np.dtype(np.int32), seed=3, seed2=4)
    else:
        g.const("key", [7], np.uint64)
        g.const("counter", [0, 0], np.uint64)
        g.const("algorithm", 1, np.int32)
        g.node(op, "y", "shape", "key", "counter", "algorithm", dtype=kind, Tshape=np.dtype(np.int32))
    program = mgx.parse_buffer(g.data, "tf")
    program.compile(mgx.get_target("ref"))
    found = np.asarray(program.run({})[0])
    width = 63 if op == "RandomUniformInt" else 64
    assert found.dtype == np.int64 and found.shape == (4096,)
    shares = [((found >> bit) & 1).mean() for bit in range(width)]
    assert min(shares) > 0.45 and max(shares) < 0.55
    assert np.unique(found & 1023).size > 900


def test_variables_of_operators_in_loops_belong_to_the_model():
    """The first Flex operator may be in a loop body."""
    kept: dict[str, Any] = {}
    main = Module("main")
    scope = SimpleNamespace(
        context=SimpleNamespace(main=main),
        shared=lambda key, make: kept.setdefault(key, None) or kept.update({key: make()}) or kept[key],
    )
    found = _context(SimpleNamespace(module=Module("body"), scope=scope, known=mgx_known()))
    assert found.main is main


def mgx_known() -> Any:
    from mgx_core.converting.known import Known

    return Known()
