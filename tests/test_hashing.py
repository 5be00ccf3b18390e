import hashlib

import pytest

from mgx_core import hashing


@pytest.mark.parametrize("size", [0, 1, 1000, hashing.LARGE, hashing.LARGE + 1])
def test_hashes_are_those_of_the_standard_library(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert hashing.sha256(data).hexdigest() == hashlib.sha256(data).hexdigest()


def test_an_interpreter_without_its_own_uses_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(hashing, "import_module", missing)
    hashing._small.cache_clear()
    try:
        assert hashing.sha256(b"abc").digest() == hashlib.sha256(b"abc").digest()
        assert hashing._small() is hashlib.sha256
    finally:
        hashing._small.cache_clear()
