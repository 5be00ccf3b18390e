"""Constants in mapped files: after they are packed, their pages are released."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgx_conformance.held_memory import resident_of
from mgx_core.types.mapped import forget_pages
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.packing import Weights

ROWS, COLUMNS = 512, 256  # 128 pages


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, Any]:
    """Returns a file and an array mapped from it, read once."""
    path = tmp_path / "table.bin"
    np.arange(ROWS * COLUMNS, dtype=np.float32).tofile(path)
    with path.open("rb") as file:
        window = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    array = np.frombuffer(window, np.float32).reshape(ROWS, COLUMNS)
    assert array.sum() > 0
    return path, array


VIEWS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda a: a,
    "a memory view": lambda a: np.frombuffer(memoryview(a).cast("B"), np.float32),
    "transposed": lambda a: a.T,
    "strided by hand": lambda a: np.lib.stride_tricks.as_strided(a, a.shape, a.strides, writeable=False),
    "of higher rank": lambda a: a.reshape(ROWS, 4, -1)[:, :, None],
}


@pytest.mark.parametrize("view", VIEWS)
def test_pages_of_a_view_are_released(table: tuple[Path, Any], view: str) -> None:
    path, array = table
    assert resident_of(path) == array.nbytes
    seen = VIEWS[view](array)
    forget_pages(seen)
    assert resident_of(path) == 0
    np.testing.assert_array_equal(np.sort(seen.ravel()), np.arange(ROWS * COLUMNS))  # read again


def test_only_the_pages_of_a_part(table: tuple[Path, Any]) -> None:
    path, array = table
    forget_pages(array[100:200])
    assert resident_of(path) == array.nbytes - 100 * COLUMNS * 4 // mmap.PAGESIZE * mmap.PAGESIZE


def test_memory_without_a_file_stays() -> None:
    array = np.ones((ROWS, COLUMNS), np.float32)
    forget_pages(array.T)
    assert array.all()


def test_pages_that_could_be_written_to_stay(tmp_path: Path) -> None:
    path = tmp_path / "table.bin"
    path.write_bytes(bytes(1 << 16))
    with path.open("r+b") as file:
        window = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    array = np.frombuffer(window, np.float32)
    array[:] = 1
    forget_pages(array)
    assert array.all()


def test_a_copy_lets_the_original_go(table: tuple[Path, Any]) -> None:
    path, array = table
    weights = Weights()
    copy = weights.contiguous(array.T)
    assert resident_of(path) == 0
    np.testing.assert_array_equal(copy.array, array.T)
    assert weights.contiguous(array.T) is copy


def resident() -> int:
    """Returns the resident memory of the process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def packed(rows: int, count: int) -> list[Any]:
    """Returns copies of matrices of `rows` KiB."""
    source = np.ones((rows, COLUMNS), np.float32)
    md = native().MemoryDesc([rows, COLUMNS], "float32")
    return [native().pack(source.ctypes.data, md, md) for _ in range(count)]


def test_weights_take_no_more_than_their_size() -> None:
    """They are not rounded up to huge pages: 2.25 MiB would take 4."""
    packed(2304, 1)
    before = resident()
    kept = packed(2304, 24)
    assert all((np.frombuffer(p, np.float32) == 1).all() for p in kept)
    size = sum(p.nbytes for p in kept)
    assert size <= resident() - before < size + (8 << 20)


def test_memory_of_weights_is_returned_when_they_are_freed() -> None:
    """Also while other weights of the same block are in use."""
    kept = packed(2304, 12)
    before = resident()
    del kept[1:]
    assert before - resident() > 10 * 2304 * 1024
    assert (np.frombuffer(kept[0], np.float32) == 1).all()
    large = packed(20 << 10, 1)  # has a block of its own
    before = resident()
    large.clear()
    assert before - resident() > 19 << 20


def has_huge_pages() -> bool:
    """Returns True if the system makes huge pages on request (MADV_COLLAPSE, since Linux 6.1)."""
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    release = tuple(int(n) for n in os.uname().release.split(".")[:2])
    return enabled.exists() and "[never]" not in enabled.read_text() and release >= (6, 1)


@pytest.mark.skipif(not has_huge_pages(), reason="needs huge pages")
def test_weights_move_to_huge_pages_after_some_runs() -> None:
    n = native()
    program = n.NativeProgram("copy", 0)
    x, out = program.input(np.float32, (16,)), program.output(np.float32, (16,))
    program.add_loop("copy", n.native_loop("copy_4"), None, [x, out], [1, 16, 1, 1], 16)
    program.finish()
    kept = packed(2304, 24)
    before = n.gathered_bytes()
    for _ in range(15):
        program.run_arrays([np.ones(16, np.float32)])
    assert n.gathered_bytes() == before
    program.run_arrays([np.ones(16, np.float32)])
    end = time.monotonic() + 60
    while n.gathered_bytes() - before < 40 << 20 and time.monotonic() < end:
        time.sleep(0.01)
    assert n.gathered_bytes() - before >= 40 << 20
    assert all((np.frombuffer(p, np.float32) == 1).all() for p in kept)
