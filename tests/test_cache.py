"""The disk cache has complete entries or none, whatever the folder contains and however many processes write to it."""

from __future__ import annotations

import os
import threading

import pytest

from mgx_core.cache import DiskCache, Recent, write_file


@pytest.fixture
def cache(tmp_path):
    return DiskCache("things", folder=tmp_path / "things")


def test_stored_entries_are_found(cache):
    assert cache.get("a key\nof any text") is None
    cache.put("a key\nof any text", b"data")
    cache.put("another", b"")
    assert cache.get("a key\nof any text") == b"data"
    assert cache.get("another") == b""
    assert cache.held() == (2, 84)  # headers of 40 bytes


def test_the_folder_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    DiskCache("things").put("key", b"data")
    assert len(list((tmp_path / "things").iterdir())) == 1


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:41] + bytes([b[41] ^ 1]) + b[42:], lambda b: b"x" * 20]
)
def test_damaged_entries_are_absent_and_replaced(cache, damage):
    cache.put("key", b"some data")
    (path,) = cache.folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("key") is None
    cache.put("key", b"again")
    assert cache.get("key") == b"again"


def test_entries_that_are_no_files_or_exceed_the_limit_are_absent(tmp_path):
    cache = DiskCache("things", folder=tmp_path / "things", limit=100)
    path = cache.path("key")
    path.parent.mkdir()
    os.mkfifo(path)
    assert cache.get("key") is None
    path.unlink()
    path.symlink_to("/dev/zero")
    assert cache.get("key") is None
    path.unlink()
    cache.put("key", bytes(60))
    assert cache.get("key") == bytes(60)
    whole = path.read_bytes()
    cache.limit = len(whole) - 1
    assert cache.get("key") is None


def test_entries_of_another_version_are_absent(cache):
    cache.put("key", b"old")
    newer = DiskCache("things", 2, cache.folder)
    assert newer.get("key") is None
    newer.put("key", b"new")
    assert (newer.get("key"), cache.get("key")) == (b"new", None)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = DiskCache("things", folder=tmp_path / "file")
    cache.put("key", b"data")
    assert cache.get("key") is None
    assert cache.held() == (0, 0)


def test_the_oldest_entries_go(tmp_path):
    cache = DiskCache("things", folder=tmp_path, limit=100 * 140)
    for n in range(2000):
        cache.put(str(n), bytes(100))
    entries, size = cache.held()
    assert size == entries * 140
    assert 100 <= entries < 1500  # the size is checked at about every 256th entry
    assert cache.get("1999") is not None
    assert cache.get("0") is None


@pytest.mark.parametrize(("share", "over"), [(4, 0), (16, 0), (100, 0.25), (1000, 0.25)])
def test_large_entries_do_not_outgrow_the_limit(tmp_path, share, over):
    limit = 200_000
    for n in range(3 * share):
        cache = DiskCache("things", folder=tmp_path, limit=limit)  # like processes that write one entry each
        cache.put(str(n), bytes(limit // share))
        if n % (share // 4) == 0:
            assert cache.held().bytes <= limit * (1 + over)
    assert cache.get(str(n)) is not None


def test_many_write_at_once(cache):
    def write(n):
        for _ in range(20):
            cache.put("key", bytes([n]) * 1000)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(cache.get("key"))) == 1
    assert len(list(cache.folder.iterdir())) == 1


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def chunks():
        yield b"new"
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        write_file(path, chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_file_it_names_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "link", tmp_path / "folder" / "file"
    link.symlink_to("folder/file")
    for data in (b"new", b"again"):
        write_file(link, [data])
        assert link.is_symlink()
        assert target.read_bytes() == data
    assert sorted(tmp_path.rglob("*")) == [target.parent, target, link]


def test_a_pipe_or_device_is_written_to_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_file(path, [b"da", b"ta"])
    assert os.read(reader, 8) == b"data"
    os.close(reader)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_names_may_be_as_long_as_the_system_permits(tmp_path, name):
    write_file(tmp_path / name, [b"data"])
    assert (tmp_path / name).read_bytes() == b"data"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_least_recently_used_values_are_dropped():
    recent = Recent(2)
    assert recent.put("a", 1) == 1
    recent.put("b", 2)
    assert recent.get("a") == 1  # now the most recently used
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
    assert (len(recent), recent.dropped, recent.values()) == (2, 1, [1, 3])
