import hashlib
import hmac
import subprocess
import sys

import pytest

from mgx_core import hashing


@pytest.mark.parametrize("size", [0, 1, 1000, hashing.LARGE, hashing.LARGE + 1])
def test_hashes_are_those_of_the_standard_library(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert hashing.sha256(data).hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_mebibyte_is_hashed_without_loading_openssl() -> None:
    """Kernels in program files have some hundred KiB, and OpenSSL takes longer to load than to hash them."""
    text = "import sys; from mgx_core.hashing import sha256; sha256(bytes(1 << 20)); print('_hashlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


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


@pytest.mark.parametrize("key", [b"", b"k", bytes(range(32)), bytes(64)])
@pytest.mark.parametrize("size", [0, 1000, hashing.LARGE])
def test_authentication_is_that_of_the_standard_library(key: bytes, size: int) -> None:
    assert hashing.hmac_sha256(key, b"x" * size) == hmac.digest(key, b"x" * size, "sha256")


def test_keys_longer_than_a_block_are_refused() -> None:
    with pytest.raises(ValueError, match="65 bytes is longer"):
        hashing.hmac_sha256(bytes(65), b"")


@pytest.mark.parametrize("own", [True, False])
def test_blake2b_is_that_of_the_standard_library(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    if not own:
        monkeypatch.setattr(hashing, "import_module", missing)
    assert hashing.blake2b(b"abc", 16) == hashlib.blake2b(b"abc", digest_size=16).digest()
