"""Detection of arrays in memory-mapped files."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from mgx_core.types.mapped import map_file, mapped


def window(path: Path) -> mmap.mmap:
    np.arange(64, dtype=np.float32).tofile(path)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def test_views_of_a_map_are_found_through_buffers_and_arrays(tmp_path: Path) -> None:
    whole = window(tmp_path / "numbers")
    views = np.frombuffer(whole, np.float32), np.frombuffer(memoryview(whole)[64:], np.float32).reshape(6, 8)
    place = mapped(views[0][8:16])
    assert place is not None
    assert (place.first, place.end, place.map) == (32, 64, whole)
    place = mapped(views[1][1:3, ::-1])  # negative strides: the first byte is at the lowest address
    assert place is not None
    assert (place.first, place.end, place.bytes.size) == (64 + 32, 64 + 96, 256)


def test_an_empty_view_has_a_place_and_no_bytes(tmp_path: Path) -> None:
    place = mapped(np.frombuffer(window(tmp_path / "numbers"), np.float32)[4:4])
    assert place is not None
    assert place.first == place.end


def test_arrays_of_this_process_have_none(tmp_path: Path) -> None:
    assert mapped(np.arange(4)) is None
    assert mapped(np.frombuffer(window(tmp_path / "numbers"), np.float32).copy()) is None


def test_a_pipe_is_read() -> None:
    """`cat model.onnx | program /dev/stdin`."""
    reader, writer = os.pipe()
    os.write(writer, b"data")
    os.close(writer)
    try:
        assert map_file(f"/dev/fd/{reader}").bytes.tobytes() == b"data"
    finally:
        os.close(reader)


def test_a_device_that_does_not_end_is_rejected() -> None:
    with pytest.raises(OSError, match="is a device"):
        map_file("/dev/zero")
