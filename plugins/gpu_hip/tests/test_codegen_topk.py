"""Top-k: ranks by counting, selection by a wave, sorting in one block, and merging of sorted runs."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_trial import generate, run, tensor, traits
from opened_program import opened

import mgx_core as mgx
from mgx_core.ops.topk import Topk
from mgx_core.types import dtype as dt
from mgx_core.types.dim import symbol
from mgx_gpu_hip.codegen import topk
from mgx_gpu_hip.codegen.source import KernelSource
from mgx_gpu_hip.target import GpuTarget

waves = pytest.mark.parametrize("wave", [32, 64])


def line(of: str, *lens: int) -> np.ndarray:
    """Returns numbers with many duplicates; floats include NaN, infinities and a negative zero."""
    rng = np.random.default_rng(sum(lens))
    kind = dt.of(of)
    low = -50 if kind.kind in "if" else 0
    x = rng.integers(low, 2 if kind.kind == "b" else 50, lens).astype(kind.numpy)
    if kind.kind == "f":
        odd = rng.integers(0, 12, lens)
        for number, value in enumerate((np.nan, -np.inf, np.inf, -0.0)):
            x[odd == number] = value
    elif kind.bits == 64:  # values that differ only in their upper halves
        x = x * kind.numpy.type(1 << 32) + kind.numpy.type(7)
    return x


def check(op: Topk, x: np.ndarray, wave: int = 32) -> KernelSource:
    """Checks that the kernels return the values and indices of `compute`, bitwise."""
    wanted = op.evaluate([x])
    ins, outs = [tensor(x.dtype, x.shape)], [tensor(w.dtype, w.shape) for w in wanted]
    source = generate(op, ins, outs, traits(wave))
    assert isinstance(source, KernelSource)
    for got, right in zip(run(source, [x], ins, outs, wave), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(got).reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8))
    return source


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "of", ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "bool", "int64", "uint64"]
)
def test_sorted_in_one_block(of: str, largest: bool, wave: int) -> None:
    for n, k in ((1, 1), (64, 64), (65, 65), (200, 7), (512, 300)):
        check(Topk(k=k, largest=largest), line(of, 2, n), wave)


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("of", ["float32", "int64"])
@pytest.mark.parametrize("many", [1 << 17, 0], ids=["few", "many"])
@pytest.mark.parametrize(("n", "k"), [(2000, 5), (2000, 70), (2000, 2000), (1025, 1000), (3073, 3073), (130, 129)])
def test_merged_runs(of: str, largest: bool, wave: int, many: int, n: int, k: int, monkeypatch) -> None:
    monkeypatch.setattr(topk, "RUN", 64)
    monkeypatch.setattr(topk, "MAX_RANKED", 0)
    monkeypatch.setattr(topk, "MANY_ELEMENTS", many)
    monkeypatch.setattr(topk, "MERGED", 8)
    source = check(Topk(k=k, largest=largest), line(of, 2, n), wave)
    assert len(source.launches) == (1 + (n > 64) + (n > 512) if many else 1 + sum(n > 64 * 4**i for i in range(4)))


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "int8", "uint8", "bool", "int32"])
def test_selected_by_waves(of: str, largest: bool, wave: int) -> None:
    rows = 2 * traits(wave).sm_count
    for n, k in ((65, 1), (100, 8), (300, 32), (2048, 20)):
        source = check(Topk(k=k, largest=largest), line(of, rows if n < 2048 else rows + 1, n), wave)
        assert [launch.grid[0] * launch.block[0] // wave >= rows for launch in source.launches] == [True]
        assert "wave_ballot" in source.text


@waves
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("of", ["float32", "uint8", "int64"])
def test_sorted_by_waves(of: str, largest: bool, wave: int) -> None:
    """A block sorted each line in shared memory, with a barrier after each exchange: 30 us for 8,192 lines of 128."""
    rows = 2 * traits(wave).sm_count
    for n, k in ((17, 17), (64, 3), (130, 130), (500, 40 if of == "float32" else 500)):
        source = check(Topk(k=k, largest=largest), line(of, rows + 1, n), wave)
        assert [launch.grid[0] * launch.block[0] // wave >= rows for launch in source.launches] == [True]
        assert "wave_xor" in source.text and "__syncthreads" not in source.text


@pytest.mark.pairs
@waves
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("of", ["float32", "float16", "uint8"])
def test_selected_by_blocks(of: str, largest: bool, wave: int) -> None:
    """Runs of 2,048 elements were sorted and merged for a few results of each line."""
    for n, k, threads in ((2100, 40, 256), (3000, 256, 1024), (17000, 33, 1024)):
        for x in (line(of, 3, n), np.arange(3 * n).reshape(3, n).astype(of)):  # with many equal elements, and with few
            source = check(Topk(k=k, largest=largest), x, wave)
            assert [(launch.grid[0], launch.block[0]) for launch in source.launches] == [(3, threads)]


@waves
@pytest.mark.parametrize("of", ["float32", "bfloat16"])
def test_blocks_share_the_only_lines(of: str, wave: int) -> None:
    """A block read each line of 128,000 logits alone, twice: 42 us.  The last piece has fewer elements than are selected."""
    for n, k in ((8200, 20), (8195, 250), (20000, 64)):
        for x in (line(of, 2, n), np.arange(2 * n).reshape(2, n).astype(of if of == "float32" else dt.bfloat16.numpy)):
            source = check(Topk(k=k), x, wave)
            assert [launch.grid[0] for launch in source.launches] == [2 * -(-n // 4096), 2 * -(-32 * k // 256)]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize(("index", "written"), [(0, "v[(u64)"), (1, "w[(u64)")])
def test_results_that_nothing_reads_are_not_written(index: int, written: str, device: int) -> None:
    """The places of a sort, 8 bytes each, were written for nothing."""
    program = mgx.Program()
    m = program.get_main_module()
    x = line("float32", 3, 100)
    found = m.add(mgx.op("topk", k=70), m.add_parameter("x", mgx.Shape("float32", x.shape)))
    m.add_return([m.add(mgx.op("get_tuple_elem", index=index), found)])
    program.compile(GpuTarget("host", device))
    np.testing.assert_array_equal(program.run({"x": x})[0].to_numpy(), Topk(k=70).evaluate([x])[index])
    assert program.executable is not None
    (source,) = program.executable.instances()[0].runner.step_sources
    assert [code for code in ("v[(u64)", "w[(u64)") if code in source.text] == [written]


@waves
def test_strided_lines_selected_by_waves(wave: int) -> None:
    few = 2 * traits(wave).sm_count - 1
    x = line("float32", few + 1, 130, 2)
    assert "wave_ballot" in check(Topk(k=5, axis=1), x, wave).text
    assert "wave_ballot" not in check(Topk(k=33, axis=1), x, wave).text
    assert "wave_ballot" not in check(Topk(k=5, axis=1), np.ascontiguousarray(x[:few, :, :1]), wave).text
    assert "wave_ballot" not in check(Topk(k=5, axis=1), x.astype(np.float64), wave).text


@waves
def test_lines_that_are_strided(wave: int) -> None:
    check(Topk(k=3, axis=1), line("float32", 3, 200, 5), wave)
    check(Topk(k=100, axis=0), line("float32", 5000, 2), wave)


def test_work_grows_with_the_number_of_elements() -> None:
    """A line of 46,080 values is read neither once for each of the 200 results nor once for each of its elements."""
    source = check(Topk(k=200), line("float32", 1, 46080))
    threads = sum(int(np.prod(a.grid)) * int(np.prod(a.block)) for a in source.launches)
    assert len(source.launches) == 2 and threads < 46080


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize("k", [3, 70, None], ids=["few", "more", "all"])
def test_lines_of_changing_length(k: int | None, device: int) -> None:
    """Each length was compiled."""
    program = mgx.Program()
    m = program.get_main_module()
    n = symbol("n", 2, 1 << 20)
    x = m.add_parameter("x", mgx.Shape("float32", [2, n]))
    found = m.add(mgx.op("topk", k=n if k is None else k, axis=1), x)
    m.add_return([m.add(mgx.op("get_tuple_elem", index=i), found) for i in (0, 1)])
    program.compile(GpuTarget("host", device))
    for known, others in ((90, (100, 128)), (700, (999, 600)), (2500, (4000, 2100)), (70000, (66000,))):
        one = opened(program, n=known)
        for length in (known, *others):
            assert one.fits({"n": length})
            given = line("float32", 2, length)
            wanted = Topk(k=length if k is None else k, axis=1).evaluate([given])
            for got, right in zip(one.runner.run([given]), wanted, strict=True):
                np.testing.assert_array_equal(got, right)
